"""Test what only the pages have: the claim, the systems, and that two places do not give one factor differently."""

import json
import re
from collections import defaultdict

import pytest
from conftest import ROOT
from made_records import make_record, rows_of, write_campaign

from dataflow.analysis.result import group_results
from dataflow.errors import RecordError
from dataflow.records.schema import ProcessCost
from dataflow.report import pages
from dataflow.report.pages import build_claim, build_systems, load_rows
from dataflow.report.sections import measured_key, sections

VERSIONS = {"ray": "2.60.0", "torch": "2.13.0"}
GENERATED = r"<!-- ([\w-]+): written by make publish -->\n(.*?)<!-- end of \1 -->"
KEPT = {"retain_memory": True}


@pytest.fixture
def headline(tmp_path):
    """Return the rows of three boots: queues, references and a graph, without and with kept memory."""
    for boot in ("a", "b", "c"):
        costs = {gib: {"driver": ProcessCost(peak_memory_bytes=gib * 2**30)} for gib in (6, 7, 11)}
        times = [
            ("store driver-queue", {}, 3.0, {"processes": costs[7]}),
            ("store refs", {}, 2.0, {"processes": costs[6]}),
            ("store refs", KEPT, 0.5, {"processes": costs[11]}),
            ("graph shm", {}, 0.4, {"processes": costs[6]}),
            ("graph shm", KEPT, 0.25, {"processes": costs[7]}),
        ]
        environment = {"clock_code": "a", "boot": boot, "versions": VERSIONS}
        write_campaign(tmp_path / boot, *times, environment=environment)
    return load_rows(tmp_path)


def test_the_claim_compares_equal_settings_and_has_the_memory(headline):
    claim = build_claim({row.newest.name: row for row in headline}).sentence
    assert "references 4 (4 to 4, 3 boots) times as fast" in claim
    assert "need 11 GiB of memory instead of 6 GiB" in claim
    on_both_sides = claim.partition("on both sides")[2]
    assert "a compiled graph is 2 (2 to 2, 3 boots) times as fast as references" in on_both_sides
    assert "with 7 GiB" in on_both_sides


@pytest.fixture
def measured_programs(tmp_path, monkeypatch):
    """Record programs of systems in which each change makes a step 1.25 times as fast, in five pairs of runs."""
    monkeypatch.setattr(pages, "PROGRAMS", tmp_path)
    changes = defaultdict(list)
    for system in pages.SYSTEMS["systems"]:
        for measured in system.get("measured", []):
            before = [1.0, 1.1, 1.2, 1.3, 1.4]
            after = [seconds / 1.25 for seconds in before]
            change = {"change": {"name": measured["change"]}, "before": before, "after": after}
            changes[measured["program"]].append(change)
    for program, measured in changes.items():
        (tmp_path / f"{program}.json").write_text(json.dumps({"changes": measured}))


@pytest.mark.usefixtures("measured_programs")
def test_only_the_system_that_was_measured_has_a_factor_of_its_own(headline):
    rows = rows_of(build_systems({row.newest.name: row for row in headline}))
    measured = {row["system"].split()[0]: row["the system itself: times as fast"] for row in rows}
    assert "kept memory: 1.25 (1.25 to 1.25), 5 pairs of runs" in measured.pop("verl")
    assert set(measured.values()) == {"not measured"}
    factors = [header for header in rows[0] if header.endswith("times as fast")][1:]
    assert len(factors) == 3
    for header in factors:
        assert header.startswith("flat tensors of 32 to 160 MiB in this benchmark: ")
        assert "GiB, 3 boots" in header


def test_a_change_that_was_not_measured_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "PROGRAMS", tmp_path)
    with pytest.raises(RecordError, match=r"program.json has no change 'arrays': measure it"):
        pages.find_change("program", "arrays")


def test_a_page_does_not_give_a_factor_again_that_campaigns_have(headline):
    records = [make_record("driver-queue", [3.0], [3.1], [2.9]), make_record("bytes", [2.0])]
    records.append(make_record("shm", [0.3], [0.31], [0.29], runtime="graph"))
    in_campaigns = {measured_key(row.newest) for row in headline}
    (section,) = sections(group_results(records), in_campaigns)
    shown = [section.table.cells[position][0] for position in section.table.page_rows]
    assert shown == ["store driver-queue", "store bytes"]
    peers = [make_record("driver-queue", [3.0], table="peers")]
    peers.append(make_record("shm", [0.3], runtime="graph", table="peers"))
    (section,) = sections(group_results(peers), in_campaigns)
    assert [row[-1] for row in section.table.cells] == ["1", "see campaigns"]


def factors_of_page(text):
    """Yield (messages, configuration, baseline), and the factor without its interval, of each table of a page."""
    for name, body in re.findall(GENERATED, text, re.DOTALL):
        title, header = "", []
        for line in body.splitlines():
            if found := re.match(r"\*\*(.*?)\.\*\*", line):
                title = found[1]
            if not line.startswith("| "):
                header = []
                continue
            cells = line.strip("| ").split(" | ")
            if not header:
                header = cells
            for index, column in enumerate(header):
                baseline = column.partition("times as fast as ")[2]
                number = re.match(r"[\d.,]+", cells[index])
                if baseline and number:
                    yield (title, cells[0], baseline), number[0], name


def test_no_two_places_give_the_same_factor_differently():
    seen = defaultdict(dict)
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for key, factor, name in factors_of_page(page.read_text()):
            seen[key].setdefault(factor, f"{page.name}: {name}")
    assert seen
    assert {key: places for key, places in seen.items() if len(places) > 1} == {}
