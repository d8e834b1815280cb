# SPDX-License-Identifier: Apache-2.0
"""Sections of results: what belongs together, and what is said about it."""

import re

import pytest
from made_records import make_record, make_run, make_sweep, rows_of

from dataflow.analysis.result import Result, group_results
from dataflow.catalogue.catalogue import suites
from dataflow.records.schema import ProcessCost
from dataflow.report.sections import find_tables, sections
from dataflow.report.sentences import compare_with_first


def build(*records):
    return sections(group_results(records))


def find(built, name):
    (section,) = [section for section in built if section.name == name and section.table]
    return section


def column(section, header):
    index = section.table.headers.index(header)
    return {row[0]: row[index] for row in section.table.cells}


def views(seconds, **changes):
    return make_run(seconds, readers_own_a_copy=False, **changes)


def test_only_copies_of_equal_work_are_compared_with_the_demos_baseline():
    copied = {"runtime": "graph", "flags": {"copy_out": True}}
    kept = {"runtime": "graph", "flags": {"copy_out": True, "keep": True}}
    built = build(
        make_record("driver-queue", [2.0], [2.1], [1.9]),
        make_record("shm", [0.2], [0.21], [0.19], runtime="graph"),
        make_record("mapped", views([0.002]), views([0.0021]), views([0.0019]), runtime="graph"),
        make_record("mapped", [0.05], [0.051], [0.049], **copied),
        make_record("zero-copy", [0.3], [0.31], [0.29], **copied),
        make_record("zero-copy", [0.4], [0.41], [0.39], **kept),
        make_record("mapped", views([0.3]), runtime="graph", flags={"copy_in": True}),
        make_record("memcpy", [0.1], runtime="torch"),
        make_record("mapped", views([0.0001]), runtime="torch", flags={"check_every": 100}),
    )
    section = find(built, "results")
    copy, reused, written_in_place, view = section.sentence.split(" If ")
    fastest = "If readers may keep their copy, `graph shm` is the fastest with 200 ms (180 to 230)."
    assert fastest in copy
    assert "a buffer that is reused, `graph zero-copy --copy-out` takes 300 ms" in reused
    assert (
        "the producer writes in place, `graph mapped --copy-out` takes 50 ms (48 to 53)."
        in written_in_place
    )
    assert "readers get a view, `graph mapped` takes 2 ms (1.8 to 2.3)." in view
    assert "Not ranked: `graph mapped --copy-in` (one quiet run)." in view
    factors = column(section, "times as fast as store driver-queue")
    assert factors["store driver-queue"] == "1" and factors["graph shm"].startswith("10 (")
    other_work = (
        "graph mapped",
        "graph mapped --copy-out",
        "graph zero-copy --copy-out",
        "torch mapped --check-every 100",
    )
    assert {factors[name] for name in other_work} == {"-"}
    kept_copy = factors["graph zero-copy --copy-out --keep"]
    assert kept_copy.startswith("5 (")
    assert [row[:2] for row in section.table.cells] == [
        ["store driver-queue", "copy to keep"], ["graph zero-copy --copy-out --keep", "copy to keep"],
        ["graph shm", "copy to keep"],
        ["graph zero-copy --copy-out", "reused buffer"], ["torch memcpy (reference)", "reused buffer"],
        ["graph mapped --copy-out", "reused buffer, written in place"], ["graph mapped --copy-in", "view"],
        ["graph mapped", "view"], ["torch mapped --check-every 100", "view"],
    ]  # fmt: skip
    dots = {group: [dot.name for dot in dots] for group, dots in section.chart.panels.items()}
    cells = [row[0] for row in section.table.cells]
    groups = (
        "readers may keep their copy",
        "readers get a buffer that is reused",
        "readers get a buffer that is reused and the producer writes in place",
        "readers get a view",
    )
    # A chart has eight rows at most: the row with one run is left out.
    parts = (cells[:3], cells[3:5], cells[5:6], cells[7:])
    assert dots == dict(zip(groups, parts, strict=True))


def test_a_transport_that_cannot_be_told_apart_from_the_fastest_is_named_too():
    noisy, steady = [[0.2], [0.21], [0.19]], [[0.5], [0.51], [0.49]]
    records = [
        make_record("shm", *noisy, runtime="graph"), make_record("gloo", *noisy[::-1], runtime="rdt"),
        make_record("refs", *steady), make_record("shm", [0.1], runtime="graph", flags={"threads": 2}),
    ]  # fmt: skip
    sentence = find(build(*records), "results").sentence
    assert "is the fastest with 200 ms" in sentence
    assert re.search(
        r"\); these runs do not tell it apart from `.*?` \(200 ms \(180 to 230\)\)\.$", sentence
    )
    assert set(re.findall("`(.*?)`", sentence)) == {"graph shm", "rdt gloo"}
    varied = [[0.2], [0.122], [0.15], [0.07], [0.11]]
    steady = make_record("shm", [0.065], [0.066], [0.064], [0.065], [0.067], runtime="graph")
    sentence = find(build(steady, make_record("refs", *varied)), "results").sentence
    assert re.search(
        r"; these runs do not tell it apart from `store refs` \(120 ms \(.*?\)\)\.$", sentence
    )


