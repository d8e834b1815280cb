"""Two sets of records beside each other: verdicts, forms, what is refused, and what fails."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from made_records import a_record, a_run, a_sweep, written

import compare_results

ROOT = Path(compare_results.__file__).parent
# The trips of five runs; the geometric mean of their medians is 1.
QUIET = [[1.0, 1.02, 0.9], [1.01, 1.01], [1 / 1.01], [1.005], [1 / 1.005]]


def times(factor, runs=QUIET):
    return [[factor * seconds for seconds in run] for run in runs]


@pytest.fixture
def sides(tmp_path):
    """sides(old records, new records) -> the arguments of compare_results.py, two folders."""

    def sides(old, new):
        for name, records in (("old", old), ("new", new)):
            (tmp_path / name / "deeper").mkdir(parents=True)
            for index, record in enumerate(records):
                written(tmp_path / name / ("deeper" * (index % 2)) / f"{index}.json", record)
        return [str(tmp_path / "old"), str(tmp_path / "new")]

    return sides


def said(capsys, argv, code=0):
    assert compare_results.main(argv) == code
    return capsys.readouterr()


def refused(capsys, argv):
    found = said(capsys, argv, 2)
    assert found.out == "" and found.err.startswith("error: ") and found.err.count("\n") == 1
    return found.err


OLD = [a_record("refs", *QUIET), a_record("bytes", *QUIET), a_record("ref-queue", *QUIET)]
NEW = [a_record("refs", *times(1.25)), a_record("bytes", *times(0.5)), a_record("ref-queue", *times(1.001))]


def test_each_row_has_both_times_their_ratio_with_its_interval_and_a_verdict(sides, capsys):
    lines = said(capsys, sides(OLD, NEW)).out.splitlines()
    cells = [re.split(r"  +", line) for line in lines[1:4]]
    assert [line[:4] for line in cells] == [
        ["store ref-queue", "1,000", "1,001", "1.001"],
        ["store refs", "1,000", "1,250", "1.250"],
        ["store bytes", "1,000", "500", "0.500"],
    ]
    assert [line[-2:] for line in cells] == [
        ["5, 5", "no clear difference"], ["5, 5", "slower"], ["5, 5", "faster"],
    ]  # fmt: skip
    low, high = map(float, cells[1][4].split(" to "))
    assert 1.2 < low < 1.25 < high < 1.3
    # The cube root of 1.25 * 0.5 * 1.001.
    assert lines[4] == "Geometric mean of new / old over 3 rows: 0.855"


def test_two_runs_of_the_same_are_no_clear_difference_and_pass(sides, capsys):
    found = said(capsys, [*sides(OLD, OLD), "--fail-above", "5%"])
    assert found.out.count("no clear difference") == 3 and found.err == ""


@pytest.mark.parametrize(("limit", "code"), [("5%", 1), ("24.9%", 1), ("26%", 0)])
def test_a_row_that_is_slower_by_more_fails_and_is_named(sides, capsys, limit, code):
    found = said(capsys, [*sides(OLD, NEW), "--fail-above", limit], code)
    assert found.err == "error: store refs is slower by 25.0%\n" * code


def test_a_row_that_seems_slower_within_the_noise_does_not_fail(sides, capsys):
    noisy = [[1.0], [1.6], [0.8], [1.3], [0.7]]
    said(capsys, [*sides([a_record("refs", *noisy)], [a_record("refs", *times(1.2, noisy))]), "--fail-above", "5%"])


def test_a_row_that_is_no_longer_ok_fails_and_is_told(sides, capsys):
    broken = a_record("bytes", *[a_run([1.0], status="failed", reason="reward died")] * 5)
    found = said(capsys, [*sides(OLD, [NEW[2], broken]), "--fail-above", "5%"], 1)
    assert found.err == "error: store bytes is failed\n"
    assert "store bytes was ok in OLD and is not in NEW: 5 of 5" not in found.out
    assert "store bytes was ok in OLD and is not in NEW: failed, reward died" in found.out


def test_rows_of_one_side_are_named(sides, capsys):
    found = said(capsys, sides([*OLD, a_record("payload-queue", [1.0])], [*NEW, a_record("numpy", [1.0])])).out
    assert "Only in OLD: store payload-queue\nOnly in NEW: store numpy\n" in found


@pytest.mark.parametrize(("count", "word"), [(1, "one run: no verdict"), (2, "2 runs: no verdict")])
def test_too_few_runs_have_no_verdict_and_cannot_pass_for_one(sides, capsys, count, word):
    argv = sides(OLD, [OLD[0], a_record("bytes", *times(9)[:count])])
    found = said(capsys, argv).out
    assert found.count(word) == 1 and "1 of 2 rows have fewer than 3 runs" in found and "--runs 5" in found
    assert "1 of 2 rows have fewer than 3 runs" in refused(capsys, [*argv, "--fail-above", "5%"])


TRACED = a_run([1.0], spans=[("driver", 0, "wait", "in one process", 0, 0.0, 1e6)], trips_us=[(0.0, 1e6)])


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (a_record("refs", *QUIET, batch_size=8), "sizes batch_size 1024 and 8"),
        (a_record("refs", *QUIET, flow="ppo"), "flow online-dpo and ppo"),
        (a_record("refs", *QUIET, message="fields"), "message bare and fields"),
        (a_record("refs", *QUIET, device="cuda"), "device cpu and cuda"),
        (a_record("refs", *[a_run([1.0], alternation="a")] * 3), "alternated False and True"),
        (a_record("refs", *QUIET, layout={"placement": "spread"}), "layout placement pack and spread"),
        (a_record("refs", TRACED), "traced False and True"),
        (a_record("refs", *QUIET, environment={"memory_gib": 4}), "the machines are unlike, memory_gib 8 and 4"),
        (a_record("refs", *QUIET, environment={"versions": {"ray": "1"}}), "versions None and {'ray': '1'}"),
        (a_record("bytes", *QUIET), "no row is on both sides: OLD has store refs, NEW store bytes"),
    ],
    ids=["size", "flow", "message", "device", "alternated", "layout", "traced", "machine", "versions", "nothing alike"],
)
def test_what_was_not_measured_alike_is_refused_with_what_differs(sides, capsys, new, words):
    assert words in refused(capsys, sides([a_record("refs", *QUIET)], [new]))


def test_unlike_machines_are_compared_where_that_is_wanted(sides, capsys):
    argv = sides(OLD, [a_record("refs", *QUIET, environment={"cpu_model": "Another"})])
    assert "cpu_model Test CPU and Another" in refused(capsys, argv)
    assert "no clear difference" in said(capsys, [*argv, "--mixed"]).out


def test_a_delayed_row_is_compared_with_itself_without_the_delay_and_not_both_at_once(sides, capsys):
    delayed = a_record("refs", *times(1.25))
    delayed.arguments["inject"] = "policy:1:delay=250ms"
    argv = sides(OLD, [delayed])
    assert "store refs --inject policy:1:delay=250ms   1,000   1,250" in said(capsys, argv).out
    written(Path(argv[1]) / "both.json", OLD[0])
    assert "which measure the same" in refused(capsys, argv)


def test_several_trips_under_way_are_compared_by_their_whole_episodes(sides, capsys):
    def overlapping(seconds):
        runs = [a_run([9.0, 9.0], episode_seconds=[seconds * factor]) for factor in (1, 1.01, 1.02)]
        return [a_record("refs", *runs, flags={"in_flight": 2})]

    line = said(capsys, sides(overlapping(4), overlapping(8))).out.splitlines()[1]
    assert re.split(r"  +", line)[1:4] == ["2,020", "4,040", "2.000"]


def test_runs_that_alternated_are_compared_trip_by_trip_and_no_others_with_them(sides, capsys):
    def at(*factors):
        drift = ([1.0, 3.0, 5.0], [1.1, 9.0, 4.0], [0.7, 2.0, 2.0])
        runs = [[factor * trip for trip in trips] for factor, trips in zip(factors, drift, strict=True)]
        return [a_record("refs", *[a_run(own, alternation=id) for own, id in zip(runs, "abc", strict=True)])]

    found = said(capsys, [*sides(at(1, 1, 1), at(1.049, 1.05, 1.051)), "--fail-above", "4%"], 1)
    assert re.split(r"  +", found.out.splitlines()[1])[3:] == ["1.050", "1.048 to 1.052", "3, 3", "slower"]


def test_flows_are_told_where_there_are_several(sides, capsys):
    both = [OLD[0], a_record("refs", *QUIET, flow="round-trip")]
    lines = said(capsys, sides(both, both)).out.splitlines()
    assert {line.split("  ")[0] for line in lines[1:3]} == {
        "store refs, online-dpo, 448 MiB", "store refs, round-trip, 2 KiB",
    }  # fmt: skip


def test_the_same_numbers_as_json_csv_and_markdown(sides, capsys):
    argv = sides(OLD, NEW)
    found = json.loads(said(capsys, [*argv, "--json"]).out)
    row = found["rows"][1]
    assert (row["row"], row["verdict"], row["old_runs"]) == ("store refs", "slower", 5)
    assert row["ratio"] == pytest.approx(1.25) == pytest.approx(row["new_seconds"] / row["old_seconds"])
    assert found["geometric_mean"] == pytest.approx((1.25 * 0.5 * 1.001) ** (1 / 3))
    assert (found["only_old"], found["broken"]) == ([], [])
    sheet = said(capsys, [*argv, "--csv"])
    assert sheet.err.startswith("Geometric mean of new / old over 3 rows")
    header, *lines = csv.reader(sheet.out.splitlines())
    assert dict(zip(header, lines[1], strict=True))["new / old"] == "1.250"
    text = said(capsys, [*argv, "--markdown"]).out
    assert "| store refs | 1,000 | 1,250 | 1.250 |" in text and "\n\nGeometric mean" in text
    said(capsys, [*argv, "--json", "--csv"], 2)


@pytest.mark.parametrize("share", ["5", "-1%", "much%", "nan%"])
def test_what_is_no_share_is_refused(capsys, share):
    assert "give 5%, say" in refused(capsys, ["a", "b", f"--fail-above={share}"])


def test_a_folder_without_records_and_a_missing_file_are_refused(capsys, tmp_path):
    assert "holds no record" in refused(capsys, [str(tmp_path), str(tmp_path)])
    assert "cannot read" in refused(capsys, [str(tmp_path / "none.json"), str(tmp_path)])


def test_it_imports_neither_ray_nor_torch_nor_matplotlib():
    code = "import sys, compare_results; sys.exit(bool({'ray', 'torch', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


def test_a_row_that_no_longer_runs_is_told_also_where_it_was_traced_or_is_a_point_of_a_sweep(sides, capsys):
    failed = {"status": "failed", "reason": "died"}
    traced, untraced = a_record("refs", [1.0]), a_record("refs", a_run([], **failed))
    traced.runs[0].spans = [("driver", 1, "wait", "", 1, 0.0, 1.0)]
    untraced.arguments["trace"] = True
    points = {2**20: a_run([1.0]), 2**21: a_run([2.0])}
    less = points | {2**21: a_run([], status="waived", reason="too little memory")}
    old, new = a_sweep("bytes", "payload", points), a_sweep("bytes", "payload", less)
    found = said(capsys, sides([traced, old], [untraced, new]))
    assert "store refs was ok in OLD and is not in NEW: failed, died" in found.out
    assert "store bytes was ok in OLD and is not in NEW: waived, too little memory" in found.out


def test_a_record_that_began_nothing_is_of_no_other_machine(sides, capsys):
    nothing = a_record("refs", a_run([], status="failed", reason="interrupted"))
    nothing.environments = {}
    assert "no clear difference" in said(capsys, sides([OLD[0], nothing], [OLD[0]])).out


def test_a_flow_that_this_version_does_not_have_is_refused(sides, capsys):
    strange = a_record("refs", *QUIET)
    strange.row.flow = "of-tomorrow"
    assert "of a flow that is unknown here (of-tomorrow)" in refused(capsys, sides([strange], [strange]))
