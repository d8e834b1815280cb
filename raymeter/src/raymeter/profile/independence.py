# SPDX-License-Identifier: Apache-2.0
"""Say whether the user's code shows that a task could be submitted before the result of an earlier one is got.

Both lines must be simple statements of one block, with nothing between them but assignments, calls of Ray, and
functions that only read. The later task must use no name that got a value since. What the tasks do elsewhere, such as
to a file, the code does not show.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence

from raymeter.profile.expressions import (
    ONLY_READ,
    arguments_of,
    is_get,
    is_submission,
    last_name,
    overlap,
    paths_of,
    root_of,
    targets_of,
)
from raymeter.profile.source_code import innermost_function, read_tree, split_line

SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)
ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)
SELF = "self"
BLOCKS = ("body", "orelse", "finalbody")

Names = set[str]


def may_come_first(get_line: str, later_line: str, start: float) -> bool:
    """Return whether a later line submits what needs nothing that was got, or has changed, since an earlier line.

    False if the code does not show it: for lines of two functions, or of a file that was changed after `start`, when
    the program began.
    """
    file, first = split_line(get_line)
    other_file, last = split_line(later_line)
    tree = read_tree(file, start)
    if tree is None or file != other_file:
        return False
    function = innermost_function(tree, first) or tree
    if (innermost_function(tree, last) or tree) is not function:
        return False
    statements = statements_between(function, first, last)
    if len(statements) < 2 or not all(isinstance(item, SIMPLE) for item in statements):
        return False
    return is_independent(tree, statements, first, last)


def is_independent(tree: ast.AST, statements: Sequence[ast.stmt], first: int, last: int) -> bool:
    """Return whether the last statement submits what needs nothing of those before it, of which the first one gets.

    statements: at least two, all of them SIMPLE. False if one of them may do something that its names do not show.
    """
    *before, later = statements
    if not isinstance(before[0], ASSIGNMENTS):
        return False  # a result that nobody wants: one waits for what the task does elsewhere
    changed: Names = set()
    for statement in before:
        names = changed_names(statement)
        if names is None or not has_known_calls(statement, [first, last]):
            return False
        changed |= names
    if not has_known_calls(later, [first, last]):
        return False
    used = names_of_submissions(later)
    if not used or meet(used, changed):
        return False
    return not know_each_other(tree, [before[0], later])


def meet(names: Names, others: Names) -> bool:
    """Return whether two sets of names have one in common, or a part of one."""
    return any(has_overlap(name, others) for name in names)


def has_overlap(name: str, others: Names) -> bool:
    return any(overlap(name, other) for other in others)


def statements_between(function: ast.AST, first: int, last: int) -> list[ast.stmt]:
    """Return the statements of the innermost block from one line to another; [] if no block has both."""
    found: list[ast.stmt] = []
    for node in ast.walk(function):  # inner blocks come last
        for name in BLOCKS:
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            inside = [item for item in block if item.lineno <= last and end_of(item) >= first]
            if inside and has_line(inside[0], first) and has_line(inside[-1], last):
                found = inside
    return found


def has_line(statement: ast.stmt, number: int) -> bool:
    return statement.lineno <= number <= end_of(statement)


def end_of(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def changed_names(statement: ast.stmt) -> Names | None:
    """Return the names that get a value; None if a part of an object does, which may have other names."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        targets = [statement.target]
    else:
        return set()
    names: Names = set()
    for target in targets:
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        if not all(isinstance(part, ast.Name) for part in parts):
            return None
        names.update(targets_of(target))
    return names


def has_known_calls(statement: ast.stmt, lines: Iterable[int]) -> bool:
    """Return whether a statement calls nothing but Ray, and functions that only read."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)):
            return False
        if not isinstance(node, ast.Call) or is_submission(node):
            continue
        is_known = last_name(node.func) in ONLY_READ
        if not is_known and not any(is_get(node, line) for line in lines):
            return False
    return True


def names_of_submissions(statement: ast.stmt) -> Names:
    """Return what the submissions of a statement use: the function or the actor, and the arguments."""
    names: Names = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and is_submission(node):
            names.update(paths_of(node.func))
            for value in arguments_of(node):
                names.update(paths_of(value))
    return names


def know_each_other(tree: ast.AST, statements: Iterable[ast.AST]) -> bool:
    """Return whether an actor (or a function) that statements call is an argument of a task anywhere in the file."""
    receivers: Names = set()
    for statement in statements:
        for call in submissions_in(statement):
            receivers |= owners_in(call.func)
    for call in submissions_in(tree):
        for value in arguments_of(call):
            owners = owners_in(value)
            if owners & receivers or SELF in owners:
                return True
    return False


def submissions_in(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and is_submission(node):
            yield node


def owners_in(value: ast.AST) -> Names:
    """Return the first names in an expression, without "self": "judge" of `self.judge.score.remote`, and of `judge`."""
    return {root_of(path.removeprefix(f"{SELF}.")) for path in paths_of(value)}
