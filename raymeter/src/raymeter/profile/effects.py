# SPDX-License-Identifier: Apache-2.0
"""Say whether the user's code shows that a task does nothing outside of its own process.

All code of its function, or of its class, must call only what is known to compute: functions of Python, numpy and
torch, methods of arrays and lists, and each other. Of a file, a service, a library, a decorator, or anything else that
the module of the code has, nothing is shown. What is changed must have been made by the same code. Code that reads a
clock is not shown to be alone: it may measure how long something takes, which others change.
"""

import ast
from collections import Counter
from collections.abc import Iterator

from raymeter.profile.expressions import FUNCTIONS, last_name, path_of, root_of
from raymeter.profile.source_code import read_tree, split_line

MODULES = ("numpy", "torch", "math", "random", "time")
SUBMODULES = ("fft", "functional", "linalg", "nn", "random")
OUTSIDE = (  # parts of the names of functions of these modules that reach files, memory or processes of others
    "save",
    "load",
    "file",
    "memmap",
    "txt",
    "distributed",
    "hub",
    "get",
    "put",
    "wait",
    "kill",
    "actor",
    "util",
    "mmap",
    "share",
    "remote",
    "lib",
    "multiprocessing",
    "export",
    "regex",
    "Source",
    "copyto",
    "compile",
    "apply",
    "vectorize",
    "pyfunc",
    "fromfunction",
    "piecewise",
    "Parallel",
)
CLOCKS = (
    "asctime",
    "ctime",
    "gmtime",
    "localtime",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "process_time",
    "process_time_ns",
    "strftime",
    "thread_time",
    "thread_time_ns",
    "time",
    "time_ns",
)
RANDOM = (  # parts of the names of functions whose result differs each time
    "bernoulli",
    "choice",
    "integers",
    "multinomial",
    "normal",
    "permutation",
    "poisson",
    "rand",
    "sample",
    "seed",
    "shuffle",
    "uniform",
)
BUILTINS = (
    "abs",
    "all",
    "any",
    "bool",
    "bytearray",
    "bytes",
    "dict",
    "divmod",
    "enumerate",
    "float",
    "frozenset",
    "hash",
    "int",
    "isinstance",
    "len",
    "list",
    "max",
    "min",
    "pow",
    "range",
    "reversed",
    "round",
    "set",
    "sorted",
    "str",
    "sum",
    "super",
    "tuple",
    "zip",
    "ValueError",
    "RuntimeError",
    "TypeError",
)
METHODS = (  # of arrays, tensors and numbers
    "all",
    "any",
    "argmax",
    "argmin",
    "astype",
    "clip",
    "clone",
    "cumsum",
    "dot",
    "flatten",
    "max",
    "mean",
    "min",
    "numpy",
    "ravel",
    "reshape",
    "squeeze",
    "std",
    "sum",
    "tolist",
    "transpose",
    "var",
    "view",
    "item",
    "matmul",
    "normal",
    "integers",
    "standard_normal",
    "__init__",
)
READS = ("copy", "items", "keys", "values")  # methods that need no argument, other than shutil.copy
CHANGES = ("append", "extend", "fill", "pop", "sort")  # methods that change an object
NEW_OBJECTS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
MAKERS = ("bytearray", "dict", "empty", "full", "list", "ones", "set", "zeros")
DECORATORS = (
    "ray.remote",
    "ray.method",
    "staticmethod",
    "classmethod",
    "property",
    "torch.no_grad",
    "torch.inference_mode",
)
UNKNOWN = (
    ast.Global,
    ast.Nonlocal,
    ast.Import,
    ast.ImportFrom,
    ast.Await,
    ast.AsyncFor,
    ast.AsyncWith,
)
CALLBACKS = ("key", "out")  # arguments: a function to call, or an object to change

Names = set[str]


def acts_alone(line: str, start: float) -> bool:
    """Return whether the code of the function that is defined in a line reaches nothing outside of its process."""
    judge = judge_at(line, start)
    return judge is not None and judge.acts_alone()


def is_same_each_time(line: str, start: float) -> bool:
    """Return whether a class acts alone, makes no random numbers, and only its `__init__` stores into `self`.

    An object of it that has done its work is then as good as a new one.
    """
    judge = judge_at(line, start)
    return judge is not None and judge.acts_alone() and judge.has_no_state()


def judge_at(line: str, start: float) -> "Judge | None":
    """Return the judge of the code that is defined in a line; None if parts of this code are elsewhere, or unknown."""
    file, number = split_line(line)
    tree = read_tree(file, start)
    code = None if tree is None else outermost_definition(tree, number)
    if tree is None or code is None or not has_known_decorators(code):
        return None
    if isinstance(code, ast.ClassDef) and (code.bases or code.keywords):
        return None  # of which the code is elsewhere
    module = names_of_module(tree)
    if "*" in module:
        return None  # any name may be one of another module
    modules = {name for name in modules_of(tree) if module[name] == 1}
    return Judge(code, modules, set(module))


