"""Each cause has a part of the page, to which the advice links."""

import re

import pytest
from raymeter.causes import pickled
from raymeter.findings import Finding
from scoreboard import TESTS

from raymeter import causes

PAGE = TESTS.parents[1] / "docs" / "profile.md"


def find_causes() -> list[str]:
    """Return the names of all causes."""
    names = {kind.cause for kind in pickled.KINDS}
    for module in causes.KINDS:
        text = (
            TESTS.parent
            / "src"
            / "raymeter"
            / "causes"
            / f"{module.__name__.rpartition('.')[2]}.py"
        ).read_text()
        for constant in re.findall(r"cause=([A-Z]+)", text):
            names.add(getattr(module, constant))
        for pair in re.findall(r"cause=([A-Z]+) if \w+ else ([A-Z]+)", text):
            names |= {getattr(module, constant) for constant in pair}
    return sorted(names)


@pytest.mark.parametrize("cause", find_causes())
def test_a_cause_has_a_heading_to_which_its_advice_links(cause: str):
    if not PAGE.exists():
        pytest.skip("there is no page beside an installed raymeter")
    headings = re.findall(r"^### (.+)$", PAGE.read_text(), re.MULTILINE)
    assert cause in headings
    finding = Finding(cause=cause, title="", line="", change="", seconds=0.0)
    assert re.fullmatch(r"[\w-]+", finding.section)


def test_there_are_no_headings_without_a_cause():
    text = PAGE.read_text()
    part = text.partition("## Causes, before and after")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^### (.+)$", part, re.MULTILINE)) == find_causes()
