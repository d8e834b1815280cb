# SPDX-License-Identifier: Apache-2.0
"""Say whether a pass of a loop uses what an earlier pass got with ray.get.

This follows names through the statements of the loop: what is computed from a result is a result, too, and an object is
one if a method of it gets a result. If a submission uses such a name, or such a name decides whether the loop goes on,
then the passes need each other. What happens inside of functions that are called is not looked at. So nothing is said
if an object that a submission uses is handed to a function, or if it is not clear what the submission uses.
"""

import ast
from collections.abc import Iterable, Iterator

from raymeter.profile.expressions import (
    COMPREHENSIONS,
    ONLY_READ,
    SNAPSHOTS,
    arguments_of,
    is_get,
    is_stored,
    is_submission,
    last_name,
    live_paths,
    overlap,
    path_of,
    paths_of,
    repeated_parts,
    root_of,
    spans,
    targets_of,
    values_of,
)
from raymeter.profile.touched import touched_in

MAX_PASSES = 10
UNCLEAR = (
    "?"  # stands for something that a call returns, and that may be another thing in each pass
)
SAFE_MODULES = (
    "ray",
    "np",
    "numpy",
    "torch",
    "math",
    "random",
    "time",
)  # they know nothing of results
FOLLOWED = (
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.If,
    ast.While,
    ast.For,
    ast.AsyncFor,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.Expr,
    ast.Return,
    ast.Raise,
    ast.Assert,
    ast.Pass,
    ast.Break,
    ast.Continue,
)

Names = set[str]  # such as "state" and "self.state"


def needs_last_pass(loop: ast.AST, line: int, modules: Names) -> bool | None:
    """Return whether a pass of a loop needs a result that an earlier one got in a line; None if that can't be said.

    `modules` are names that hold no values.
    """
    if has_chain(loop, line):
        return True
    if isinstance(loop, ast.GeneratorExp) or has_yield(loop):
        return None  # the one who reads it may stop
    first = Pass(line, modules, sees_gets=True)
    first.run(loop)
    if first.decides_end or is_used_later(loop, first):
        return True
    used = first.used
    if UNCLEAR in used or not can_be_followed(repeated_parts(loop)):
        return None
    for path in touched_in(loop, line):
        if any(overlap(path, other) for other in used):
            return None
    return False


def is_used_later(loop: ast.AST, first: "Pass") -> bool:
    """Return whether a later pass uses a result of the first one."""
    carried = first.results
    for _ in range(MAX_PASSES):
        later = Pass(first.line, first.modules, sees_gets=False)
        later.results = set(carried)
        later.run(loop)
        if later.is_used or later.decides_end:
            return True
        if later.results <= carried:
            break
        carried |= later.results
    return False


def has_yield(loop: ast.AST) -> bool:
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(loop))


def can_be_followed(parts: Iterable[ast.AST]) -> bool:
    """Return whether names are only changed by statements that a Pass knows."""
    for part in parts:
        for node in ast.walk(part):
            if isinstance(node, ast.NamedExpr):
                return False
            if isinstance(node, ast.stmt) and not isinstance(node, FOLLOWED):
                return False
    return True