def test_a_row_without_a_time_says_why_and_is_not_ranked():
    disturbed = [make_run([0.001], other_cores=1.0, order=order) for order in range(3)]
    unsettled = [make_run([0.002], settled=False, warmup_iterations=60)]
    failed = make_run([], status="failed", reason="reward died", processes={}, order=3)
    for table, section_name, header in (
        ("configurations", "results", "ms per iteration"), ("headline", "headline", "ms per iteration"),
        ("microbenchmarks", "microbenchmarks", "µs per iteration"),
    ):  # fmt: skip
        built = build(
            make_record(
                "refs", [1.0], [1.1], make_run([9.0], other_cores=0.5), failed, table=table
            ),
            make_record("shm", *disturbed, runtime="graph", table=table),
            make_record("gloo", *unsettled, runtime="torch", table=table),
        )
        section = find(built, section_name)
        times = column(section, header)
        assert (times["graph shm"], times["torch gloo"]) == ("disturbed", "not settled")
        assert len(section.table.cells) == 3
        assert (
            "readers get" in section.table.headers
        )  # otherwise, times of unequal work look comparable
        if section_name != "microbenchmarks":
            assert "`store refs` takes" in section.sentence
            assert (
                "Not ranked: `torch gloo` (not settled), `graph shm` (disturbed)."
                in section.sentence
            )
            assert section.chart is None  # of one configuration
        notes = " ".join(section.notes)
        assert "store refs: 1 of 4 runs failed: reward died." in notes
        assert "torch gloo: not settled: after 60 untimed iterations" in notes
        assert (
            "Boots: 1. Runs per configuration: 2. Left out, because they were disturbed: 1 of 3 runs."
            in notes
        )


def test_small_messages_have_the_time_of_a_hop():
    fields = {"flow": "chain", "table": "microbenchmarks"}
    built = build(
        make_record("bytes", [8e-4], **fields),
        make_record("bytes", [2e-4], message_bytes=1, **fields),
    )
    rows = find(built, "microbenchmarks").table.cells
    assert [(row[0], row[1], row[5]) for row in rows] == [
        ("store bytes", "1", "40"),
        ("store bytes", "1,024", "160"),
    ]


def test_a_sweep_has_a_line_per_configuration_and_a_column_per_value_or_says_why_it_has_no_time():
    null = {"null_transport_seconds": [0.001]}
    records = make_sweep("refs", {2**20: make_run([0.01], **null), 2**23: make_run([0.08], **null)})
    records += make_sweep("mapped", {2**20: views([0.002], **null)}, runtime="graph")
    records += make_sweep("bytes", {2**20: [0.5], 2**23: make_run([1.0], other_cores=1.0)})
    section = find(build(*records), "sweeps")
    assert section.table.headers == [
        "configuration",
        "readers get",
        "1 MiB",
        "8 MiB",
        "largest overhead",
    ]
    assert section.table.cells == [
        ["store refs", "copy to keep", "10", "80", "10.0%"],
        ["store bytes", "copy to keep", "500", "disturbed", "-"],
        ["graph mapped", "view", "2", "-", "50.0%"],
    ]  # fmt: skip
    lines = section.chart.lines
    names = [("store refs", False), ("store bytes", False), ("graph mapped", True)]
    assert [(line.name, line.is_view) for line in lines[:3]] == names
    assert lines[-1].is_limit
    assert (
        section.chart.file_name == "sweep_iteration_bytes"
        and section.chart.format_x(2**20) == "1 MiB"
    )


@pytest.mark.study
def test_every_table_of_a_suite_can_be_shown_and_an_unknown_one_too():
    assert {part.table for parts in suites().values() for part in parts} <= set(find_tables())
    (section,) = build(make_record("refs", [1.0], table="of-tomorrow"))
    assert (section.name, section.chart, section.table.cells[0][0]) == (
        "of-tomorrow",
        None,
        "store refs",
    )


