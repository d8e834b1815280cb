# SPDX-License-Identifier: Apache-2.0
"""Say which functions of a file call which others, as far as names show it."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from raymeter.profile.expressions import (
    FUNCTIONS,
    INNER_FUNCTIONS,
    is_submission,
    last_name,
    path_of,
    root_of,
    walk_outside,
)

SELF = "self"
# Methods of lists, dicts and queues: an object with such a method need not be one of the class that has it in the file.
OF_CONTAINERS = ("add", "append", "extend", "get", "insert", "items", "pop", "put", "update")
PROPERTY = "property"  # or cached_property


@dataclass(frozen=True, eq=False)
class Function:
    """A function or a method of a file; or its module, which has no class and is called by nobody."""

    node: ast.AST
    owner: str = ""  # name of the class

    @property
    def name(self) -> str:
        return getattr(self.node, "name", "")

    @property
    def is_property(self) -> bool:
        decorators = getattr(self.node, "decorator_list", [])
        return any(last_name(item).endswith(PROPERTY) for item in decorators)

    @property
    def body(self) -> list[ast.stmt]:
        return getattr(self.node, "body", [])

    @cached_property
    def local_names(self) -> set[str]:
        """Return the names that have a value of their own in each run of the function."""
        names = set()
        for node in walk_outside(ast.iter_child_nodes(self.node), INNER_FUNCTIONS):
            if isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
        return names - self.global_names

    @cached_property
    def global_names(self) -> set[str]:
        """Return the names of the module to which the function gives a value."""
        names: set[str] = set()
        for node in walk_outside(self.body, INNER_FUNCTIONS):
            if isinstance(node, ast.Global):
                names.update(node.names)
        return names

    def names_of(self, call: ast.Call) -> list[str]:
        """Return the names of the parameters to which a call gives its arguments, in this order; [] if unclear."""
        if not isinstance(self.node, ast.FunctionDef):
            return []
        if any(isinstance(value, ast.Starred) for value in call.args):
            return []
        arguments = self.node.args
        names = [argument.arg for argument in [*arguments.posonlyargs, *arguments.args]]
        if self.owner:
            names = names[1:]  # without the object itself
        found = names[: len(call.args)]
        for keyword in call.keywords:
            if keyword.arg is not None:
                found.append(keyword.arg)
        is_complete = len(found) == len(call.args) + len(call.keywords)
        return found if is_complete else []

    def has_line(self, number: int) -> bool:
        """Return whether a statement of the function, and not of another one inside of it, has a line."""
        for node in walk_outside(self.body, INNER_FUNCTIONS):
            first = getattr(node, "lineno", 0)
            if isinstance(node, ast.expr) and first <= number <= (node.end_lineno or first):
                return True
        return False


class Code:
    """The functions of a file."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.module = Function(tree)
        self.functions = [self.module, *functions_of(tree)]
        self.by_name: dict[str, list[Function]] = defaultdict(list)
        for function in self.functions:
            self.by_name[function.name].append(function)
        self.properties = {function.name for function in self.functions if function.is_property}
        self.bases = bases_of_classes(tree)
        self.imported = imported_names(tree)
        self.callees = {function: self.find_callees(function) for function in self.functions}

    def called_by(self, call: ast.Call, caller: Function) -> Function | None:
        """Return the function of the file that a call runs in this process; None if that is not clear."""
        if is_submission(call):
            return None
        name = last_name(call.func)
        named = self.by_name.get(name, [])
        if isinstance(call.func, ast.Name):
            found = [function for function in named if not function.owner]
        elif isinstance(call.func, ast.Attribute) and is_self(call.func.value):
            found = [function for function in named if self.may_have(caller.owner, function)]
        else:
            path = path_of(call.func)
            is_other = name in OF_CONTAINERS or root_of(path) in self.imported
            found = [] if is_other else [function for function in named if function.owner]
        return found[0] if len(found) == 1 and is_plain(found[0]) else None

    def may_have(self, owner: str, function: Function) -> bool:
        """Return whether `self` in a method of a class may be an object with this function as a method.

        That is a method of the class itself, or of a subclass: an object of that one runs its own method in place of
        the one that it inherits.
        """
        ancestors = [function.owner]
        for name in ancestors:  # grows
            bases = self.bases.get(name, set())
            ancestors += bases.difference(ancestors)
        return owner != "" and owner in ancestors

    def find_callees(self, caller: Function) -> set[Function]:
        """Return the functions that another one calls by itself."""
        found = set()
        for node in walk_outside(caller.body, INNER_FUNCTIONS):
            callee = self.called_by(node, caller) if isinstance(node, ast.Call) else None
            if callee is not None:
                found.add(callee)
        return found

    def reaching(self, number: int) -> set[Function]:
        """Return the functions that have a line, and those that call them, or call others which do."""
        found = {function for function in self.functions if function.has_line(number)}
        while True:
            callers = set()
            for function in self.functions:
                if not found.isdisjoint(self.callees[function]):
                    callers.add(function)
            if callers <= found:
                return found
            found |= callers

    def common_callers(self, first: int, last: int) -> list[Function]:
        """Return the functions that reach two lines, without those that only call one which does."""
        both = self.reaching(first) & self.reaching(last)
        callers = []
        for function in both:
            others = self.callees[function] - {function}
            if both.isdisjoint(others):
                callers.append(function)
        return callers


def functions_of(tree: ast.Module) -> Iterator[Function]:
    """Yield the functions of a module and the methods of its classes, but none that stands in another function."""
    for node in tree.body:
        if isinstance(node, FUNCTIONS):
            yield Function(node)
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, FUNCTIONS):
                    yield Function(inner, node.name)


def bases_of_classes(tree: ast.Module) -> dict[str, set[str]]:
    """Return the last names of the bases of each class of a module."""
    bases: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names = map(last_name, node.bases)
            bases[node.name] = set(names)
    return bases


def imported_names(tree: ast.Module) -> set[str]:
    """Return the names that a file imports. What they have is in other files, also if it is called as a method here."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for item in node.names:
                name = item.asname or root_of(item.name)
                names.add(name)
    return names


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == SELF


def is_plain(function: Function) -> bool:
    """Return whether calling a function runs its body, and nothing else: it is no generator, and has no decorator."""
    node = function.node
    if not isinstance(node, ast.FunctionDef) or node.decorator_list:
        return False
    inner = walk_outside(function.body, INNER_FUNCTIONS)
    return not any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in inner)