def outermost_definition(tree: ast.Module, number: int) -> ast.AST | None:
    """Return the outermost function or class of a module around a line; None if there is none."""
    for node in tree.body:
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            continue
        first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
        last = node.end_lineno or node.lineno
        if first <= number <= last:
            return node
    return None


def decorators_of(code: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(code):
        yield from getattr(node, "decorator_list", [])


def has_known_decorators(code: ast.AST) -> bool:
    """Return whether nothing but Ray, Python and torch wraps the functions of some code."""
    for decorator in decorators_of(code):
        function = decorator.func if isinstance(decorator, ast.Call) else decorator
        if path_of(function) not in DECORATORS:
            return False
    return True


def names_of_module(tree: ast.Module) -> Counter[str]:
    """Count how often code outside of functions and classes may give a name a value; "*" is any name."""
    names: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for item in node.names:
                name = item.asname or root_of(item.name)
                names[name] += 1
    pending: list[ast.AST] = [tree]
    for node in pending:  # grows
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            names[node.name] += 1
            continue
        names.update(stored_name(node))
        pending += ast.iter_child_nodes(node)
    return names


def stored_name(node: ast.AST) -> Names:
    is_stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    if is_stored or isinstance(node, (ast.ExceptHandler, ast.MatchAs)):
        return {getattr(node, "id", None) or getattr(node, "name", None) or ""}
    return set()


def modules_of(tree: ast.Module) -> Names:
    """Return the names, such as "np", of the modules that are known to compute."""
    names: Names = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            names |= {item.asname or item.name for item in node.names if item.name in MODULES}
    return names


class Judge:
    """Say of each part of some code whether it computes."""

    def __init__(self, code: ast.AST, modules: Names, module: Names) -> None:
        self.code = code
        self.modules = modules
        self.methods = {node.name: node for node in functions_in_body(code)}
        self.unknown_names = module - modules - {getattr(code, "name", "")}  # of the module
        self.functions = functions_in(code)
        self.nested = nested_functions(code)
        self.not_run = unimportant_nodes(code)  # decorators and annotations

    def acts_alone(self) -> bool:
        """Return whether all functions of the code do nothing outside of their process."""
        if any(isinstance(node, UNKNOWN) for node in ast.walk(self.code)):
            return False
        if isinstance(self.code, ast.ClassDef) and not all(
            map(self.is_part_of_class, self.code.body)
        ):
            return False
        return all(map(self.is_pure, self.functions))

    def has_no_state(self) -> bool:
        """Return whether no function makes random numbers, and none but `__init__` stores into `self`."""
        for node in ast.walk(self.code):
            if isinstance(node, ast.Call) and is_random(node):
                return False
        for name, method in self.methods.items():
            if name != "__init__" and any(map(stores_into_self, ast.walk(method))):
                return False
        return True

    def is_pure(self, function: ast.AST) -> bool:
        """Return whether a function only computes, and uses no name of its module but those of known modules.

        It may change attributes of `self` and objects that it has made itself. Its own name is allowed, too. The
        functions inside of it are judged by themselves.
        """
        nodes = [node for node in nodes_of_function(function) if node not in self.not_run]
        local = names_of_arguments(nodes) | stored_names(nodes)
        made = made_names(nodes)
        for node in nodes:
            if isinstance(node, ast.Name) and node.id in self.unknown_names - local:
                return False
            if isinstance(node, ast.Call) and not self.computes(node, local, made):
                return False
            if not changes_only(node, made):
                return False
        return True

    def is_part_of_class(self, node: ast.stmt) -> bool:
        """Return whether a statement of a class only defines a method, or gives a constant a name."""
        if isinstance(node, (*FUNCTIONS, ast.Pass)):
            return True
        value = getattr(node, "value", None)
        is_value = isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign))
        return is_value and (value is None or isinstance(value, ast.Constant))

    def computes(self, call: ast.Call, local: Names, made: Names) -> bool:
        """Return whether a call does nothing but compute, as its name shows; False for a name that is not known.

        local: names that the function gives a value, or has as arguments. made: names of objects that it has made
        itself, which it may change. With "np" as a module, and a list `rows` that was made, these compute: `len(rows)`,
        `np.sin(x)`, `self.method(x)`, `rows.append(x)`, `array.mean()` and `batch.items()`. These don't:
        `queue.append(x)`, `self.store.append(x)`, `batch.copy(path)` and `max(rows, key=function)`.
        """
        if any(keyword.arg in CALLBACKS for keyword in call.keywords):
            return False
        path = path_of(call.func)
        name = last_name(call.func)
        owner = root_of(path)
        is_direct = path == f"{owner}.{name}"
        if isinstance(call.func, ast.Name):
            has_other_value = name in local and name not in self.nested
            is_known = name in BUILTINS or name in self.nested
            return is_known and not has_other_value
        if owner in self.modules and owner not in local:
            return is_of_module(path)
        if owner == "self" and is_direct:
            return name in self.methods
        if name in CHANGES:
            return owner in made and is_direct
        if name in READS:
            return not call.args and not call.keywords
        return name in METHODS