def test_the_chart_of_causes_has_the_traced_times():
    spans = [
        ("driver", 0, "wait", 0, 0.0, 1e6, 0),
        ("policy", 0, "serialise", 0, 1e3, 401e3, 200_000),
    ]
    for name in ("driver", "policy", "reference", "reward"):
        spans += [(name, 0, "make", 0, 0.0, 1e3, 0), (name, 0, "sequence number", 0, 999e3, 1e6, 0)]
    price = {"cold_copy_before_seconds": [0.021], "cold_copy_faults": 1000}  # 1 µs per page fault
    run = make_run([1.0], spans=spans, iterations_us=[(0.0, 1e6)], **price)
    traced = [
        make_record(transport, run, table="stages", traced=True)
        for transport in ("driver-queue", "bytes")
    ]
    by_stage, by_cause = build(*traced)[-2:]
    for section in (by_stage, by_cause):
        assert section.table.headers[:2] == ["configuration", "mean of the middle half, ms"]
    assert by_cause.chart.caption[0].startswith("Means of the middle half of traced iterations")
    (bar,) = by_cause.chart.panels[""]
    assert (bar.name, bar.label) == ("store driver-queue", "1,000 ms")
    assert (
        bar.segments["page faults"]
        == pytest.approx(200)
        == pytest.approx(bar.segments["serialisation"])
    )
    assert sum(bar.segments.values()) == pytest.approx(1000)
    assert by_cause.chart.title.startswith(
        "About 60% of the time of store driver-queue is waiting: online DPO"
    )
    assert by_cause.chart.limits == {"memcpy: 20 ms": 20.0, "memcpy by all cores: 10 ms": 10.0}


def test_one_run_each_is_no_ranking_and_says_what_would_be_one():
    quick = {"suite": "quick", "arguments": {"allow_disturbed": True}}
    busy = {"other_cores": 1.0}
    records = [
        make_record("driver-queue", make_run([0.27], **busy), **quick),
        make_record("shm", make_run([0.038], **busy), runtime="graph", **quick),
    ]
    sentence = find(build(*records), "results").sentence
    assert sentence == (
        "Lowest time: `graph shm`, 38 ms. One run each, 2 of 2 disturbed: not a ranking. "
        'For a ranking: make quick FLAGS="--runs 3".'
    )
    assert "fast" not in find(build(*records), "results").chart.title
    own = build(make_record("refs", [0.3], [0.3]), make_record("shm", [0.1], runtime="graph"))
    sentence = find(own, "results").sentence
    assert "1 to 2 runs each: not a ranking. For a ranking: give --runs 3 or more" in sentence


def test_a_configuration_with_few_runs_has_no_place_in_the_ranking_of_the_others():
    section = find(
        build(
            make_record("refs", [1.0], [1.1], [0.9]),
            make_record("bytes", [2.0], [2.1], [1.9]),
            make_record("numpy", [0.1], [0.1]),
        ),
        "results",
    )
    assert "of those that can be ranked, `store refs` is the fastest" in section.sentence
    assert "Not ranked: `store numpy` (2 quiet runs)." in section.sentence


def of_memory(seconds, gib):
    """Return three runs that need so much memory."""
    costs = {"driver": ProcessCost(peak_memory_bytes=int(gib * 2**30))}
    return [make_run([seconds * noise], processes=costs) for noise in (1, 1.01, 0.99)]


def test_a_factor_of_kept_memory_has_the_memory_beside_it():
    kept = {"retain_memory": True}
    section = find(
        build(
            make_record("driver-queue", *of_memory(1.0, 7)),
            make_record("driver-queue", *of_memory(0.5, 15.5), flags=kept),
            make_record("refs", *of_memory(0.25, 6)),
        ),
        "results",
    )
    factors = column(section, "times as fast as store driver-queue")
    assert factors["store driver-queue --retain-memory"].endswith(") with 15.5 instead of 7.0 GiB")
    assert "GiB" not in factors["store driver-queue"] + factors["store refs"]


def test_a_comparison_of_kept_memory_by_size_has_the_memory_of_both_sides():
    small = {"table": "retained-memory", "flow": "chain", "actors": 2}
    section = find(
        build(
            make_record("refs", *of_memory(1.0, 2), **small),
            make_record("refs", *of_memory(0.5, 3.25), flags={"retain_memory": True}, **small),
        ),
        "retained-memory",
    )
    assert [row["memory GiB"] for row in rows_of(section)] == ["2.0 → 3.2"]


