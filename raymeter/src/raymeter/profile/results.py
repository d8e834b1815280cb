# SPDX-License-Identifier: Apache-2.0
"""Say whether a task needs the result that another line has got before it, also across functions of one file.

The function that calls both is followed in the order of its statements, with the functions of the file that it calls.
What is computed from a result is a result, too: names, attributes of any object, and what functions return. If a
submission uses one, or runs only because of one, it needs it. If something is called that is not known, nothing is
shown.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from raymeter.profile.effects import BUILTINS, METHODS, READS, is_of_module, modules_of
from raymeter.profile.expressions import (
    COMPREHENSIONS,
    FUNCTIONS,
    GETTERS,
    ONLY_READ,
    RAY,
    arguments_of,
    is_get,
    is_submission,
    last_name,
    path_of,
    root_of,
    spans,
    values_of,
)
from raymeter.profile.functions import Code, Function, is_self
from raymeter.profile.independence import know_each_other
from raymeter.profile.source_code import read_tree, split_line

MAX_CALLS = 5  # of functions inside of each other that are followed
MAX_ENTERED = (
    1_000  # functions that are followed in all: ten calls in each of five levels are 100,000
)
OF_RAY = ("put", *GETTERS)
OPTIONS = "options"  # of a task or a method
CALLBACKS = ("key", "out")  # arguments: a function to call, or an object to change
UNKNOWN = "?"  # stands for the name of a parameter
IGNORED = (
    ast.Pass,
    ast.Global,
    ast.Break,
    ast.Continue,
    ast.Import,
    ast.ImportFrom,
    ast.ClassDef,
    *FUNCTIONS,
)
LEAVING = (ast.Return, ast.Break, ast.Continue, ast.Raise)

Names = set[str]


class Need(Enum):
    """Whether a task needs the result of another one, as far as the code shows it."""

    NO = "no"
    UNKNOWN = "unknown"
    YES = "yes"


def find_need(get_line: str, later_line: str, start: float) -> Need:
    """Return whether what a line submits needs what another line has got before it.

    UNKNOWN for lines of two files, of a file that was changed after `start`, and if what runs between them is not
    known, or may be an order: a result that nobody wants, or actors that know each other.
    """
    file, first = split_line(get_line)
    other_file, last = split_line(later_line)
    tree = read_tree(file, start)
    if tree is None or file != other_file:
        return Need.UNKNOWN
    code = Code(tree)
    needs = set()
    try:
        for caller in code.common_callers(first, last):
            follower = Follower(code, first, last)
            needs.add(follower.judge(caller))
    except RecursionError:
        return Need.UNKNOWN
    if Need.YES in needs:
        return Need.YES
    if needs != {Need.NO} or know_each_other(tree, calls_at(tree, first, last)):
        return Need.UNKNOWN
    return Need.NO


def calls_at(tree: ast.AST, *lines: int) -> list[ast.Call]:
    """Return the calls in some lines."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and any(spans(node, line) for line in lines):
            found.append(node)
    return found


@dataclass
class Frame:
    """One run of a function: which of its names hold a result."""

    function: Function
    results: Names = field(default_factory=set)
    equal: dict[str, Names] = field(default_factory=dict)  # names for one object
    returns_result: bool = False
    is_chosen: bool = False  # it depends on a result whether the next statement runs
    depth: int = 0


