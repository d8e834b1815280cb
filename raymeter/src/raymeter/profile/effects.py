"""Say whether the user's code shows that a task does nothing outside of its own process.

All code of its function, or of its class, must call only what is known to compute: functions of Python, numpy and
torch, methods of arrays and lists, and each other. Of a file, a service or a library, nothing is shown.
"""

import ast

from raymeter.profile.expressions import FUNCTIONS, last_name, path_of, root_of
from raymeter.profile.source_code import read_tree, split_line

MODULES = ("np", "numpy", "torch", "math", "random", "time", "ray")
OUTSIDE = (  # parts of the names of functions of these modules that reach files, memory or processes of others
    "save", "load", "file", "memmap", "txt", "distributed", "hub", "get", "put", "wait", "kill", "actor", "util",
    "mmap", "share", "remote", "lib", "multiprocessing",
)  # fmt: skip
BUILTINS = (
    "abs", "all", "any", "bool", "bytearray", "bytes", "dict", "divmod", "enumerate", "float", "frozenset", "hash",
    "int", "isinstance", "len", "list", "map", "max", "min", "pow", "range", "reversed", "round", "set", "sorted",
    "str", "sum", "super", "tuple", "zip", "ValueError", "RuntimeError", "TypeError",
)  # fmt: skip
METHODS = (  # of arrays, tensors, lists and dicts
    "all", "any", "append", "argmax", "argmin", "astype", "clip", "clone", "copy", "cumsum", "dot", "extend", "fill",
    "flatten", "items", "keys", "max", "mean", "min", "numpy", "pop", "ravel", "reshape", "sort", "squeeze", "std",
    "sum", "tolist", "transpose", "values", "var", "view", "item", "matmul", "normal", "integers", "standard_normal",
    "__init__",
)  # fmt: skip


def acts_alone(line: str, start: float) -> bool:
    """Return whether the code of the function that is defined in a line reaches nothing outside of its process."""
    file, number = split_line(line)
    tree = read_tree(file, start)
    if tree is None:
        return False
    code = outermost_definition(tree, number)
    if code is None:
        return False
    own = {node.name for node in ast.walk(code) if isinstance(node, FUNCTIONS)}
    decorators = nodes_of_decorators(code)
    for node in ast.walk(code):
        if isinstance(node, (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom)):
            return False
        if isinstance(node, ast.Call) and node not in decorators and not computes(node, own):
            return False
    has_bases = isinstance(code, ast.ClassDef) and bool(code.bases)
    return not has_bases  # of which the code is elsewhere


def outermost_definition(tree: ast.Module, number: int) -> ast.AST | None:
    """Return the function or class of a module around a line; None if there is none."""
    for node in tree.body:
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
        last = node.end_lineno or node.lineno
        if first <= number <= last:
            return node
    return None


def nodes_of_decorators(code: ast.AST) -> set[ast.AST]:
    nodes: set[ast.AST] = set()
    for node in ast.walk(code):
        for decorator in getattr(node, "decorator_list", []):
            nodes.update(ast.walk(decorator))
    return nodes


def computes(call: ast.Call, own: set[str]) -> bool:
    """Return whether a call is one of those that are known to compute; `own` are functions of the same code."""
    name = last_name(call.func)
    if isinstance(call.func, ast.Name):
        return name in BUILTINS or name in own
    path = path_of(call.func)
    root = root_of(path)
    if root in MODULES:
        return not any(part in path for part in OUTSIDE)
    if root == "self" and path == f"self.{name}":
        return name in own
    return name in METHODS
