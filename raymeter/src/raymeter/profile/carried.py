"""Say whether a pass of a loop uses what an earlier pass got with ray.get.

This follows names through the statements of the loop: what is computed from a result is a result, too, and an object is
one if a method of it gets a result. If a submission uses such a name, or such a name decides whether the loop goes on,
then the passes need each other. What happens inside of functions that are called is not looked at.
"""

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
)
MAX_PASSES = 10

Names = set[str]  # such as "state" and "self.state"


def needs_last_pass(loop: ast.AST, line: int, modules: Names) -> bool | None:
    """Return whether a pass of a loop needs a result that an earlier one got in a line; None if that can't be said.

    `modules` are names that hold no values.
    """
    if has_chain(loop, line):
        return True
    if not isinstance(loop, (ast.For, ast.AsyncFor, ast.While)):
        has_assignment = any(isinstance(node, ast.NamedExpr) for node in ast.walk(loop))
        return None if has_assignment else False
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(loop)):
        return None
    first = Pass(line, modules, sees_gets=True)
    first.run(loop)
    if first.decides_end:
        return True
    carried = first.results
    for _ in range(MAX_PASSES):
        later = Pass(line, modules, sees_gets=False)
        later.results = set(carried)
        later.run(loop)
        if later.is_used or later.decides_end:
            return True
        if later.results <= carried:
            break
        carried |= later.results
    return False


class Pass:
    """One pass of a loop: which names hold results, and what they are used for."""

    def __init__(self, line: int, modules: Names, sees_gets: bool) -> None:
        self.line = line
        self.modules = modules
        self.sees_gets = sees_gets  # what this pass gets is a result, too
        self.results: Names = set()
        self.is_used = False  # by a submission
        self.decides_end = False
        self.depth = 0  # of conditions and loops inside of it

    def run(self, loop: ast.For | ast.AsyncFor | ast.While) -> None:
        if isinstance(loop, ast.While):
            self.look_at(loop.test)
            self.decides_end = self.is_result(loop.test)
        else:
            self.results -= set(targets_of(loop.target))
        self.run_all(loop.body)

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
            self.set_names([statement.target], self.is_result(statement.iter))
            self.run_inside([*statement.body, *statement.orelse])
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            self.run_with(statement)
        elif isinstance(statement, ast.Try):
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
                self.set_names([item.optional_vars], self.is_result(item.context_expr))
        self.run_all(statement.body)

    def run_condition(self, statement: ast.If | ast.While) -> None:
        """What is assigned because of a result is one. A result can also end the loop."""
        self.look_at(statement.test)
        branches = [*statement.body, *statement.orelse]
        if self.is_result(statement.test):
            for branch in branches:
                self.follow_choice(branch)
        self.run_inside(branches)

    def follow_choice(self, branch: ast.stmt) -> None:
        """Follow a statement that runs because of a result."""
        inner = list(ast.walk(branch))
        if any(isinstance(node, (ast.Break, ast.Return)) for node in inner):
            self.decides_end = True
        assigned = [node for node in inner if is_stored(node)]
        self.set_names(assigned, True)

    def assign(self, statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        value = statement.value
        if value is None:
            return
        self.look_at(value)
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        is_result = self.is_result(value)
        if isinstance(statement, ast.AugAssign) and not is_result:
            return
        self.set_names(targets, is_result)

    def set_names(self, targets: Iterable[ast.AST], is_result: bool) -> None:
        """Give names a value, which is a result or not."""
        for target in targets:
            if is_result:
                self.results |= set(targets_of(target))
            elif isinstance(target, ast.Name) and not self.depth:
                self.results.discard(target.id)

    def look_at(self, node: ast.AST) -> None:
        """Look at the calls in an expression: a method that gets a result may keep it, and a submission uses it."""
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            named = [keyword.value for keyword in call.keywords]
            values = [*call.args, *named]
            if is_submission(call):
                used = [call.func, *values]
                self.is_used = self.is_used or any(self.is_known(value) for value in used)
            elif any(self.is_result(value) for value in values):
                self.keep(call, values)

    def keep(self, call: ast.Call, values: Iterable[ast.expr]) -> None:
        """A function may change its arguments, and a method its object, because of a result."""
        if self.is_get(call) or last_name(call.func) in ONLY_READ:
            return
        if isinstance(call.func, ast.Attribute):
            receivers = set(targets_of(call.func.value))
            self.results |= receivers - self.modules
            return
        for value in values:
            if isinstance(value, (ast.Name, ast.Attribute)):
                self.results |= set(paths_of(value))

    def is_result(self, node: ast.AST) -> bool:
        """Return whether an expression contains a result."""
        if self.is_known(node):
            return True
        if not self.sees_gets:
            return False
        return any(self.is_get(inner) or is_submission(inner) for inner in ast.walk(node))

    def is_known(self, node: ast.AST) -> bool:
        """Return whether an expression contains a name that holds a result, or a part of one."""
        for path in paths_of(node):
            for known in self.results:
                if path == known or path.startswith(f"{known}.") or known.startswith(f"{path}."):
                    return True
        return False

    def is_get(self, node: ast.AST) -> bool:
        return is_get(node, self.line)


def is_get(node: ast.AST, line: int) -> bool:
    """Return whether an expression is a call of ray.get or ray.wait, or of any get in the line that was recorded."""
    if not isinstance(node, ast.Call) or last_name(node.func) not in GETTERS:
        return False
    function = node.func
    is_ray = isinstance(function, ast.Attribute) and last_name(function.value) == RAY
    return is_ray or spans(node, line)


def is_submission(node: ast.AST) -> bool:
    """Return whether an expression submits a task, whose reference is as good as its result."""
    return isinstance(node, ast.Call) and last_name(node.func) == SUBMISSION


def spans(node: ast.Call, line: int) -> bool:
    last = node.end_lineno or node.lineno
    return node.lineno <= line <= last


def has_chain(loop: ast.AST, line: int) -> bool:
    """Return whether a submission in a line has the result of another one as an argument."""
    for call in ast.walk(loop):
        if not isinstance(call, ast.Call) or not is_submission(call):
            continue
        if spans(call, line) and any(is_get(inner, line) for inner in ast.walk(call)):
            return True
    return False


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
