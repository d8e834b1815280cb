"""Test the comparison of two sets of records: verdicts, output forms, what is rejected, and what fails."""

import re
from pathlib import Path

import pytest
from made_records import make_record, make_run, write_record

from dataflow.commands import compare
from dataflow.errors import RecordError, SuiteError, UsageError

# The iterations of five runs; the geometric mean of their medians is 1.
QUIET = [[1.0, 1.02, 0.9], [1.01, 1.01], [1 / 1.01], [1.005], [1 / 1.005]]


def slow_down(factor, runs=QUIET):
    return [[factor * seconds for seconds in run] for run in runs]


@pytest.fixture
def write_sides(tmp_path):
    """write_sides(old records, new records) -> the arguments of compare, two folders."""

    def write_sides(old, new):
        for name, records in (("old", old), ("new", new)):
            (tmp_path / name / "deeper").mkdir(parents=True)
            for index, record in enumerate(records):
                write_record(tmp_path / name / ("deeper" * (index % 2)) / f"{index}.json", record)
        return [str(tmp_path / "old"), str(tmp_path / "new")]

    return write_sides


def run(capsys, argv, code=0):
    assert compare.main(argv) == code
    return capsys.readouterr()


def table_cells(text, row):
    """Return the cells of a row up to the verdict, without that of the flow."""
    cells = re.split(r"  +", text.splitlines()[row])
    return [cells[0], *cells[2:8]]


OLD = [make_record("refs", *QUIET), make_record("bytes", *QUIET), make_record("ref-queue", *QUIET)]
NEW = [make_record("refs", *slow_down(1.25)), make_record("bytes", *slow_down(0.5)),
       make_record("ref-queue", *slow_down(1.001))]  # fmt: skip


def test_each_pair_has_both_times_the_ratio_with_its_interval_and_a_verdict(write_sides, capsys):
    text = run(capsys, write_sides(OLD, NEW)).out
    rows = [table_cells(text, row) for row in (1, 2, 3)]
    assert [row[:4] for row in rows] == [
        ["store ref-queue", "1,000", "1,001", "1.001"], ["store refs", "1,000", "1,250", "1.250"],
        ["store bytes", "1,000", "500", "0.500"],
    ]  # fmt: skip
    assert [row[-2:] for row in rows] == [["5, 5", "cannot be told apart"], ["5, 5", "slower"], ["5, 5", "faster"]]
    low, high = map(float, rows[1][4].split(" to "))
    assert 1.2 < low < 1.25 < high < 1.3


def test_a_configuration_that_is_slower_by_more_fails_and_is_named(write_sides, capsys):
    sides = write_sides(OLD, NEW)
    for limit, code in (("5%", 1), ("24.9%", 1), ("26%", 0)):
        output = run(capsys, [*sides, "--fail-above", limit], code)
        assert output.err == "error: store refs is slower by 25.0%\n" * code


def test_what_differs_in_the_environment_is_named(write_sides, capsys):
    changes = [{"variables": {"OMP_NUM_THREADS": count}, "boot": count} for count in ("1", "2")]
    old, new = ([make_record(name, *QUIET, environment=change) for name in ("refs", "bytes")] for change in changes)
    new[1].environments["0"]["variables"] = {"OMP_NUM_THREADS": "2", "RAY_x": "1"}
    lines = run(capsys, [*write_sides(old, new), "--mixed"]).out.splitlines()
    assert lines[3:] == ["variables OMP_NUM_THREADS: 1 → 2", "boot: 1 → 2", "variables RAY_x: None → 1"]


def test_times_of_other_work_have_no_factor_and_never_fail(write_sides, capsys):
    view = make_record("refs", *(make_run(run, readers_own_a_copy=False) for run in slow_down(2)))
    output = run(capsys, [*write_sides([make_record("refs", *QUIET)], [view]), "--fail-above", "5%"]).out
    assert "where readers get a view, and store refs takes 1,000 ms (990.3 to 1,010) where readers own a copy" in output


def test_neither_noise_nor_an_equal_measurement_fails(write_sides, capsys):
    noisy = [[1.0], [1.6], [0.8], [1.3], [0.7]]
    sides = write_sides([OLD[0], make_record("bytes", *noisy)], [OLD[0], make_record("bytes", *slow_down(1.2, noisy))])
    assert run(capsys, [*sides, "--fail-above", "5%"]).out.count("cannot be told apart") == 2


def test_a_configuration_that_is_not_ok_or_has_more_failures_fails(write_sides, capsys):
    died = make_run([1.0], status="failed", reason="reward died")
    new = [make_record("bytes", *[died] * 5), make_record("refs", *QUIET, died), make_record("numpy", *QUIET)]
    never = make_record("zmq-ipc", make_run([], status="skipped", reason="no zmq"), runtime="peers")
    sides = write_sides([*OLD, make_record("numpy", died), never], [*new, make_record("payload-queue", *QUIET)])
    output = run(capsys, [*sides, "--fail-above", "5%"], 1)
    assert output.err.splitlines() == [
        "error: store refs fails more often: 1 of 6 runs failed: reward died",
        "error: store bytes fails more often: failed: reward died",
        "error: store ref-queue is missing in NEW",
    ]
    assert "store bytes was ok in OLD and is failed in NEW: failed: reward died" in output.out
    assert "store numpy was failed in OLD and is ok in NEW: failed: reward died" in output.out
    assert "Only in OLD: store ref-queue, peers zmq-ipc\nOnly in NEW: store payload-queue\n" in output.out


def test_failures_are_compared_as_shares(write_sides, capsys):
    died = make_run([], status="failed", reason="reward died")
    sides = write_sides(*([make_record("refs", *runs, died)] for runs in (QUIET[:4], [*QUIET * 3, died])))
    assert run(capsys, [*sides, "--fail-above", "5%"]).err == ""  # 1 of 5, and 2 of 17


