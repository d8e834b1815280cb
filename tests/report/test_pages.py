# SPDX-License-Identifier: Apache-2.0
"""Test what only the pages have: the claim, the systems, and that two places do not give one factor differently."""

import json
import re
from collections import defaultdict

import pytest
from conftest import ROOT
from made_records import make_record, make_run, make_sweep, rows_of, write_campaign
from published_tables import GENERATED, tables_of_page

from dataflow.analysis.result import Result, group_results
from dataflow.errors import RecordError
from dataflow.records.schema import ProcessCost
from dataflow.report import pages, render
from dataflow.report.factor_chart import draw_factors
from dataflow.report.pages import build_claim, build_systems, load_rows
from dataflow.report.sections import measured_key, sections
from dataflow.workers.variables import RETAIN_MEMORY

VERSIONS = {"ray": "2.60.0", "torch": "2.13.0"}
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
    assert (
        "On 3 boots of our machines, four environment variables make Ray's plain references 4 times as fast"
        in claim
    )
    assert "need 11 GiB of memory instead of 6 GiB" in claim
    on_both_sides = claim.partition("on both sides")[2]
    assert "a compiled graph is 2 times as fast as references" in on_both_sides
    assert "with 7 GiB" in on_both_sides


def test_each_factor_of_the_chart_has_the_memory_beside_it(headline):
    chart = draw_factors(headline)
    labels = {mark.name: mark.label for mark in chart.panels[""]}
    assert labels["store refs --retain-memory"] == "6, 6, 6; 11 GiB"
    assert labels["graph shm"] == "7.5, 7.5, 7.5; 6 GiB"
    assert chart.title.startswith(
        "store refs --retain-memory is 6 times as fast as store driver-queue on 3 machines, "
        "with 11 instead of 7 GiB.\n"
    )
    assert "that of store driver-queue is 7 GiB" in chart.caption[1]


def test_the_chart_of_factors_has_a_point_per_configuration_and_machine_and_a_line_at_one(headline):
    chart = draw_factors(headline)
    assert chart.limits == {"as fast as store driver-queue": 1.0}
    for mark in chart.marks:
        assert [point.machine for point in mark.points] == [f"{name}: Test CPU" for name in "abc"]
    (refs,) = [mark for mark in chart.marks if mark.name == "store refs"]
    for point in refs.points:
        assert point.value == pytest.approx(1.5, rel=0.01)
        assert [*point.samples] == pytest.approx([1.5, 1.5 / 1.02, 1.5 * 1.02], rel=0.02)


def test_the_chart_of_factors_has_eight_rows_with_the_advice_and_says_what_is_left_out(tmp_path):
    names = ["refs", "ref-queue", "bytes", "numpy"]
    times = [("store driver-queue", {}, 3.0), ("graph shm", {}, 0.4), ("graph shm", KEPT, 0.2)]
    times += [("graph pickle", {}, 0.3), ("graph pickle", KEPT, 0.25)]
    for number, name in enumerate(names):
        times += [
            (f"store {name}", {}, 2.9 - number / 4),
            (f"store {name}", KEPT, 2.5 - number / 2),
        ]
    environment = {"clock_code": "a", "boot": "a", "versions": VERSIONS}
    write_campaign(tmp_path / "a", *times, environment=environment)
    chart = draw_factors(load_rows(tmp_path))
    assert len(chart.marks) == 8
    shown = {mark.name for mark in chart.marks}
    assert shown >= {"store refs", "store refs --retain-memory", "graph shm"}
    assert "Not drawn: 4 of 12 configurations. The table of the report has them." in chart.caption


@pytest.fixture
def measured_programs(tmp_path, monkeypatch):
    """Record programs of systems in which each change makes a step 1.25 times as fast, in five pairs of runs."""
    monkeypatch.setattr(pages, "PROGRAMS", tmp_path)
    changes = defaultdict(list)
    for system in pages.SYSTEMS["systems"]:
        for measured in system.get("measured", []):
            before = [1.0, 1.1, 1.2, 1.3, 1.4]
            after = [seconds / 1.25 for seconds in before]
            settings = RETAIN_MEMORY if measured["change"] == "kept memory" else {}
            change = {"name": measured["change"], "settings": settings}
            pairs = {"change": change, "before": before, "after": after}
            changes[measured["program"]].append(pairs)
    for program, measured in changes.items():
        (tmp_path / f"{program}.json").write_text(json.dumps({"changes": measured}))


@pytest.mark.usefixtures("measured_programs")
def test_only_the_system_that_was_measured_has_a_factor_of_its_own(headline):
    section = build_systems({row.newest.name: row for row in headline})
    rows = rows_of(section)
    measured = {row["system"].split()[0]: row["the system itself"] for row in rows}
    of_verl = measured.pop("verl")
    assert of_verl.endswith(
        "kept memory instead: 1.25 (1.25 to 1.25), 5 pairs of runs, memory not measured"
    )
    assert of_verl.count("memory not measured") == 1
    assert set(measured.values()) == {"not measured"}
    (note,) = section.notes
    assert note == (
        "Factors of this benchmark: commit unknown. "
        "The records of the system itself (verl) name no commit of this project."
    )
    assert [*rows[0]][-3:] == [
        "references (6 GiB)",
        "references, kept memory (11 GiB)",
        "graph, kept memory (7 GiB)",
    ]
    assert "this benchmark, flat tensors of 32 to 160 MiB, compared with" in section.sentence
    assert "by the means, on one machine after the other" in section.sentence


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
    peers.append(make_record("gloo", [0.2], runtime="torch", table="peers"))
    (section,) = sections(group_results(peers), in_campaigns | {measured_key(Result([peers[-1]]))})
    assert [row[-1] for row in section.table.cells] == ["1", "see campaigns", "-"]


