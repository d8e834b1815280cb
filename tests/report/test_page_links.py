# SPDX-License-Identifier: Apache-2.0
"""Check what the pages refer to: files, headings and charts, and the settings of Ray that the suite changes."""

import re
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT

from common.ray_settings import PRIVATE_CLUSTER, QUIET

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
VARIABLES = ROOT / "dataflow" / "workers" / "variables.toml"


def read_headings(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.study
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_link_leads_to_a_file_and_a_heading_that_exist(page):
    for target, heading in LINK.findall(page.read_text()):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        if heading:
            assert heading in read_headings(file), f"{target}#{heading}"


@pytest.mark.study
def test_each_chart_is_shown_on_a_page_with_a_text_for_those_who_cannot_see_it():
    shown = {}
    for page in PAGES:
        for text, target in IMAGE.findall(page.read_text()):
            shown[(page.parent / target).resolve()] = text
    assert shown.keys() == {*(ROOT / "img").iterdir()}
    assert all(shown.values())


def test_the_page_about_the_method_names_each_setting_of_ray_that_a_private_cluster_changes():
    text = (ROOT / "docs" / "method.md").read_text()
    sections = tomllib.loads(VARIABLES.read_text())
    names = {*PRIVATE_CLUSTER, *QUIET, *sections["ray"], *sections["private_cluster"]}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
