# SPDX-License-Identifier: Apache-2.0
"""Read single expressions of the user's code: which names are in them, and whether they call Ray."""

import ast
from collections.abc import Iterable, Iterator

SUBMISSION = "remote"
GETTERS = ("get", "wait")
RAY = "ray"
ONLY_READ = (
    "print",
    "len",
    "str",
    "repr",
    "float",
    "int",
    "bool",
    "isinstance",
    "max",
    "min",
    "sum",
    "abs",
    "round",
    "range",
)
# What these return does not change if the object changes, or Python does not allow that in a loop over them.
SNAPSHOTS = ("range", "list", "tuple", "set", "sorted", "items", "keys", "values")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
INNER_FUNCTIONS = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)


def is_get(node: ast.AST, line: int) -> bool:
    """Return whether an expression is a call of ray.get or ray.wait, or of any get in the line that was recorded."""
    if not isinstance(node, ast.Call) or last_name(node.func) not in GETTERS:
        return False
    is_method_of_ray = isinstance(node.func, ast.Attribute) and is_of_ray(node.func)
    return is_method_of_ray or spans(node, line)


def is_of_ray(function: ast.expr) -> bool:
    """Return whether a function is one of Ray, as `ray.get`, or has no module in front of it."""
    return not isinstance(function, ast.Attribute) or last_name(function.value) == RAY


def is_submission(node: ast.AST) -> bool:
    """Return whether an expression submits a task, whose reference is as good as its result."""
    return isinstance(node, ast.Call) and last_name(node.func) == SUBMISSION


def spans(node: ast.Call, line: int) -> bool:
    last = node.end_lineno or node.lineno
    return node.lineno <= line <= last


def targets_of(node: ast.AST) -> Iterator[str]:
    """Yield the dotted names that change if a value is assigned: "rows" of `rows[number]`."""
    if isinstance(node, (ast.Subscript, ast.Starred)):
        yield from targets_of(node.value)
    elif isinstance(node, (ast.Tuple, ast.List)):
        for element in node.elts:
            yield from targets_of(element)
    else:
        yield path_of(node)


def is_stored(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def last_name(node: ast.AST) -> str:
    """Return the last part of a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return ""


def paths_of(node: ast.AST) -> Iterator[str]:
    """Yield the dotted names in an expression, each as long as it is there: "self.state" of `self.state[0]`."""
    path = path_of(node)
    if path:
        yield path
        return
    for child in ast.iter_child_nodes(node):
        yield from paths_of(child)


def path_of(node: ast.AST) -> str:
    """Return the dotted name that an expression is; "" if it is none."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = path_of(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def root_of(path: str) -> str:
    root, _, _ = path.partition(".")
    return root


def overlap(path: str, other: str) -> bool:
    """Return whether two dotted names are the same, or one is a part of the other."""
    return path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.")


def arguments_of(call: ast.Call) -> list[ast.expr]:
    named = [keyword.value for keyword in call.keywords]
    return [*call.args, *named]


def live_paths(node: ast.AST) -> Iterator[str]:
    """Yield the objects over which a loop runs, if it sees what is changed in them later."""
    if not isinstance(node, ast.Call):
        yield from filter(None, targets_of(node))
        return
    if last_name(node.func) in SNAPSHOTS:
        return
    parts = arguments_of(node)
    if isinstance(node.func, ast.Attribute):
        parts.append(node.func.value)
    for part in parts:
        yield from live_paths(part)


def repeated_parts(loop: ast.AST) -> list[ast.AST]:
    """Return what each pass of a loop or of a comprehension does again. Its first iterable is computed only once."""
    if isinstance(loop, ast.While):
        return [loop.test, *loop.body]
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        return list(loop.body)
    if isinstance(loop, COMPREHENSIONS):
        first, *others = loop.generators
        return [*values_of(loop), *first.ifs, *others]
    return []


def values_of(loop: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> list[ast.expr]:
    if isinstance(loop, ast.DictComp):
        return [loop.key, loop.value]
    return [loop.elt]


def calls_in_line(parts: Iterable[ast.AST], line: int) -> list[ast.Call]:
    """Return the calls of ray.get or ray.wait in a line; without one, those of any get, or else those that submit.

    Calls inside of functions that `parts` define do not count. Return [] if the line has no such call.
    """
    gets: list[ast.Call] = []
    other_gets: list[ast.Call] = []
    submissions: list[ast.Call] = []
    for node in walk_outside(parts, INNER_FUNCTIONS):
        if not isinstance(node, ast.Call) or not spans(node, line):
            continue
        if is_submission(node):
            submissions.append(node)
        elif is_get(node, line):
            found = gets if is_of_ray(node.func) else other_gets
            found.append(node)
    return gets or other_gets or submissions


def walk_outside(parts: Iterable[ast.AST], kinds: tuple[type[ast.AST], ...]) -> Iterator[ast.AST]:
    """Yield the nodes of some parts, those of a level first, but no node of these kinds, and nothing inside of one."""
    pending = list(parts)
    for node in pending:  # grows
        if isinstance(node, kinds):
            continue
        yield node
        pending += ast.iter_child_nodes(node)
