# SPDX-License-Identifier: Apache-2.0
"""Say which objects a loop may change: those whose methods it calls, or that it hands to functions."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from raymeter.profile.expressions import (
    ONLY_READ,
    arguments_of,
    is_get,
    is_submission,
    last_name,
    live_paths,
    repeated_parts,
    root_of,
    targets_of,
)

Names = set[str]  # such as "state" and "self.state"


def touched_in(loop: ast.AST, line: int) -> Names:
    """Return the objects that a loop may change, without what it does for the arguments of tasks."""
    nodes = list(outside_of_submissions(repeated_parts(loop)))
    parts_of = find_parts(nodes)
    found: Names = set()
    for node in nodes:
        if isinstance(node, ast.Call):
            found.update(handed_over(node, line))
        elif isinstance(node, ast.AugAssign):
            for path in targets_of(node.target):
                found |= parts_of[root_of(path)]
        elif isinstance(node, ast.Assign):
            found.update(changed_by(node))
    return with_wholes(found, parts_of)


def outside_of_submissions(parts: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a loop, but not the arguments of its tasks."""
    pending = list(parts)
    for node in pending:  # grows
        yield node
        if not is_submission(node):
            pending += ast.iter_child_nodes(node)


def find_parts(nodes: Iterable[ast.AST]) -> dict[str, Names]:
    """Return the objects that each name of a loop or an assignment may be, or of which it may be a part."""
    parts: dict[str, Names] = defaultdict(set)
    for node in nodes:
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            targets: list[ast.expr] = [node.target]
            wholes = set(live_paths(node.iter))
        elif isinstance(node, ast.Assign):
            targets = node.targets
            wholes = set(targets_of(node.value))
        else:
            continue
        for target in targets:
            for name in targets_of(target):
                parts[name] |= wholes
    return parts


def with_wholes(paths: Names, parts_of: dict[str, Names]) -> Names:
    """Return names, with those of the objects of which they are parts."""
    found = set(paths)
    pending = list(paths)
    for path in pending:  # grows
        new = parts_of.get(root_of(path), set()) - found
        found |= new
        pending += new
    return found


def handed_over(call: ast.Call, line: int) -> Iterator[str]:
    """Yield the objects that a call may change."""
    if is_submission(call) or is_get(call, line) or last_name(call.func) in ONLY_READ:
        return
    values = arguments_of(call)
    if isinstance(call.func, ast.Attribute):
        values.append(call.func.value)
    for value in values:
        yield from filter(None, targets_of(value))


def changed_by(statement: ast.Assign) -> Iterator[str]:
    """Yield the objects of which a statement sets a part."""
    for target in statement.targets:
        if isinstance(target, (ast.Subscript, ast.Attribute)):
            yield from targets_of(target.value)