def functions_in(code: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return all functions of some code, and itself if it is one."""
    return [node for node in ast.walk(code) if isinstance(node, FUNCTIONS)]


def functions_in_body(code: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the methods of a class; [] for a function."""
    if not isinstance(code, ast.ClassDef):
        return []
    return [node for node in code.body if isinstance(node, FUNCTIONS)]


def nested_functions(code: ast.AST) -> Names:
    """Return the functions that code may call by their bare name. This never means a method of a class."""
    methods: set[ast.AST] = set()
    for node in ast.walk(code):
        methods.update(functions_in_body(node))
    names_of_methods = {getattr(method, "name", "") for method in methods}
    nested = {node.name for node in functions_in(code) if node not in methods}
    return nested - names_of_methods


def is_random(call: ast.Call) -> bool:
    """Return whether a call may make random numbers, by the name of its function, or of its module."""
    path = path_of(call.func) or last_name(call.func)
    return any(part in path for part in RANDOM)


def stores_into_self(node: ast.AST) -> bool:
    """Return whether a node gives an attribute of `self` a value, or deletes it."""
    if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load):
        return False
    return path_of(node.value) == "self"


def is_of_module(path: str) -> bool:
    """Return whether a function of a module, such as "np.random.normal", computes."""
    _, *inner, name = path.split(".")
    if name in CLOCKS:
        return False
    is_inside = all(name in SUBMODULES for name in inner)
    return is_inside and not any(part in path for part in OUTSIDE)


def unimportant_nodes(code: ast.AST) -> set[ast.AST]:
    """Return the nodes of decorators and of annotations, which do not run in a task."""
    parts = list(decorators_of(code))
    for node in ast.walk(code):
        parts += filter(None, [getattr(node, "annotation", None), getattr(node, "returns", None)])
    nodes: set[ast.AST] = set()
    for part in parts:
        nodes.update(ast.walk(part))
    return nodes


def nodes_of_function(function: ast.AST) -> list[ast.AST]:
    """Return the nodes of a function without the bodies of functions inside of it, whose names are their own."""
    nodes = list(ast.iter_child_nodes(function))
    for node in nodes:  # grows
        if isinstance(node, FUNCTIONS):
            nodes += [*node.decorator_list, *node.args.defaults]
            nodes += filter(None, node.args.kw_defaults)
        else:
            nodes += ast.iter_child_nodes(node)
    return nodes


def stored_names(nodes: list[ast.AST]) -> Names:
    """Return the names to which nodes give a value for the whole function, and not only inside of a comprehension."""
    of_comprehensions: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.comprehension):
            of_comprehensions.update(ast.walk(node.target))
    names: Names = set()
    for node in nodes:
        if node not in of_comprehensions:
            names |= stored_name(node)
    return names


def names_of_arguments(nodes: list[ast.AST]) -> Names:
    return {node.arg for node in nodes if isinstance(node, ast.arg)}


def made_names(nodes: list[ast.AST]) -> Names:
    """Return the names that have no value but new objects, of which nothing outside of the code knows.

    `rows` is one after `rows = []`. It is none if it is an argument as well, or gets any other value anywhere, as in
    `rows = queue`, or `for rows in batches`.
    """
    values: Counter[str] = Counter()
    new_values: Counter[str] = Counter()
    for node in nodes:
        values.update(stored_name(node))
        if isinstance(node, ast.Assign) and is_new(node.value):
            targets = [target.id for target in node.targets if isinstance(target, ast.Name)]
            new_values.update(targets)
    only_new = {name for name in new_values if new_values[name] == values[name]}
    return only_new - names_of_arguments(nodes)


def is_new(value: ast.expr) -> bool:
    """Return whether an expression makes an object, such as `[]` or `np.zeros(4)`."""
    is_made = isinstance(value, ast.Call) and last_name(value.func) in MAKERS
    return is_made or isinstance(value, NEW_OBJECTS)


def changes_only(node: ast.AST, made: Names) -> bool:
    """Return whether a node changes, at most, an attribute of `self` or a part of an object that the code has made."""
    if isinstance(node, ast.With):
        return all(isinstance(item.context_expr, ast.Call) for item in node.items)
    if not isinstance(node, (ast.Subscript, ast.Attribute)) or isinstance(node.ctx, ast.Load):
        return True
    owner = path_of(node.value)
    return owner == "self" if isinstance(node, ast.Attribute) else owner in made
