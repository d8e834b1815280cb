# SPDX-License-Identifier: Apache-2.0
"""Each cause is explained in the package, by the name that is in its advice, and the page has the same text."""

import ast
import inspect
import re

import pytest
from raymeter.causes import pickled
from raymeter.findings import Finding
from raymeter.report.before_and_after import FILE, find_cause, read_parts
from scoreboard import TESTS

from raymeter import causes

PAGE = TESTS.parents[1] / "docs" / "profile.md"


def gives_cause(node: ast.AST) -> bool:
    """Return whether this is `cause=...` in a call, or `finding.cause = ...`."""
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        return isinstance(target, ast.Attribute) and target.attr == "cause"
    return isinstance(node, ast.keyword) and node.arg == "cause"


def find_causes() -> list[str]:
    """Return the names of all causes: the constants that are given or set as the cause of a finding."""
    names = {kind.cause for kind in pickled.KINDS}
    for module in causes.KINDS:
        tree = ast.parse(inspect.getsource(module))
        for node in ast.walk(tree):
            if gives_cause(node):
                used = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
                constants = used & vars(module).keys()
                names |= {getattr(module, constant) for constant in constants}
    return sorted(names)


def test_each_cause_is_explained_and_nothing_else() -> None:
    assert sorted(read_parts()) == find_causes()


@pytest.mark.parametrize("cause", find_causes())
def test_the_name_in_the_advice_is_understood(cause: str) -> None:
    finding = Finding(cause=cause, title="", line="", change="", seconds=0.0)
    assert re.fullmatch(r"[\w-]+", finding.section)
    assert find_cause(finding.section) == cause


@pytest.mark.parametrize("cause", find_causes())
def test_a_cause_has_a_program_before_and_after_the_change(cause: str) -> None:
    code = [block.text for block in read_parts()[cause] if block.is_code]
    assert code
    for text in code:
        before, _, after = text.partition("\n\n# after\n")
        assert before.startswith("# before\n")
        for program in (before, after):
            assert program
            compile(program, cause, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_page_has_what_the_package_has() -> None:
    if not PAGE.exists():
        pytest.skip("there is no page beside an installed raymeter")
    begin = "<!-- raymeter-causes: written by make publish -->\n"
    part = PAGE.read_text(encoding="utf-8").partition(begin)[2].partition("<!-- end of")[0]
    assert part == FILE.read_text(encoding="utf-8")