def test_a_factor_of_few_quiet_runs_is_marked_in_its_cell():
    disturbed = [make_run([0.1], other_cores=1.0)] * 3  # a run and two repetitions
    records = [
        make_record("refs", [0.5], [0.5]),
        make_record("bytes", [0.25], [0.26], [0.24]),
        make_record("shm", *disturbed, runtime="graph"),
    ]
    ranked = make_record("driver-queue", [1.0], [1.1], [0.9])
    factors = column(
        find(build(ranked, *records), "results"), "times as fast as store driver-queue"
    )
    assert factors["store refs"] == "2 (2 quiet runs)"
    assert factors["graph shm (disturbed)"] == "10 (disturbed)"
    assert re.fullmatch(r"4 \([\d.]+ to [\d.]+\)", factors["store bytes"])
    few = make_record("driver-queue", [1.0])
    factors = column(find(build(few, *records), "results"), "times as fast as store driver-queue")
    assert factors["store bytes"] == "4 (baseline: one quiet run)"


def test_a_disturbed_row_is_marked_and_not_ranked():
    disturbed = [make_run([0.1], other_cores=1.0)] * 3  # a run and two repetitions
    section = find(
        build(
            make_record("driver-queue", [1.0], [1.1], [0.9]),
            make_record("refs", [0.5], [0.55], [0.45]),
            make_record("shm", *disturbed, runtime="graph"),
        ),
        "results",
    )
    assert column(section, "ms per iteration")["graph shm (disturbed)"] == "100"
    assert column(section, "x memcpy")["store refs"] == "25"
    assert "`store refs` is the fastest" in section.sentence
    assert "Not ranked: `graph shm` (disturbed)." in section.sentence
    assert "each run and its repetitions were disturbed" in " ".join(section.notes)
    assert "Counted, although they were disturbed: 1 of 7 runs." in section.notes[-1]


@pytest.mark.parametrize(
    ("baseline", "words"),
    [
        ([[1.0], [1.1], [0.9]], ["graph shm is 10 times as fast as store refs"]),
        (
            [[1.0]],
            ["graph shm: 100 ms (90 to 110), store refs: 1,000 ms. 1 to 3 runs each: no verdict."],
        ),
        (
            [make_run([], status="failed", reason="died", processes={})],
            ["Nothing is compared with store refs, because it has no result: failed: died."],
        ),
    ],
)
def test_each_configuration_is_compared_with_the_first_one_or_it_is_said_why_not(baseline, words):
    first = Result([make_record("refs", *baseline)])
    other = Result([make_record("shm", [0.1], [0.104], [0.096], runtime="graph")])
    third = make_run([], status="failed", reason="no space", processes={})
    results = [first, other, Result([make_record("bytes", third)])]
    sentences = compare_with_first(results)
    assert len(sentences) == 2
    for sentence, start in zip(sentences, words, strict=False):
        assert sentence.startswith(start)
    assert sentences[1] == "store bytes has no result to compare: failed: no space."


def test_a_chart_says_of_the_fastest_what_the_table_says():
    kept = {"retain_memory": True}
    records = [
        make_record("driver-queue", *of_memory(1.0, 7)),
        make_record("driver-queue", *of_memory(0.1, 15.5), flags=kept),
        make_record("refs", *of_memory(0.25, 6)),
    ]
    section = find(build(*records), "results")
    factors = column(section, "times as fast as store driver-queue")
    factor, memory = factors["store driver-queue --retain-memory"].split(" with ")
    assert re.fullmatch(r"10 \(.* to .*\)", factor)
    assert section.chart.title.startswith(
        f"store driver-queue --retain-memory is {factor} times as fast as store driver-queue, with {memory}.\nTime"
    )
    del records[1]
    section = find(build(*records), "results")
    factor = column(section, "times as fast as store driver-queue")["store refs"]
    expected = f"store refs is {factor} times as fast as store driver-queue.\nTime per iteration: "
    assert section.chart.title.startswith(expected)


def three_runs(seconds):
    return [[seconds * noise] for noise in (1, 1.01, 0.99)]


def test_a_chart_of_a_sweep_has_no_factor_because_its_table_has_none():
    fields = {"table": "sweep-iteration-bytes"}
    records = []
    for size in (2**20, 2**23):
        sized = {"iteration_bytes": size, **fields}
        records.append(make_record("refs", *three_runs(1.0), **sized))
        records.append(make_record("shm", *three_runs(0.1), runtime="graph", **sized))
    section = find(build(*records), "sweeps")
    assert section.chart.title.startswith("Milliseconds per iteration by bytes per iteration: ")


