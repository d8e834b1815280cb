# SPDX-License-Identifier: Apache-2.0
"""Test the comparison of two sets of records: verdicts, output forms, what is rejected, and what fails."""

import re
from pathlib import Path

import pytest
from made_records import make_record, make_run, write_record

from dataflow.commands import compare
from dataflow.errors import RecordError, UsageError

# The iterations of five runs; the geometric mean of their means is 1.
QUIET = [[1.0, 1.02, 0.98], [1.01, 1.01], [1 / 1.01], [1.005], [1 / 1.005]]


def slow_down(factor, runs=QUIET):
    return [[factor * seconds for seconds in run] for run in runs]


def write_sides(folder, old, new):
    """Write the records of both sides; return the arguments of compare, two folders."""
    for name, records in (("old", old), ("new", new)):
        for index, record in enumerate(records):
            write_record(folder / name / str(index) / "record.json", record)
    return [str(folder / "old"), str(folder / "new")]


def run(capsys, argv, code=0):
    assert compare.main(argv) == code
    return capsys.readouterr()


SHOWN = (
    "configuration",
    "ms per iteration",
    "times as fast",
    "95 % interval",
    "verdict",
    "detectable slowdown",
)


def table_cells(text, row=1):
    """Return the cells of SHOWN of a row."""
    lines = text.splitlines()
    headers, cells = (re.split(r"  +", lines[number].strip()) for number in (0, row))
    by_header = dict(zip(headers, cells, strict=True))
    return [by_header[header] for header in SHOWN]


OLD = [
    make_record("refs", *QUIET),
    make_record("bytes", *QUIET),
    make_record("shm", *QUIET, runtime="graph"),
]
NEW = [make_record("refs", *slow_down(1.25)), make_record("bytes", *slow_down(0.5)),
       make_record("shm", *slow_down(1.001), runtime="graph")]  # fmt: skip


def test_each_pair_has_both_times_and_a_verdict_and_one_that_is_slower_by_more_fails(
    tmp_path, capsys
):
    sides = write_sides(tmp_path, OLD, NEW)
    rows = [table_cells(run(capsys, sides).out, row) for row in (1, 2, 3)]
    assert [[*row[:3], row[4]] for row in rows] == [
        ["store refs", "1,000 → 1,250", "0.8", "slower"], ["store bytes", "1,000 → 500", "2", "faster"],
        ["graph shm", "1,000 → 1,000", "0.999", "cannot be told apart"],
    ]  # fmt: skip
    low, high = map(float, rows[0][3].split(" to "))
    assert 0.78 < low < 0.8 < high < 0.82
    for limit, code in (("5%", 1), ("24.9%", 1), ("26%", 0)):
        output = run(capsys, [*sides, "--fail-above", limit], code)
        assert output.err == "error: store refs is slower by 25.0%\n" * code


def test_times_of_other_work_have_no_factor_and_never_fail(tmp_path, capsys):
    view = make_record("refs", *(make_run(run, readers_own_a_copy=False) for run in slow_down(2)))
    output = run(
        capsys,
        [*write_sides(tmp_path, [make_record("refs", *QUIET)], [view]), "--fail-above", "5%"],
    ).out
    assert (
        "where readers get a view, and store refs takes 1,000 ms (990 to 1,010) where readers may keep their copy"
        in output
    )


def test_a_configuration_that_is_not_ok_or_has_more_failures_fails(tmp_path, capsys):
    died = make_run([1.0], status="failed", reason="reward died")
    new = [
        make_record("bytes", *[died] * 5),
        make_record("refs", *QUIET, died),
        make_record("numpy", *QUIET),
    ]
    never = make_record("nixl", make_run([], status="skipped", reason="no nixl"), runtime="rdt")
    # Failures are compared as shares: 1 of 5, and 2 of 17.
    one, two = (
        make_record("pickle", *runs, died, runtime="graph")
        for runs in (QUIET[:4], [*QUIET * 3, died])
    )
    sides = write_sides(
        tmp_path,
        [*OLD, make_record("numpy", died), never, one],
        [*new, make_record("driver-queue", *QUIET), two],
    )
    output = run(capsys, [*sides, "--fail-above", "5%"], 1)
    assert [line for line in output.err.splitlines() if "warning" not in line] == [
        "error: store refs fails more often: 1 of 6 runs failed: reward died",
        "error: store bytes fails more often: failed: reward died",
        "error: graph shm is missing in NEW",
    ]
    assert "store bytes was ok in OLD and is failed in NEW: failed: reward died" in output.out
    assert "store numpy was failed in OLD and is ok in NEW: failed: reward died" in output.out
    assert "Only in OLD: rdt nixl, graph shm\nOnly in NEW: store driver-queue\n" in output.out


def test_older_records_with_both_group_flags_are_the_configuration_with_one(tmp_path, capsys):
    old = make_record("refs", *QUIET, flags={"in_flight": 2, "check_every": 2})
    new = make_record("refs", *QUIET, flags={"in_flight": 2})
    printed = run(capsys, write_sides(tmp_path, [old], [new])).out
    assert "Only in" not in printed
    assert len(table_cells(printed)) == 6


def test_too_few_runs_have_no_verdict_and_cannot_pass(tmp_path, capsys):
    sides = write_sides(tmp_path, OLD, [OLD[0], make_record("bytes", *slow_down(9)[:2])])
    assert run(capsys, sides).out.count("2 runs: no verdict") == 1
    with pytest.raises(UsageError, match="store bytes has too few runs"):
        compare.main([*sides, "--fail-above", "5%"])