class Follower:
    """Follow what a line gets through one run of a function."""

    def __init__(self, code: Code, first: int, last: int) -> None:
        self.code = code
        self.modules = modules_of(code.tree)
        self.first = first
        self.last = last
        self.attributes: Names = set()  # that hold a result, of any object
        self.of_module: Names = set()  # names of the module that hold a result
        self.entered = 0  # functions
        self.has_result = False
        self.is_unclear = False
        self.needs: set[Need] = set()  # of each submission in the last line

    def judge(self, caller: Function) -> Need:
        """Return whether the last line needs the first one, in one run of the function that calls both.

        If it comes first in the text, it can only be later in the next pass of a loop.
        """
        frame = Frame(caller)
        self.run(caller.body, frame)
        if not self.needs:
            self.run(caller.body, frame)
        if Need.YES in self.needs:
            return Need.YES
        return Need.NO if self.needs == {Need.NO} else Need.UNKNOWN

    def mark_unclear(self) -> None:
        """Something that is not known happens. It does not matter before the result is there."""
        self.is_unclear = self.is_unclear or self.has_result

    def run(self, statements: Iterable[ast.stmt], frame: Frame) -> None:
        """Follow the results through statements, each of which is taken to run once."""
        for statement in statements:
            self.run_statement(statement, frame)

    def run_statement(self, statement: ast.stmt, frame: Frame) -> None:
        """Follow the results through a statement."""
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            self.assign(statement, frame)
        elif isinstance(statement, ast.Expr):
            had_result = self.has_result
            is_result = self.is_result(statement.value, frame)
            if is_result and not had_result:
                self.mark_unclear()  # nobody wants it: one waits for what the task does elsewhere
        elif isinstance(statement, ast.Return):
            is_result = statement.value is not None and self.is_result(statement.value, frame)
            frame.returns_result = frame.returns_result or frame.is_chosen or is_result
        elif isinstance(statement, (ast.If, ast.While)):
            self.run_condition(statement, frame)
        elif isinstance(statement, ast.For):
            self.run_loop(statement, frame)
        elif isinstance(statement, ast.With):
            self.run_with(statement, frame)
        elif not isinstance(statement, IGNORED):
            self.run_other(statement, frame)

    def assign(self, statement: ast.Assign | ast.AnnAssign | ast.AugAssign, frame: Frame) -> None:
        """Give the targets of an assignment their value. `x += value` only adds to what `x` holds."""
        value = statement.value
        if value is None:
            return
        is_result = self.is_result(value, frame)
        if not isinstance(statement, ast.Assign):
            keeps = isinstance(statement, ast.AugAssign)
            self.bind(statement.target, is_result, frame, keeps)
            return
        for target in statement.targets:
            self.bind(target, is_result, frame)
            if isinstance(target, ast.Name) and isinstance(value, ast.Name):
                self.link(target.id, value.id, frame)

    def link(self, name: str, other: str, frame: Frame) -> None:
        """Let two names be those of one object."""
        names = {name, other} | frame.equal.get(other, set())
        for known in names:
            frame.equal[known] = names
        if other in frame.results:
            frame.results |= names

    def bind(self, target: ast.AST, is_result: bool, frame: Frame, keeps: bool = False) -> None:
        """Give a target a value, which is a result or not."""
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self.bind(part, is_result, frame, keeps)
            return
        if isinstance(target, ast.Subscript):
            self.mark_unclear()  # the object may have other names
            is_result = self.is_result(target.slice, frame) or is_result
        if is_result or frame.is_chosen:
            self.let_hold(target, frame)
        elif isinstance(target, ast.Name) and not keeps:
            frame.results.discard(target.id)
            if frame.function is self.code.module:
                self.of_module.discard(target.id)
            frame.equal.pop(target.id, None)

    def let_hold(self, node: ast.AST, frame: Frame) -> None:
        """An object holds a result from now on, or a part of it does."""
        if isinstance(node, ast.Name):
            self.let_name_hold(node.id, frame)
        elif isinstance(node, ast.Attribute):
            self.attributes.add(node.attr)
        elif isinstance(node, (ast.Subscript, ast.Starred)):
            self.let_hold(node.value, frame)
        elif isinstance(node, (ast.Tuple, ast.List)):
            for part in node.elts:
                self.let_hold(part, frame)

    def let_name_hold(self, name: str, frame: Frame) -> None:
        """A name holds a result, and all others for the same object."""
        names = frame.equal.get(name, {name})
        frame.results |= names
        is_of_module = frame.function is self.code.module
        if is_of_module or name in frame.function.global_names:
            self.of_module |= names

    def run_condition(self, statement: ast.If | ast.While, frame: Frame) -> None:
        """Follow both branches, which run because of a result if the condition is one."""
        if isinstance(statement, ast.While):
            self.mark_unclear()
        was_chosen = frame.is_chosen
        branches = [*statement.body, *statement.orelse]
        is_result = self.is_result(statement.test, frame)
        frame.is_chosen = was_chosen or is_result
        self.run(branches, frame)
        may_leave = any(map(leaves, branches))
        if not may_leave:
            frame.is_chosen = was_chosen

    def run_loop(self, statement: ast.For, frame: Frame) -> None:
        """Follow one pass of a loop.

        It runs because of a result if that is what the loop runs over: there may be none. What follows does, too, if
        such a pass may end the function.
        """
        was_chosen = frame.is_chosen
        is_result = self.is_result(statement.iter, frame)
        self.bind(statement.target, is_result, frame)
        frame.is_chosen = was_chosen or is_result
        self.run(statement.body, frame)
        self.run(statement.orelse, frame)
        may_return = any(isinstance(node, ast.Return) for node in ast.walk(statement))
        if not may_return:
            frame.is_chosen = was_chosen

    def run_with(self, statement: ast.With, frame: Frame) -> None:
        """Follow what a statement enters, and then its body. What is done at its end is not looked at.

        If it begins after the result is there, entering it is a call that is not known.
        """
        for item in statement.items:
            is_result = self.is_result(item.context_expr, frame)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, is_result, frame)
        self.run(statement.body, frame)

    def run_other(self, statement: ast.stmt, frame: Frame) -> None:
        """Follow the parts of a statement of which it is not known which of them run."""
        self.mark_unclear()
        pending = list(ast.iter_child_nodes(statement))
        for node in pending:  # grows
            if isinstance(node, ast.stmt):
                self.run_statement(node, frame)
            elif isinstance(node, ast.expr):
                self.is_result(node, frame)
            else:
                pending += ast.iter_child_nodes(node)

    def is_result(self, node: ast.AST, frame: Frame) -> bool:
        """Follow an expression in the order in which it is computed, and return whether its value holds a result."""
        if isinstance(node, ast.Call):
            return self.call(node, frame)
        if isinstance(node, ast.Name):
            return self.holds_result(node.id, frame)
        if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom)):
            self.mark_unclear()
        if isinstance(node, COMPREHENSIONS):
            return self.comprehension(node, frame)
        if isinstance(node, ast.IfExp):
            return self.choice(node, frame)
        parts = [self.is_result(child, frame) for child in ast.iter_child_nodes(node)]
        if isinstance(node, ast.NamedExpr):
            self.bind(node.target, any(parts), frame)
        if isinstance(node, ast.Attribute):
            if node.attr in self.code.properties:
                self.mark_unclear()
            return any(parts) or node.attr in self.attributes
        return any(parts)

    def holds_result(self, name: str, frame: Frame) -> bool:
        """Return whether a name holds a result: one of the function itself, or one of the module that it sees."""
        if name in frame.results:
            return True
        is_local = name in frame.function.local_names
        return not is_local and name in self.of_module

    def choice(self, node: ast.IfExp, frame: Frame) -> bool:
        """Follow both values of `a if condition else b`.

        Both count as a result if the condition is one, and what is called for them depends on it.
        """
        was_chosen = frame.is_chosen
        of_test = self.is_result(node.test, frame)
        frame.is_chosen = was_chosen or of_test
        of_body = self.is_result(node.body, frame)
        of_other = self.is_result(node.orelse, frame)
        frame.is_chosen = was_chosen
        return of_test or of_body or of_other

    def comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, frame: Frame
    ) -> bool:
        """Follow one pass of a comprehension.

        Its value counts as a result if it runs over one, if one is a condition, or if its items are made of one.
        """
        found = False
        for generator in node.generators:
            is_result = self.is_result(generator.iter, frame)
            self.bind(generator.target, is_result, frame)
            found = found or is_result
            for condition in generator.ifs:
                found = self.is_result(condition, frame) or found
        for value in values_of(node):
            found = self.is_result(value, frame) or found
        return found

    def call(self, call: ast.Call, frame: Frame) -> bool:
        """Follow a call, and return whether it returns a result, or what holds one."""
        receiver = receiver_of(call)
        of_receiver = receiver is not None and self.is_result(receiver, frame)
        values = arguments_of(call)
        of_values = [self.is_result(value, frame) for value in values]
        uses_result = of_receiver or any(of_values)
        if is_submission(call):
            return self.submit(call, uses_result, frame)
        if is_get(call, self.first) and spans(call, self.first):
            self.has_result = True
            return True
        callee = self.code.called_by(call, frame.function)
        may_enter = frame.depth < MAX_CALLS and self.entered < MAX_ENTERED
        if callee is not None and may_enter:
            return self.enter(call, callee, of_values, frame)
        if not self.only_computes(call, frame):
            self.mark_unclear()
            self.hand_over(receiver, values, of_values, frame)
        return uses_result

    def hand_over(
        self,
        receiver: ast.expr | None,
        values: list[ast.expr],
        of_values: list[bool],
        frame: Frame,
    ) -> None:
        """Let objects hold a result that an unknown function may put there.

        The object of a method may keep an argument that is one, but for `self`, of which nothing would be known then.
        If an argument is one, or the object holds one, the function may put it into its other arguments, too.
        """
        gets_result = any(of_values)
        has_object = receiver is not None and not is_self(receiver)
        if receiver is None or not has_object:
            of_object = False
        else:
            of_object = self.is_result(receiver, frame)
            if gets_result:
                self.let_hold(receiver, frame)
        if gets_result or of_object:
            for value in values:
                self.let_hold(value, frame)

    def submit(self, call: ast.Call, uses_result: bool, frame: Frame) -> bool:
        """Judge a submission in the last line. An actor that gets a result may keep it."""
        if spans(call, self.last) and self.has_result:
            self.needs.add(self.need_now(uses_result or frame.is_chosen))
        method = receiver_of(call)
        if uses_result and isinstance(method, ast.Attribute):
            self.let_hold(method.value, frame)
        return uses_result

    def need_now(self, uses_result: bool) -> Need:
        """Return what is known of a task that is submitted now, with a result or without one."""
        if uses_result:
            return Need.YES
        if self.is_unclear:
            return Need.UNKNOWN
        return Need.NO

    def enter(self, call: ast.Call, callee: Function, of_values: list[bool], frame: Frame) -> bool:
        """Follow a function of the file. What it does to its arguments counts for the one who calls it."""
        self.entered += 1
        depth = frame.depth + 1
        inner = Frame(callee, is_chosen=frame.is_chosen, depth=depth)
        values = arguments_of(call)
        names = callee.names_of(call)
        if not names and values:
            self.mark_unclear()
            names = [UNKNOWN] * len(values)
            uses_result = any(of_values)
            if uses_result:
                inner.results |= callee.local_names
        for name, is_result in zip(names, of_values, strict=True):
            if is_result:
                inner.results.add(name)
        self.run(callee.body, inner)
        for name, value in zip(names, values, strict=True):
            if name in inner.results:
                self.let_hold(value, frame)
        return inner.returns_result

    def only_computes(self, call: ast.Call, frame: Frame) -> bool:
        """Return whether a call does nothing that matters to others, as its name shows."""
        name = last_name(call.func)
        path = path_of(call.func)
        root = root_of(path)
        named = {keyword.arg for keyword in call.keywords}
        receiver = receiver_of(call)
        # A method that the class has from another file may do anything.
        is_own_method = receiver is not None and is_self(receiver)
        if is_own_method or not named.isdisjoint(CALLBACKS):
            return False
        if isinstance(call.func, ast.Name):
            is_builtin = name in BUILTINS or name in ONLY_READ
            return is_builtin and name not in self.code.by_name
        if root == RAY:
            return path.removeprefix(f"{RAY}.") in OF_RAY
        if root in self.modules:
            return is_of_module(path)
        if name in self.code.by_name:
            return False
        return name in METHODS or name in READS or name == OPTIONS


def receiver_of(call: ast.Call) -> ast.expr | None:
    """Return the object of which a method is called, or the module; None for a bare name."""
    if isinstance(call.func, ast.Attribute):
        return call.func.value
    return None


def leaves(statement: ast.stmt) -> bool:
    """Return whether a statement may end the function or the loop."""
    return any(isinstance(node, LEAVING) for node in ast.walk(statement))
