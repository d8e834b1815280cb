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
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        setter = setter_in(receiver, option)
        if isinstance(setter, ast.expr):
            definition = definition_of(path_of(setter), function, tree)
            setter = setter_in(definition, option)
        found.add(setter)
    only = found.pop() if len(found) == 1 else None
    return f"{file}:{only}" if isinstance(only, int) else ""


def setter_in(node: ast.AST | None, option: str) -> int | ast.expr | None:
    """Return the line in a chain of `.options()` that sets an option, or else the name with which the chain begins.

    It is None if something in between may set the option, too.
    """
    while isinstance(node, ast.Call):
        names = [keyword.arg for keyword in node.keywords]
        is_setter = last_name(node.func) in SETTERS
        if is_setter and option in names:
            return node.lineno
        if not is_setter or None in names or not isinstance(node.func, ast.Attribute):
            return None
        node = node.func.value
    return node if isinstance(node, ast.expr) else None


def definition_of(path: str, function: ast.AST, tree: ast.Module) -> ast.expr | None:
    """Return the value that is assigned to a name, or its decorator; None if there is none, or more than one."""
    parameters = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    outside = [] if path in parameters or function is tree else definitions_in(tree.body, path)
    found = definitions_in(ast.iter_child_nodes(function), path) or outside
    return found[0] if path and len(found) == 1 else None


def definitions_in(parts: Iterable[ast.AST], path: str) -> list[ast.expr]:
    """Return what is assigned to a name in a scope, and the decorators of functions of this name."""
    found: list[ast.expr] = []
    pending = list(parts)
    for node in pending:  # grows
        if isinstance(node, ast.Assign) and path in map(path_of, node.targets):
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
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    while isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Attribute):
        receiver = receiver.func.value  # of .options()
    if tree is None:
        return ""
    name = path_of(receiver)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    found = [node.lineno for node in classes if node.name == name]
    return f"{file}:{found[0]}" if len(found) == 1 else ""


def has_same_arguments(call: ast.Call) -> bool:
    """Return whether a call has no arguments but constants, so that it gets the same ones each time."""
    named = [keyword.value for keyword in call.keywords]
    return all(isinstance(value, ast.Constant) for value in [*call.args, *named])
