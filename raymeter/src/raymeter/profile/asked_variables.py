# SPDX-License-Identifier: Apache-2.0
"""Find the variables of the environment for which a function asks, and the text with which it compares them.

A class may pickle itself in one of several ways, and ask for a variable which of them it takes, as verl's DataProto.
"""

import ast
from collections.abc import Iterator

from raymeter.profile.source_code import innermost_function, read_tree, split_line

GETTERS = ("os.getenv", "os.environ.get")
ENVIRONMENT = "os.environ"


def find_asked_variables(line: str, start: float) -> dict[str, str]:
    """Return the variables that a function compares with a text, and this text.

    `line` is "file:line" of its definition. `start` is when the program began: a file that was changed later is not
    read, and nothing is known of it.
    """
    file, number = split_line(line)
    tree = read_tree(file, start)
    function = innermost_function(tree, number) if tree is not None else None
    if function is None:
        return {}
    return dict(find_comparisons(function))


def find_comparisons(function: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield name and text of each `os.getenv(name) == text`."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq):
            continue
        name = name_of_variable(node.left)
        text = constant_text(node.comparators[0])
        if name and text:
            yield name, text


def name_of_variable(node: ast.AST) -> str:
    """Return the name of the variable that an expression reads; "" if it is another expression."""
    if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in GETTERS:
        return constant_text(node.args[0])
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == ENVIRONMENT:
        return constant_text(node.slice)
    return ""


def constant_text(node: ast.AST) -> str:
    """Return the text of a constant; "" if an expression is none."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else ""
