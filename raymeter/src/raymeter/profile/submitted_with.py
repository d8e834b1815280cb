# SPDX-License-Identifier: Apache-2.0
"""Say where the user's code sets an option of a task or an actor, and whether it makes actors without arguments."""

import ast
from collections.abc import Iterable

from raymeter.profile.expressions import (
    FUNCTIONS,
    INNER_FUNCTIONS,
    is_submission,
    last_name,
    path_of,
    spans,
)
from raymeter.profile.source_code import innermost_function, read_tree, split_line

SETTERS = ("options", "remote")


def line_of_option(line: str, start: float, option: str) -> str:
    """Return the line that sets an option of what a line submits; "" if that is not known, or not the same for all.

    It is an `.options()` in the submission itself, or in the assignment of its receiver, or the decorator of it.
    """
    file, number = split_line(line)
    tree = read_tree(file, start)
    if tree is None:
        return ""
    function = innermost_function(tree, number) or tree
    found = set()
    for call in submissions_in(line, start):
        receiver = receiver_of(call)
        setter = setter_in(receiver, option)
        if isinstance(setter, ast.expr):
            path = path_of(setter)
            definition = definition_of(path, function, tree)
            setter = setter_in(definition, option)
        found.add(setter)
    if len(found) != 1:
        return ""
    (only,) = found
    return f"{file}:{only}" if isinstance(only, int) else ""


def receiver_of(call: ast.Call) -> ast.expr:
    """Return what a method is called of: `work.options()` of `work.options().remote()`."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.value
    return function


def setter_in(node: ast.AST | None, option: str) -> int | ast.expr | None:
    """Return the line in a chain of `.options()` that sets an option, or else the name with which the chain begins.

    It is None if something in between may set the option, too.
    """
    while isinstance(node, ast.Call):
        names = [keyword.arg for keyword in node.keywords]
        is_setter = last_name(node.func) in SETTERS
        if is_setter and option in names:
            return node.lineno
        if not is_setter or None in names:
            return None
        if not isinstance(node.func, ast.Attribute):
            return None
        node = node.func.value
    if isinstance(node, ast.expr):
        return node
    return None


def definition_of(path: str, function: ast.AST, tree: ast.Module) -> ast.expr | None:
    """Return the value that is assigned to a name, or its decorator; None if there is none, or more than one."""
    parameters = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    parts = ast.iter_child_nodes(function)
    found = definitions_in(parts, path)
    if not found and path not in parameters:
        found = definitions_in(tree.body, path)
    if not path or len(found) != 1:
        return None
    return found[0]


def definitions_in(parts: Iterable[ast.AST], path: str) -> list[ast.expr]:
    """Return what is assigned to a name in a scope, and the decorators of functions of this name."""
    found: list[ast.expr] = []
    pending = list(parts)
    for node in pending:  # grows
        if isinstance(node, ast.Assign):
            targets = map(path_of, node.targets)
            if path in targets:
                found.append(node.value)
        elif isinstance(node, FUNCTIONS) and node.name == path:
            found += node.decorator_list
        if not isinstance(node, INNER_FUNCTIONS):
            pending += ast.iter_child_nodes(node)
    return found


def submissions_in(line: str, start: float) -> list[ast.Call]:
    """Return the calls that submit something in a line, as the source shows them; [] if it is not known."""
    file, number = split_line(line)
    tree = read_tree(file, start)
    if tree is None:
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if is_submission(call) and spans(call, number)]


def class_of(call: ast.Call, line: str, start: float) -> str:
    """Return the line of the class of which a call makes an actor; "" unless the same file defines it, and once."""
    file, _ = split_line(line)
    tree = read_tree(file, start)
    if tree is None:
        return ""
    receiver = receiver_of(call)
    if isinstance(receiver, ast.Call):  # of .options()
        receiver = receiver_of(receiver)
    name = path_of(receiver)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    found = [node.lineno for node in classes if node.name == name]
    if len(found) != 1:
        return ""
    (number,) = found
    return f"{file}:{number}"


def has_same_arguments(call: ast.Call) -> bool:
    """Return whether a call has no arguments but constants, so that it gets the same ones each time."""
    named = [keyword.value for keyword in call.keywords]
    return all(isinstance(value, ast.Constant) for value in [*call.args, *named])
