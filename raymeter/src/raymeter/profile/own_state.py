# SPDX-License-Identifier: Apache-2.0
"""Say what a method of an actor changes in it, as the user's code shows it.

What functions change that it calls, or what has another name in it, is not seen.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raymeter.profile.expressions import FUNCTIONS, is_stored, last_name, path_of, targets_of
from raymeter.profile.source_code import read_tree, split_line

CHANGES = (  # methods that change an object
    "add",
    "append",
    "appendleft",
    "clear",
    "discard",
    "extend",
    "insert",
    "pop",
    "popleft",
    "remove",
    "setdefault",
    "sort",
    "update",
)
COUNTING = (ast.Add, ast.Sub)


@dataclass(frozen=True)
class OwnState:
    """The names of attributes of `self` that a method changes, and of those that it gets from its last run."""

    changed: list[str]
    passed_on: list[str]  # it reads them, and gives them another value


def own_state(line: str, start: float) -> OwnState:
    """Return what the method whose definition begins in a line keeps in `self`; nothing if its code is not known.

    `start` is when the program began: a file that was changed later is not read.
    """
    file, number = split_line(line)
    tree = read_tree(file, start)
    method = None if tree is None else method_at(tree, number)
    if method is None or not method.args.args:
        return OwnState([], [])
    owner = method.args.args[0].arg
    changed = attributes_in(changed_paths(method), owner)
    replaced = attributes_in(replaced_paths(method), owner)
    read = attributes_in(read_paths(method), owner)
    passed_on = [name for name in replaced if name in read]
    return OwnState(changed, passed_on)


def attributes_in(paths: Iterable[str], owner: str) -> list[str]:
    """Return the attributes of an object in dotted names, each once: "count" of "self.count"."""
    names = []
    for path in paths:
        root, *attributes = path.split(".")
        if root == owner and attributes:
            names.append(attributes[0])
    return list(dict.fromkeys(names))


def method_at(tree: ast.Module, number: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the function whose definition begins in a line, at its first decorator; None if there is none."""
    for node in ast.walk(tree):
        if not isinstance(node, FUNCTIONS):
            continue
        lines = [decorator.lineno for decorator in node.decorator_list]
        if number in (node.lineno, *lines):
            return node
    return None


def changed_paths(method: ast.AST) -> Iterator[str]:
    """Yield the dotted names of what a method changes; "" for what has no such name."""
    for node in ast.walk(method):
        if isinstance(node, (ast.Assign, ast.Delete)):
            for target in node.targets:
                yield from targets_of(target)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            yield from targets_of(node.target)
        elif isinstance(node, ast.Call) and last_name(node.func) in CHANGES:
            path, _, _ = path_of(node.func).rpartition(".")
            yield path


def replaced_paths(method: ast.AST) -> Iterator[str]:
    """Yield the dotted names of attributes that get another value, and do not only count with + or -."""
    counting = set()
    for node in ast.walk(method):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, COUNTING):
            counting.add(node.target)
        elif isinstance(node, ast.Attribute) and is_stored(node) and node not in counting:
            yield path_of(node)


def read_paths(method: ast.AST) -> Iterator[str]:
    """Yield the dotted names whose value a method reads, with those to which `*=` and others give a new one."""
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield path_of(node)
        elif isinstance(node, ast.AugAssign):
            yield from targets_of(node.target)