@pytest.mark.parametrize(("count", "verdict"), [(1, "one run: no verdict"), (2, "2 runs: no verdict")])
def test_too_few_runs_have_no_verdict_and_cannot_pass(write_sides, capsys, count, verdict):
    sides = write_sides(OLD, [OLD[0], make_record("bytes", *slow_down(9)[:count])])
    assert run(capsys, sides).out.count(verdict) == 1
    with pytest.raises(UsageError, match="store bytes has too few runs"):
        compare.main([*sides, "--fail-above", "5%"])


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (make_record("refs", *QUIET, batch_size=8), "sizes batch_size: 1024 → 8"),
        (make_record("refs", *QUIET, flow="ppo"), "flow: online-dpo → ppo"),
        (make_record("refs", *QUIET, message="fields"), "message: flat → fields"),
        (make_record("refs", *QUIET, device="cuda"), "device: cpu → cuda"),
        (make_record("refs", *[make_run([1.0], pair="a")] * 3), "paired: False → True"),
        (make_record("refs", *QUIET, layout={"placement": "spread"}), "layout placement: pack → spread"),
        (make_record("refs", *QUIET, traced=True), "traced: False → True"),
        (make_record("refs", *QUIET, environment={"memory_gib": 4}), "or versions, memory_gib: 8 → 4"),
        (make_record("refs", *QUIET, environment={"versions": {"ray": "1"}}), "versions: None → {'ray': '1'}"),
        (make_record("bytes", *QUIET), "no configuration is on both sides: OLD has store refs, NEW store bytes"),
        (make_record("refs"), "NEW none"),
    ],
    ids=["size", "flow", "message", "device", "paired", "layout", "traced", "machine", "versions", "other", "none"],
)
def test_different_measurements_are_rejected_with_the_difference(write_sides, new, words):
    with pytest.raises(RecordError) as error:
        compare.main(write_sides([make_record("refs", *QUIET)], [new]))
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(("runs", "is_seen"), [(QUIET, True), ([[0.9], [1.2], [1.0], [1.1], [0.8]], False)])
def test_the_smallest_slowdown_that_could_be_found_is_printed_and_a_limit_below_it_is_a_warning(
    write_sides, capsys, runs, is_seen
):
    printed = run(capsys, [*write_sides([make_record("refs", *runs)], [make_record("refs", *runs)]), "--fail-above=5%"])
    detectable = re.split(r"  +", printed.out.splitlines()[1])[8]
    assert (float(detectable.rstrip("%")) < 5) == is_seen
    warning = f"warning: store refs: a slowdown below {detectable} could be missed"
    assert (warning in printed.err) == (not is_seen)


@pytest.mark.parametrize("key", ["boot", "kernel", "transparent_hugepages"])
def test_two_boots_kernels_or_settings_are_rejected_unless_mixed(write_sides, capsys, key):
    sides = write_sides(*([make_record("refs", *QUIET, environment={key: value})] for value in ("a", "b")))
    words = f"of the table configurations are of different boots or kernels, {key}: a → b: "
    with pytest.raises(RecordError, match=words):
        compare.main(sides)
    assert f"{key}: a → b\n" in run(capsys, [*sides, "--mixed"]).out


def test_different_machines_are_compared_with_a_flag_and_without_runs_there_is_no_machine(write_sides, capsys):
    failed = make_record("refs", make_run([], status="failed", reason="interrupted"))
    failed.environments = {}
    other = make_record("refs", *QUIET, environment={"cpu_model": "Another"})
    assert "cannot be told apart" in run(capsys, [*write_sides([OLD[0], failed], [other]), "--mixed"]).out


def test_an_injected_delay_is_compared_with_the_configuration_without_it_and_not_both_at_once(write_sides, capsys):
    delayed = make_record("refs", *slow_down(1.25), flags={"inject": "policy:1:delay=250ms"})
    sides = write_sides(OLD, [delayed])
    cells = table_cells(run(capsys, sides).out, 1)
    assert cells[:3] == ["store refs --inject policy:1:delay=250ms / store refs", "1,000", "1,250"]
    write_record(Path(sides[1]) / "both.json", OLD[0])
    with pytest.raises(RecordError, match="two results of the same measurement"):
        compare.main(sides)


def paired_record(factors, transport="refs", names="abc"):
    drift = ([1.0, 3.0, 5.0], [1.1, 9.0, 4.0], [0.7, 2.0, 2.0])
    runs = [[factor * seconds for seconds in run] for factor, run in zip(factors, drift, strict=True)]
    pairs = [make_run(seconds, pair=name) for seconds, name in zip(runs, names, strict=True)]
    return make_record(transport, *pairs, table="paired")


@pytest.mark.parametrize(("factors", "transport", "cells"), [
    ((1.049, 1.05, 1.051), "refs", ["1.050", "1.048 to 1.052", "3, 3", "slower"]),
    ((0.5, 0.501, 0.499), "bytes", ["0.500", "0.498 to 0.502", "3, 3", "faster"]),
])  # fmt: skip
def test_paired_runs_are_compared_pair_by_pair_also_those_of_two_configurations(
    write_sides, capsys, factors, transport, cells
):
    sides = write_sides([paired_record((1, 1, 1))], [paired_record(factors, transport)])
    output = run(capsys, [*sides, "--fail-above", "4%"], int(transport == "refs"))
    assert table_cells(output.out, 1)[3:] == cells


@pytest.mark.parametrize("share", ["5", "-1%", "much%", "nan%"])
def test_a_share_must_be_a_percentage(share):
    with pytest.raises(SuiteError, match="is not a percentage"):
        compare.main(["a", "b", f"--fail-above={share}"])
