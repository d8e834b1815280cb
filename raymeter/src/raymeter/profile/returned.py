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
    if tree is None:
        return False
    found = innermost_function(tree, number)
    if found is None or getattr(found, "name", "") != function:
        return False
    body = ast.iter_child_nodes(found)
    nodes = list(walk_outside(body, INNER_FUNCTIONS))
    puts = [node for node in nodes if is_put(node, number)]
    names = set(names_of(nodes, puts))
    return any(is_reference(part, puts, names) for part in returned_parts(nodes))


def is_reference(part: ast.AST, puts: list[ast.AST], names: set[str]) -> bool:
    """Return whether an expression is one of these calls, or a name that has got its reference."""
    if isinstance(part, ast.Name):
        return part.id in names
    return part in puts


def returned_parts(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """Yield what the return statements among these nodes give."""
    for node in nodes:
        if isinstance(node, ast.Return) and node.value is not None:
            yield from parts_of(node.value)


def is_put(node: ast.AST, number: int) -> bool:
    """Return whether a node is a call of ray.put in this line."""
    if not isinstance(node, ast.Call):
        return False
    is_called_so = last_name(node.func) == PUT
    return is_called_so and spans(node, number)


def names_of(nodes: list[ast.AST], puts: list[ast.AST]) -> Iterator[str]:
    """Yield the names that get the reference of one of these calls: "ref" of `ref = ray.put(rows)`."""
    for node in nodes:
        if not isinstance(node, ast.Assign):
            continue
        if node.value not in puts:
            continue
        for target in node.targets:
            yield from targets_of(target)


def parts_of(value: ast.AST) -> Iterator[ast.AST]:
    """Yield what an expression consists of, if it is a tuple, a list or a dict, or else the expression itself."""
    if not isinstance(value, CONTAINERS):
        yield value
        return
    for part in ast.iter_child_nodes(value):
        yield from parts_of(part)
