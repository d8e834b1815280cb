# SPDX-License-Identifier: Apache-2.0
"""Find the variables of the environment for which a function asks, and the text with which it compares them.

A class may pickle itself in one of several ways, and ask for a variable which of them it takes, as verl's DataProto.
Other variables say what is printed, or which process this is: only those count that decide what is returned.
"""

import ast
from collections.abc import Iterable, Iterator

from raymeter.profile.expressions import INNER_FUNCTIONS, walk_outside
from raymeter.profile.source_code import innermost_function, read_tree, split_line

GETTERS = ("os.getenv", "os.environ.get")
ENVIRONMENT = "os.environ"
# torchrun sets these for each process (torch/distributed/run.py). A program may hang with others.
OF_PROCESSES = ("RANK", "WORLD_SIZE")  # the ends of their names


def find_asked_variables(line: str, start: float) -> dict[str, str]:
    """Return the variables that decide what a function returns, each with the text for which it returns something else.

    `line` is "file:line" of its definition. `start` is when the program began: of a file that was changed later, or
    cannot be read, nothing is known. Return {} then. If a variable is compared with several texts, the last one counts.
    """
    file, number = split_line(line)
    tree = read_tree(file, start)
    function = innermost_function(tree, number) if tree is not None else None
    if function is None:
        return {}
    parts = ast.iter_child_nodes(function)
    nodes = set(walk_outside(parts, INNER_FUNCTIONS))
    tests = sorted(find_tests(nodes), key=place_of)
    asked: dict[str, str] = {}
    for test in tests:
        comparisons = find_comparisons(test)
        asked.update(comparisons)
    return asked


def find_tests(nodes: set[ast.AST]) -> Iterator[ast.expr]:
    """Yield the conditions on which it depends what a function returns, of which these are all nodes, in any order.

    An `if` is one if something is returned in its body that is returned nowhere else in the function.
    """
    returns = {node for node in nodes if isinstance(node, ast.Return)}
    for node in nodes:
        if not isinstance(node, ast.If):
            continue
        body = walk_outside(node.body, INNER_FUNCTIONS)
        inside = returns.intersection(body)
        outside = returns - inside
        if texts_of(inside) - texts_of(outside):
            yield node.test
    for node in walk_outside(returns, INNER_FUNCTIONS):
        if not isinstance(node, ast.IfExp):
            continue
        this = ast.dump(node.body)
        other = ast.dump(node.orelse)
        if this != other:
            yield node.test


def texts_of(returns: Iterable[ast.AST]) -> set[str]:
    """Return what statements return, as text."""
    return {ast.unparse(node) for node in returns}


def place_of(node: ast.expr) -> tuple[int, int]:
    """Return line and column of an expression."""
    return node.lineno, node.col_offset


def find_comparisons(test: ast.expr) -> Iterator[tuple[str, str]]:
    """Yield name and text of each `os.getenv(name) == text`, but for those that are equal without the variable."""
    for node in ast.walk(test):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq):
            continue
        name = name_of_variable(node.left)
        default = default_of_variable(node.left)
        text = constant_text(node.comparators[0])
        is_setting = bool(name) and not name.endswith(OF_PROCESSES)
        if is_setting and text and text != default:
            yield name, text


def name_of_variable(node: ast.AST) -> str:
    """Return the name of the variable that an expression reads; "" if it is another expression."""
    if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in GETTERS:
        return constant_text(node.args[0])
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == ENVIRONMENT:
        return constant_text(node.slice)
    return ""


def default_of_variable(node: ast.AST) -> str:
    """Return the text that an expression gives if the variable is not set; "" without one, or if it is computed."""
    if not isinstance(node, ast.Call):
        return ""
    defaults = node.args[1:]
    for keyword in node.keywords:
        if keyword.arg == "default":
            defaults.append(keyword.value)
    return constant_text(defaults[0]) if defaults else ""


def constant_text(node: ast.AST) -> str:
    """Return the text of a constant; "" if an expression is none."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else ""