def test_a_chart_has_a_mean_per_machine_and_each_iteration_of_it():
    boots = [{"boot": boot, "cpu_model": "Test CPU"} for boot in ("aaaa1", "bbbb2")]
    records = [make_record("refs", [1.0, 3.0], [2.0, 2.0], environment=boots[0])]
    records.append(make_record("refs", [4.0], environment=boots[1]))
    records.append(make_record("bytes", [5.0, 7.0], environment=boots[1]))
    chart = find(build(*records), "results").chart
    by_name = {mark.name: mark for mark in chart.marks}
    assert [*by_name] == ["store bytes", "store refs"]
    refs = by_name["store refs"]
    points = {point.machine: (point.value, [*point.samples]) for point in refs.points}
    assert points == {
        "aaaa: Test CPU": (pytest.approx(2000), [1000, 3000, 2000, 2000]),
        "bbbb: Test CPU": (pytest.approx(4000), [4000]),
    }
    assert refs.label == "2,000, 4,000 ms"
    assert chart.limits == {}  # each machine has its own time of memcpy


def test_times_of_memcpy_far_below_all_rows_are_not_drawn_but_said():
    near = find(build(make_record("refs", [0.09]), make_record("bytes", [0.2])), "results").chart
    assert near.limits == {"memcpy: 20 ms": 20.0}
    assert "Not drawn: memcpy by all cores: 10 ms." in near.caption
    chart = find(build(make_record("refs", [0.2]), make_record("bytes", [0.2])), "results").chart
    assert chart.limits == {}
    assert "Not drawn: memcpy: 20 ms, memcpy by all cores: 10 ms." in chart.caption


def test_the_mean_of_a_group_of_iterations_is_that_of_its_time():
    run = make_run([0.5, 0.5, 0.5], group_seconds=[0.8, 0.1])
    changes = {"arguments": {"check_every": 2}, "flags": {"check_every": 2}}
    chart = find(build(make_record("refs", run, **changes), make_record("bytes", [2.0])), "results")
    (point,) = chart.chart.marks[-1].points
    assert point.value == pytest.approx(300)
    assert [*point.samples] == pytest.approx([400, 100])


def test_a_chart_has_eight_rows_and_says_how_many_are_left_out():
    names = ["driver-queue", "ref-queue", "refs", "bytes", "numpy"]
    records = [make_record(name, [1.0 + number]) for number, name in enumerate(names)]
    kept = {"retain_memory": True}
    records += [make_record(name, [0.1 + number], flags=kept) for number, name in enumerate(names)]
    chart = find(build(*records), "results").chart
    assert len(chart.marks) == 8
    assert "Not drawn: 2 of 10 configurations. The table of the report has them." in chart.caption
    shown = {mark.name for mark in chart.marks}
    assert {"store driver-queue", "store refs"} <= shown and "store numpy" not in shown
    chart = find(build(*records[:8]), "results").chart
    assert len(chart.marks) == 8
    assert "configurations. The table" not in " ".join(chart.caption)


def test_a_chart_of_a_sweep_has_six_lines_with_the_iterations_of_each_mean():
    records = []
    for number, name in enumerate(["driver-queue", "ref-queue", "refs", "bytes", "numpy"]):
        points = {2**20: [0.1 + number, 0.3 + number], 2**23: [1.0 + number]}
        records += make_sweep(name, points)
    for transport in ("shm", "pickle"):
        records += make_sweep(transport, {2**20: [0.01], 2**23: [0.02]}, runtime="graph")
    chart = find(build(*records), "sweeps").chart
    lines = [line for line in chart.lines if not line.is_limit]
    assert len(lines) == 6
    assert "Not drawn: 1 of 7 configurations. The table of the report has them." in chart.caption
    (line,) = [line for line in lines if line.name == "store driver-queue"]
    assert [*line.points] == [(2**20, pytest.approx(200)), (2**23, pytest.approx(1000))]
    assert [x for x, _ in line.samples] == [2**20, 2**20, 2**23]


def test_the_chart_of_kept_memory_has_a_line_without_and_one_with_it():
    records = []
    for size in (2**20, 2**24):
        fields = {"table": "retained-memory", "flow": "chain", "actors": 2, "message_bytes": size}
        records.append(make_record("refs", [size / 2**20], **fields))
        records.append(make_record("refs", [0.5], flags={"retain_memory": True}, **fields))
    chart = find(build(*records), "retained-memory").chart
    assert [line.name for line in chart.lines] == ["store refs", "store refs --retain-memory"]
    assert [len(line.points) for line in chart.lines] == [2, 2]
    assert find(build(*records[:2]), "retained-memory").chart is None


def test_fan_in_is_not_shown_as_a_table_of_configurations_on_a_page():
    fields = {"flow": "fan-in", "actors": 4, "message_bytes": 2**20}
    (section,) = build(make_record("refs", [0.5], **fields))
    assert section.name == "fan-in"