@pytest.mark.parametrize(("new", "words"), [
    (make_record("refs", *QUIET, batch_size=8), "sizes batch_size: 1024 → 8"),
    (make_record("refs", *QUIET, flow="ppo"), "flow: online-dpo → ppo"),
    (make_record("refs", *QUIET, device="cuda"), "device: cpu → cuda"),
    (make_record("refs", *[make_run([1.0], pair="a")] * 3), "paired: False → True"),
    (make_record("refs", *QUIET, layout={"placement": "spread"}), "layout placement: pack → spread"),
    (make_record("refs", *QUIET, traced=True), "traced: False → True"),
    (make_record("refs", *QUIET, environment={"memory_gib": 4}), "or versions, memory_gib: 8 → 4"),
    (make_record("refs", *QUIET, environment={"versions": {"ray": "1"}}), "versions: None → {'ray': '1'}"),
    (make_record("refs", *QUIET, environment={"boot": "b"}), "are of different boots or kernels, boot"),
    (make_record("bytes", *QUIET), "no configuration is on both sides: OLD has store refs, NEW store bytes"),
    (make_record("refs"), "NEW none"),
])  # fmt: skip
def test_different_measurements_are_rejected_with_the_difference(tmp_path, new, words):
    with pytest.raises(RecordError) as error:
        compare.main(write_sides(tmp_path, [make_record("refs", *QUIET)], [new]))
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_limit_below_the_smallest_slowdown_that_could_be_found_is_a_warning(tmp_path, capsys):
    noisy = [[1.0], [1.6], [0.8], [1.3], [0.7]]
    sides = write_sides(
        tmp_path, [make_record("refs", *noisy)], [make_record("refs", *slow_down(1.2, noisy))]
    )
    printed = run(capsys, [*sides, "--fail-above=5%"])
    *_, verdict, detectable = table_cells(printed.out)
    assert verdict == "cannot be told apart"
    assert f"warning: store refs: a slowdown below {detectable} could be missed" in printed.err


def test_a_side_that_is_of_two_machines_in_itself_is_named(tmp_path):
    new = make_record("refs", *QUIET)
    other = make_record("ref-queue", *QUIET, environment={"cpu_model": "Other"})
    sides = write_sides(tmp_path, [new], [new, other])
    problem = "alone, the records are of different machines or versions, cpu_model: "
    with pytest.raises(RecordError, match=f"^in {sides[1]} {problem}"):
        compare.main(sides)
    sides = write_sides(tmp_path / "each", [new], [other])
    with pytest.raises(RecordError, match=r"^the records are of different machines"):
        compare.main(sides)


def test_an_injected_delay_is_compared_with_the_configuration_without_it_and_not_both_at_once(
    tmp_path, capsys
):
    delayed = make_record("refs", *slow_down(1.25), flags={"inject": "policy:1:delay=250ms"})
    sides = write_sides(tmp_path, OLD, [delayed])
    cells = table_cells(run(capsys, sides).out)
    assert cells[:2] == ["store refs --inject policy:1:delay=250ms / store refs", "1,000 → 1,250"]
    write_record(Path(sides[1]) / "both.json", OLD[0])
    with pytest.raises(RecordError, match="two results of the same measurement"):
        compare.main(sides)


@pytest.mark.parametrize(("factors", "transport", "cells"), [
    ((1.049, 1.05, 1.051), "refs", ["0.952", "0.95 to 0.955", "slower"]),
    ((0.5, 0.501, 0.499), "bytes", ["2", "1.99 to 2.01", "faster"]),
])  # fmt: skip
def test_paired_runs_are_compared_pair_by_pair(tmp_path, capsys, factors, transport, cells):
    drift = {"a": [1.0, 3.0, 5.0], "b": [1.1, 9.0, 4.0], "c": [0.7, 2.0, 2.0]}
    old, new = [], []
    for factor, (pair, seconds) in zip(factors, drift.items(), strict=True):
        old.append(make_run(seconds, pair=pair))
        new.append(make_run([factor * time for time in seconds], pair=pair))
    sides = write_sides(tmp_path, [make_record("refs", *old)], [make_record(transport, *new)])
    output = run(capsys, [*sides, "--fail-above", "4%"], int(transport == "refs"))
    assert table_cells(output.out)[2:5] == cells


@pytest.mark.parametrize("columns", [80, 100])
def test_a_comparison_fits_the_terminal_and_breaks_no_word(tmp_path, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    changes = {
        "runtime": "graph",
        "flow": "rollout -> trainer: tokens int64 8MB, logprobs float32 4MB",
    }
    changes["flags"] = {"retain_memory": True, "check_every": 50}
    old = [make_record("zero-copy", [0.2], [0.31], [0.2], message="packed", **changes)]
    new = [make_record("zero-copy", [0.19], [0.2], [0.25], message="packed", **changes)]
    old += [make_record("refs", [1.0], [1.01], [0.99]), make_record("numpy", [1.0])]
    failed = make_run([], status="failed", reason="the actor policy died " * 5, processes={})
    new += [make_record("refs", failed), make_record("bytes", [1.0])]
    output = run(capsys, [*write_sides(tmp_path, old, new), "--mixed"]).out
    lines = output.splitlines()
    assert max(map(len, lines)) <= columns
    words = set(output.split())
    expected = "graph zero-copy --retain-memory --check-every --message packed cannot told apart"
    assert set(expected.split()) <= words
    assert "policy" in words and "Only" in words
