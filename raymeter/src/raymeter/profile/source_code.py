# SPDX-License-Identifier: Apache-2.0
"""Say which loops stand around a line of the user's code, and whether their passes need each other.

The text of the program is read after it has run. Of a file that is not there, or that was changed since, nothing is
known.
"""

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from raymeter.profile.carried import needs_last_pass
from raymeter.profile.expressions import (
    COMPREHENSIONS,
    FUNCTIONS,
    INNER_FUNCTIONS,
    LOOPS,
    SUBMISSION,
    calls_in_line,
    last_name,
    repeated_parts,
    spans,
    walk_outside,
)

FIRST_INLINED = 12  # of Python 3: list comprehensions have no frames from here on


@dataclass(frozen=True)
class Loop:
    """A loop of a file, with the first and the last line of what it repeats."""

    file: str
    first: int
    last: int
    node: ast.AST
    modules: frozenset[str]  # names of the file that hold modules
    has_all_calls: bool = False  # that wait in the line around which it stands

    def contains(self, line: str) -> bool:
        """Return whether the loop repeats a line, which is "file:line"."""
        file, number = split_line(line)
        return file == self.file and self.first <= number <= self.last

    @property
    def is_comprehension(self) -> bool:
        return isinstance(self.node, COMPREHENSIONS)

    def needs_last_pass(self, line: str) -> bool | None:
        """Return whether a pass uses a result that the last one got in a line; None if that can't be said."""
        if not self.has_all_calls:
            return None
        _, number = split_line(line)
        try:
            return needs_last_pass(self.node, number, set(self.modules))
        except RecursionError:
            return None


def loops_around(line: str, start: float) -> list[Loop]:
    """Return the loops around a line of the same function, the innermost first.

    If the line has calls that wait (or else submit), a loop counts only if each pass makes one of them again. If it has
    none, no comprehension counts.
    `start` is when the program began: a file that was changed later is not read. Return [] then.
    """
    file, number = split_line(line)
    tree = read_tree(file, start)
    if tree is None:
        return []
    modules = find_modules(tree)
    function = innermost_function(tree, number) or tree
    calls = calls_in_line(ast.iter_child_nodes(function), number)
    loops = []
    for loop in find_loops(function, file, modules):
        if not loop.contains(line):
            continue
        own = calls_inside(loop.node, calls)
        if own or not (calls or loop.is_comprehension):
            has_all_calls = 0 < len(own) == len(calls)
            loops.append(replace(loop, has_all_calls=has_all_calls))
    loops.reverse()  # those inside of others come last
    return loops


def comprehensions_around(line: str, event: str, start: float) -> list[ast.AST]:
    """Return the comprehensions that repeat the first call of an event in a line, the outermost first; [] if none do.

    `start` is when the program began: a file that was changed later is not read. Return [] then.
    """
    file, number = split_line(line)
    tree = read_tree(file, start)
    if tree is None:
        return []
    function = innermost_function(tree, number) or tree
    name = SUBMISSION if event == "call" else event
    calls = []
    for node in walk_outside(ast.iter_child_nodes(function), INNER_FUNCTIONS):
        if isinstance(node, ast.Call) and last_name(node.func) == name and spans(node, number):
            calls.append(node)
    found = [node for node in ast.walk(function) if isinstance(node, COMPREHENSIONS)]
    return [node for node in found if calls_inside(node, calls[:1])]


def has_own_frame(comprehension: ast.AST, python: str) -> bool:
    """Return whether a comprehension runs in a frame of its own: since Python 3.12, only a generator does (PEP 709)."""
    numbers = python.split(".")
    minor = int(numbers[1]) if len(numbers) > 1 and numbers[1].isdigit() else 0
    return isinstance(comprehension, ast.GeneratorExp) or minor < FIRST_INLINED


def calls_inside(loop: ast.AST, calls: list[ast.Call]) -> list[ast.Call]:
    """Return which calls each pass of a loop makes again: not those that make the list over which it runs."""
    nodes = set(walk_outside(repeated_parts(loop), INNER_FUNCTIONS))
    return [call for call in calls if call in nodes]


def split_line(line: str) -> tuple[str, int]:
    """Return the file and the number of a line; 0 if it has none."""
    file, _, number = line.rpartition(":")
    return file, int(number) if number.isdigit() else 0


@lru_cache(maxsize=100)
def read_tree(file: str, start: float) -> ast.Module | None:
    """Return the syntax tree of a file; None if it cannot be read or parsed, or was changed after `start`."""
    path = Path(file)
    try:
        if path.stat().st_mtime > start:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the code, which is not ours
            return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def find_loops(tree: ast.AST, file: str, modules: frozenset[str]) -> Iterator[Loop]:
    """Yield the loops and the comprehensions of a file."""
    for node in ast.walk(tree):
        if isinstance(node, COMPREHENSIONS):
            last = node.end_lineno or node.lineno
            yield Loop(file, node.lineno, last, node, modules)
        elif isinstance(node, LOOPS):
            first = first_line(node)
            last = node.body[-1].end_lineno or first
            yield Loop(file, first, last, node, modules)


def first_line(loop: ast.For | ast.AsyncFor | ast.While) -> int:
    """Return the first line that a loop repeats: of a while loop, its condition."""
    if isinstance(loop, ast.While):
        return loop.lineno
    return loop.body[0].lineno


def find_modules(tree: ast.AST) -> frozenset[str]:
    """Return the names of the modules that a file imports."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                first, _, _ = item.name.partition(".")
                names.append(item.asname or first)
    return frozenset(names)


def innermost_function(tree: ast.AST, number: int) -> ast.AST | None:
    """Return the function around a line; None for the module."""
    found: ast.AST | None = None
    for node in ast.walk(tree):  # outer functions come first
        if not isinstance(node, FUNCTIONS):
            continue
        last = node.end_lineno or node.lineno
        if node.lineno <= number <= last:
            found = node
    return found