def test_the_sentence_above_a_table_of_a_page_names_only_rows_of_it(headline):
    in_campaigns = {measured_key(row.newest) for row in headline}
    times = {"driver-queue": 3.0, "bytes": 2.0, "numpy": 2.5}
    records = []
    for name, seconds in times.items():
        records.append(make_record(name, [seconds], [1.01 * seconds], [0.99 * seconds]))
    records.append(make_record("shm", [0.3], [0.31], [0.29], runtime="graph"))
    (section,) = sections(group_results(records), in_campaigns)
    assert "`graph shm` is the fastest" in section.sentence  # of report.html, which has all rows
    first, *_ = render.to_markdown([section]).splitlines()
    assert "** Only the rows of this table are compared. If readers" in first
    assert re.findall("`(.*?)`", first) == ["store bytes"]
    assert "store bytes" in names_on_page(section, 0)
    (section,) = sections(group_results(records))
    first, *_ = render.to_markdown([section]).splitlines()
    assert first == f"**{section.title}.** {section.sentence}"


def test_a_page_that_has_no_row_with_a_time_says_nothing_of_the_fastest(headline):
    in_campaigns = {measured_key(row.newest) for row in headline}
    records = [make_record("shm", [0.3], [0.31], [0.29], runtime="graph")]
    (section,) = sections(group_results(records), in_campaigns)
    first, *_ = render.to_markdown([section]).splitlines()
    assert first == f"**{section.title}.**"


def test_no_chart_has_a_factor_that_its_table_leaves_to_the_campaigns(headline):
    in_campaigns = {measured_key(row.newest) for row in headline}
    records = [make_record("driver-queue", [3.0], [3.1], [2.9], table="peers")]
    records.append(make_record("shm", [0.3], [0.31], [0.29], runtime="graph", table="peers"))
    for known, has_factor in ((in_campaigns, False), ((), True)):
        (section,) = sections(group_results(records), known)
        assert ("times as fast" in section.chart.title) == has_factor
        assert (section.table.cells[1][-1] == "see campaigns") != has_factor


def names_on_page(section, column):
    """Return the cells of a column in the rows that a page has."""
    cells = [row[column] for row in section.table.cells]
    positions = section.table.page_rows
    return cells if positions is None else [cells[position] for position in positions]


def test_a_page_has_times_of_one_node_only_if_campaigns_do_not_have_them(headline):
    in_campaigns = {measured_key(row.newest) for row in headline}
    nodes = dict.fromkeys(("driver", "policy", "reference", "reward"), 0)
    records = []
    for name in ("refs", "bytes"):
        run = make_run([1.0], nodes=nodes)
        records.append(make_record(name, run, table="cluster", layout={"link": "10 Gbit/s"}))
    (section,) = sections(group_results(records), in_campaigns)
    assert names_on_page(section, 1) == ["store bytes"]
    (section,) = sections(group_results(records))
    assert set(names_on_page(section, 1)) == {"store refs", "store bytes"}


def test_a_page_has_no_older_times_by_size_of_references_with_kept_memory(headline):
    in_campaigns = {measured_key(row.newest) for row in headline}
    points = {2**20: [0.01], 2**27: [0.2]}
    records = [*make_sweep("refs", points), *make_sweep("refs", points, flags=KEPT)]
    (section,) = sections(group_results(records), in_campaigns)
    assert names_on_page(section, 0) == ["store refs"]
    assert [line.name for line in section.chart.lines] == ["store refs", "memcpy"]
    (section,) = sections(group_results(records))
    assert names_on_page(section, 0) == ["store refs", "store refs --retain-memory"]


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


def test_a_header_of_a_table_of_the_first_answers_has_at_most_five_words():
    first = {"demo": "results", "answers": "choosing"}
    for name, page in first.items():
        text = (ROOT / "docs" / f"{page}.md").read_text()
        found = [rows for table, _, rows in tables_of_page(text) if table == name]
        assert len(found) == 1, name
        for rows in found:
            assert [header for header in rows[0] if len(header.split()) > 5] == [], name


def test_no_page_shows_times_that_contradict_a_factor_of_kept_memory():
    """Where campaigns have a configuration with and without kept memory, no other table has both for such messages."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = [table for page in pages for table in tables_of_page(page.read_text())]
    (measured,) = [rows for name, _, rows in found if name == "campaign-headline"]
    in_campaigns = {row[0] for row in measured}
    kept = [name for name in in_campaigns if f"{name} --retain-memory" in in_campaigns]
    assert len(kept) > 2
    for name, title, rows in found:
        is_small = re.search(r", 1 MiB per iteration$", title)  # kept memory makes no difference
        # Campaigns measured these, too: messages of 12 MB, beside what a simulation says.
        # Predicted times stand beside measured ones, and no factor. Those of GPUs are of other tensors.
        # A long run shows whether times change during it.
        # Huge pages change the machine, and messages have another size there.
        others = {"cluster-checks", "predictions", "checks", "gpu", "allocator-long", "huge-pages"}
        is_compared = name in others
        is_of_campaigns = name.startswith("campaign-") or is_compared
        if is_of_campaigns or is_small:
            continue
        cells = {cell for row in rows for cell in row[:2]}
        both = [one for one in kept if {one, f"{one} --retain-memory"} <= cells]
        assert both == [], f"{name}: {title}"
