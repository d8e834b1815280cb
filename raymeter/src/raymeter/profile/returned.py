# SPDX-License-Identifier: Apache-2.0
"""Say whether a function of the user's code returns the reference that ray.put has given it in a line."""

import ast
from collections.abc import Iterator

from raymeter.profile.expressions import INNER_FUNCTIONS, last_name, spans, targets_of, walk_outside
from raymeter.profile.source_code import innermost_function, read_tree, split_line

PUT = "put"
CONTAINERS = (ast.Tuple, ast.List, ast.Dict, ast.Starred)


def returns_put(line: str, function: str, start: float) -> bool:
    """Return whether a function returns what ray.put returns in a line, alone or in a tuple, list or dict.

    A list of as many references as there are parts does not count: no single value replaces it. It is False, too, if
    the code is not known: `start` is when the program began, and a file that was changed later is not read.
    """
    file, number = split_line(line)
    tree = read_tree(file, start)
    found = None if tree is None else innermost_function(tree, number)
    if found is None or getattr(found, "name", "") != function:
        return False
    nodes = list(walk_outside(ast.iter_child_nodes(found), INNER_FUNCTIONS))
    puts = [node for node in nodes if is_put(node, number)]
    names = set(names_of(nodes, puts))
    for node in nodes:
        if isinstance(node, ast.Return) and node.value is not None:
            for part in parts_of(node.value):
                is_named = isinstance(part, ast.Name) and part.id in names
                if part in puts or is_named:
                    return True
    return False


def is_put(node: ast.AST, number: int) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == PUT and spans(node, number)


def names_of(nodes: list[ast.AST], puts: list[ast.AST]) -> Iterator[str]:
    """Yield the names that get the reference of one of these calls: "ref" of `ref = ray.put(rows)`."""
    for node in nodes:
        if isinstance(node, ast.Assign) and node.value in puts:
            for target in node.targets:
                yield from targets_of(target)


def parts_of(value: ast.AST) -> Iterator[ast.AST]:
    """Yield what an expression consists of, if it is a tuple, a list or a dict, or else the expression itself."""
    if not isinstance(value, CONTAINERS):
        yield value
        return
    for part in ast.iter_child_nodes(value):
        yield from parts_of(part)
