"""Say where the user's code sets an option of a task or an actor, and whether it makes actors without arguments."""

import ast

from raymeter.profile.expressions import is_submission, spans
from raymeter.profile.source_code import innermost_function, read_tree, split_line


def line_of_option(line: str, start: float, option: str) -> str:
    """Return the line that sets an option for a submission: in the same function, the last one up to it; "" if none."""
    file, number = split_line(line)
    tree = read_tree(file, start)
    if tree is None:
        return ""
    function = innermost_function(tree, number) or tree
    found = 0
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or node.lineno > number:
            continue
        names = [keyword.arg for keyword in node.keywords]
        if option in names:
            found = max(found, node.lineno)
    return f"{file}:{found}" if found else ""


def submissions_in(line: str, start: float) -> list[ast.Call]:
    """Return the calls that submit something in a line, as the source shows them; [] if it is not known."""
    file, number = split_line(line)
    tree = read_tree(file, start)
    if tree is None:
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if is_submission(call) and spans(call, number)]


def has_same_arguments(call: ast.Call) -> bool:
    """Return whether a call has no arguments but constants, so that it gets the same ones each time."""
    named = [keyword.value for keyword in call.keywords]
    return all(isinstance(value, ast.Constant) for value in [*call.args, *named])