class Pass:
    """One pass of a loop: which names hold results, and what they are used for."""

    def __init__(self, line: int, modules: Names, sees_gets: bool) -> None:
        self.line = line
        self.modules = modules | set(SAFE_MODULES)
        self.sees_gets = sees_gets  # what this pass gets is a result, too
        self.results: Names = set()
        self.origins: dict[
            str, Names
        ] = {}  # of a name that gets a new value: the objects it is made from
        self.used: Names = (
            set()
        )  # objects from before this pass that submissions, or the end of the loop, use
        self.is_used = False  # by a submission
        self.decides_end = False
        self.depth = 0  # of conditions and loops inside of it

    def run(self, loop: ast.AST) -> None:
        """Follow the results through one pass of a loop or a comprehension. Any other node is left alone."""
        if isinstance(loop, ast.While):
            self.look_at(loop.test)
            self.decides_end = self.is_result(loop.test)
            self.used |= self.sources(loop.test)
            self.run_all(loop.body)
        elif isinstance(loop, (ast.For, ast.AsyncFor)):
            self.begin(loop.target, loop.iter)
            self.run_all(loop.body)
        elif isinstance(loop, COMPREHENSIONS):
            self.run_comprehension(loop)

    def begin(self, target: ast.expr, items: ast.expr) -> None:
        """Give the targets of the loop their values. They hold a result if the loop runs over what holds one."""
        live = set(live_paths(items)) - self.modules
        names = set(targets_of(target))
        self.results -= names
        for path in live:
            if self.holds_result(path):
                self.results |= names
        for name in names:
            self.origins[name] = live

    def run_comprehension(
        self, loop: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        """Follow the results through one pass of the first `for`: the other ones, all conditions, and the values."""
        first, *others = loop.generators
        self.begin(first.target, first.iter)
        for inner in others:
            self.look_at(inner.iter)
            self.bind([inner.target], inner.iter)
        for generator in loop.generators:
            for condition in generator.ifs:
                self.look_at(condition)
        for node in values_of(loop):
            self.look_at(node)

    def run_all(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self.run_statement(statement)

    def run_statement(self, statement: ast.stmt) -> None:
        """Follow the results through a statement."""
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            self.assign(statement)
        elif isinstance(statement, (ast.If, ast.While)):
            self.run_condition(statement)
        elif isinstance(statement, (ast.For, ast.AsyncFor)):
            self.look_at(statement.iter)
            self.bind([statement.target], statement.iter)
            self.run_inside([*statement.body, *statement.orelse])
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            self.run_with(statement)
        elif isinstance(statement, ast.Try):
            self.judge_end(statement)
            self.run_inside(statement.body)
            for handler in statement.handlers:
                self.run_inside(handler.body)
            self.run_inside([*statement.orelse, *statement.finalbody])
        else:
            self.look_at(statement)

    def run_inside(self, statements: Iterable[ast.stmt]) -> None:
        """Follow statements that may not run, or more than once."""
        self.depth += 1
        self.run_all(statements)
        self.depth -= 1

    def run_with(self, statement: ast.With | ast.AsyncWith) -> None:
        for item in statement.items:
            self.look_at(item.context_expr)
            if item.optional_vars is not None:
                self.bind([item.optional_vars], item.context_expr)
        self.judge_end(statement)
        self.run_all(statement.body)

    def run_condition(self, statement: ast.If | ast.While) -> None:
        """What is assigned because of a result is one. A result can also end the loop."""
        self.look_at(statement.test)
        branches = [*statement.body, *statement.orelse]
        if self.is_result(statement.test):
            for branch in branches:
                self.follow_choice(branch)
        if any(ends_loop(branch) for branch in branches):
            self.used |= self.sources(statement.test)
        self.run_inside(branches)

    def judge_end(self, statement: ast.stmt) -> None:
        """A loop ends because of a result if it does when no error was raised, as one that tries a task again."""
        if ends_loop(statement) and any(map(self.is_wait, ast.walk(statement))):
            self.decides_end = True

    def follow_choice(self, branch: ast.stmt) -> None:
        """Follow a statement that runs because of a result."""
        if ends_loop(branch):
            self.decides_end = True
        assigned = [node for node in ast.walk(branch) if is_stored(node)]
        self.set_names(assigned, True)

    def assign(self, statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        """Give the targets of an assignment their value. `x += value` only adds: what x held before, it still holds."""
        value = statement.value
        if value is None:
            return
        self.look_at(value)
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if not isinstance(statement, ast.AugAssign):
            self.bind(targets, value)
        elif self.is_result(value):
            self.set_names(targets, True)

    def bind(self, targets: Iterable[ast.AST], value: ast.expr) -> None:
        """Give names a value, and remember what it is made from."""
        targets = list(targets)
        sources = self.sources(value)
        for name in names_of(targets):
            before = {name} if self.depth else set()  # it may keep its value
            self.origins[name] = sources | self.origins.get(name, before)
        self.set_names(targets, self.is_result(value))

    def set_names(self, targets: Iterable[ast.AST], is_result: bool) -> None:
        """Give names a value, which is a result or not."""
        for target in targets:
            if is_result:
                self.results |= set(targets_of(target))
            elif isinstance(target, ast.Name) and not self.depth:
                self.results.discard(target.id)

    def look_at(self, node: ast.AST) -> None:
        """Look at the calls in an expression: a method that gets a result may keep it, and a submission uses it."""
        self.look_at_comprehensions(node)
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            values = arguments_of(call)
            if is_submission(call):
                used = [call.func, *values]
                self.is_used = self.is_used or any(self.is_known(value) for value in used)
                for value in values:
                    self.used |= self.sources(value)
            elif any(self.is_result(value) for value in values):
                self.keep(call, values)

    def look_at_comprehensions(self, node: ast.AST) -> None:
        """The names of a comprehension hold results if it runs over some."""
        self.depth += 1
        for inner in ast.walk(node):
            if isinstance(inner, ast.comprehension):
                self.bind([inner.target], inner.iter)
        self.depth -= 1

    def keep(self, call: ast.Call, values: Iterable[ast.expr]) -> None:
        """A function may change its arguments, and a method its object, because of a result."""
        if self.is_wait(call) or last_name(call.func) in ONLY_READ:
            return
        changed = list(values)
        if isinstance(call.func, ast.Attribute):
            changed.append(call.func.value)
        for value in changed:
            if not isinstance(value, (ast.Tuple, ast.List)):
                self.results |= set(targets_of(value)) - self.modules

    def sources(self, node: ast.AST) -> Names:
        """Return the objects from before this pass of which an expression is made, and UNCLEAR if there may be more."""
        if isinstance(node, ast.Call):
            return self.sources_of_call(node)
        path = path_of(node)
        if path:
            return self.origins.get(root_of(path), {path} - self.modules)
        found: Names = set()
        for child in ast.iter_child_nodes(node):
            found |= self.sources(child)
        return found

    def sources_of_call(self, call: ast.Call) -> Names:
        """Return the objects from before this pass of which a call's value is made, and UNCLEAR if there may be more.

        For a wait, a function of ONLY_READ or SNAPSHOTS, and one of SAFE_MODULES, there are no more: such a call
        returns nothing but what its arguments have. For any other call, there may be more unless it gets a value of
        this pass. What a method gets is its object alone, and what a function gets is its arguments.
        """
        found: Names = set()
        values = arguments_of(call)
        for value in values:
            found |= self.sources(value)
        name = last_name(call.func)
        if self.is_wait(call) or name in ONLY_READ or name in SNAPSHOTS:
            return found
        inputs = list(values)
        if isinstance(call.func, ast.Attribute):
            receiver = call.func.value
            root = root_of(path_of(receiver))
            if root in SAFE_MODULES:
                return found
            if root not in self.modules:
                inputs = [receiver]
                found |= self.sources(receiver)
        if not any(self.is_new(value) for value in inputs):
            found.add(UNCLEAR)
        return found

    def is_new(self, node: ast.AST) -> bool:
        """Return whether an expression contains a value that was made in this pass."""
        return any(root_of(path) in self.origins for path in paths_of(node))

    def is_result(self, node: ast.AST) -> bool:
        """Return whether an expression contains a result."""
        if self.is_known(node):
            return True
        if not self.sees_gets:
            return False
        return any(map(self.is_wait, ast.walk(node)))

    def is_known(self, node: ast.AST) -> bool:
        """Return whether an expression contains a name that holds a result, or a part of one."""
        return any(self.holds_result(path) for path in paths_of(node))

    def holds_result(self, path: str) -> bool:
        return any(overlap(path, known) for known in self.results)

    def is_wait(self, node: ast.AST) -> bool:
        """Return whether an expression is a result, or a reference to one."""
        return is_get(node, self.line) or is_submission(node)


def names_of(targets: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names without dots that get a new value."""
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and is_stored(node):
                yield node.id


def ends_loop(statement: ast.stmt) -> bool:
    return any(isinstance(node, (ast.Break, ast.Return)) for node in ast.walk(statement))


def has_chain(loop: ast.AST, line: int) -> bool:
    """Return whether a submission in a line has the result of another one as an argument."""
    for call in ast.walk(loop):
        if not isinstance(call, ast.Call) or not is_submission(call):
            continue
        if spans(call, line) and any(is_get(inner, line) for inner in ast.walk(call)):
            return True
    return False
