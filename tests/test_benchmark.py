"""The suite runner: its rows, what it refuses, and what it says without measuring anything."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_records import a_record, a_run

import benchmark
from common.analysis.expected import expected_seconds, published
from common.errors import UsageError
from common.plan.options import RESULTS
from common.record import files
from common.record.environment import describe_environment
from common.record.rows import LADDER, ROWS
from common.record.schema import Run
from common.record.suites import SUITES, rows_of
from common.run.row_plan import plan_of
from common.runtime import gpus

QUESTION = ("--flow", "rollout-1, rollout-2 -> trainer: tokens int64 80kB, logprobs float32 40kB")


def said(capsys, *argv):
    assert benchmark.main([*argv]) == 0
    return capsys.readouterr().out


@pytest.mark.usefixtures("no_gpu")
def test_the_list_has_every_row_and_whether_this_machine_can_run_it(capsys):
    lines = said(capsys, "--list").splitlines()
    here = {row.name: next(line for line in lines if line.startswith(f"{row.name}  ")) for row in ROWS}
    assert " yes " in here["graph mapped"]
    assert "needs 3 GPUs and found 0" in here["graph nccl"]
    refused = said(capsys, "--list", *QUESTION, "--address", "auto").splitlines()
    assert any(line.startswith("graph mapped") and "one machine's memory" in line for line in refused)


def test_a_dry_run_says_what_would_be_measured_and_measures_nothing(capsys, tmp_path):
    folder = tmp_path / "nothing"
    rows = ("--rows", "store refs", "graph shm --message packed", "graph mapped --copy-out")
    text = said(capsys, *QUESTION, *rows, "--dry-run", "--output-dir", str(folder), "--runs", "2")
    for words in ("240 kB a trip", "rollout-1 -> trainer         120 kB", "graph mapped --copy-out", " 30 ", "in all"):
        assert words in text
    assert "graph shm --message packed" in text
    assert not folder.exists()


@pytest.mark.usefixtures("no_gpu")
def test_rows_that_alternate_with_another_checkout_are_planned_twice_and_those_that_are_waived_told(capsys, tmp_path):
    rows = ("--rows", "torch memcpy", "torch nccl", "--against", str(RESULTS.parent))
    lines = said(capsys, *rows, "--dry-run", "--output-dir", str(tmp_path / "nothing")).splitlines()
    assert any(line.startswith("torch nccl: waived, ") for line in lines)
    names = [line.split("  ")[0] for line in lines if line.startswith("torch memcpy")]
    assert names == ["torch memcpy", f"torch memcpy, {RESULTS.parent.name}"]
    assert not (tmp_path / "nothing").exists()


def test_flags_of_all_rows_and_of_one():
    plan, waived = plan_of("graph shm --in-flight 2", ["--iterations", "7", "--message-rows", "2", *PPO])
    assert (plan.row.name, plan.options.in_flight, plan.options.iterations, plan.options.rows) == ("graph shm", 2, 7, 2)
    assert waived is None


@pytest.mark.parametrize(
    ("row", "flags", "of_suite", "trips", "seconds"),
    [
        ("torch memcpy", [], False, 30, None),
        ("torch memcpy --iterations 5", [], False, 5, None),
        ("torch memcpy --iterations 5", ["--iterations", "7"], False, 5, None),
        ("torch memcpy --duration 2s", ["--iterations=7"], False, None, 2.0),
        ("torch memcpy --iterations 5", ["--iterations", "7"], True, 7, None),
        ("torch memcpy --iterations 5", ["--duration", "2s"], True, None, 2.0),
        ("torch memcpy --iterations=5", ["--duration=2s"], True, None, 2.0),
        ("torch memcpy --sweep payload=1MiB,2MiB", [], False, None, 1.0),
    ],
)
def test_a_rows_own_trips_count_and_a_suites_give_way(row, flags, of_suite, trips, seconds):
    plan, _ = plan_of(row, flags, of_suite=of_suite)
    assert plan.options.duration == seconds
    assert trips is None or plan.options.iterations == trips


PPO = ("--flow", "ppo", "--prompt-len", "8", "--response-len", "8")


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        ([], "give a suite or --rows"),
        (["quick", "--rows", "store refs"], "not both"),
        (["quikc"], "there is no suite quikc"),
        (["--rows", "graph shmm"], "did you mean graph shm?"),
        (["--rows", "graph"], "there is no row graph"),
        (["--rows", "store refs", "--runs", "0"], "--runs 0"),
        (["quick", "--alternate"], "--alternate is for --rows"),
        (["--rows", "store refs", "--alternate"], "give two --rows or more"),
        (["--rows", "store refs", "torch gloo --duration 1s", "--alternate"], "not --duration: give"),
        (["--rows", "store refs", "torch gloo --episode 5", "--alternate"], "as many trips: give all the same"),
        (["--rows", "torch gloo", "torch gloo --in-flight 4", "--episode", "8", "--alternate"], "--in-flight"),
        (["--rows", "torch gloo", "torch gloo --payload 1MiB", "--alternate"], "they move the same: give"),
        (["--rows", "torch gloo", "torch gloo --payload 1MiB"], "no table in common: measure them apart"),
        (["--rows", "torch gloo", "--trace", "t.json"], "--trace is of one row"),
        (["--rows", "torch gloo --output x.json"], "--output is of one row"),
        (["--rows", "torch gloo --runs 2"], "--runs is of all rows"),
        (["--rows", "graph mapped", "torch gloo", "--alternate"], "these rows need 7 cores and there are 2: measure"),
        (["--rows", "store refs", "--against", "/tmp"], "no checkout of this project"),
        (["--rows", "store refs", "--against", ".", "--alternate"], "--alternate is for --rows by themselves"),
        (["--rows", "store driver-queue --in-flight 2"], "store driver-queue: --in-flight 2"),
        (["--rows", "store refs", "--transprot", "x"], "store refs: unrecognized arguments"),
        (["--rows", "store refs", "--payload-bytes", "8"], "store refs: --payload-bytes is for"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_measured_is_refused_in_one_line(monkeypatch, argv, reason):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    with pytest.raises(UsageError) as error:
        benchmark.main(argv)
    assert reason in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("suite", sorted(SUITES.keys() - {"gpu"}))
def test_every_row_of_a_suite_can_be_planned_on_this_machine_or_is_waived(suite, tmp_path):
    traced = SUITES[suite].traced
    items = benchmark.prepare(list(rows_of(suite)), ["--device", "cpu"], tmp_path, suite)
    assert len({item.output for item in items}) == len(items)
    assert all(item.waived or (bool(item.plan.options.trace) == traced and item.seconds > 0) for item in items)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("no_gpu")
def test_the_gpu_suite_says_so_where_there_is_none(tmp_path):
    with pytest.raises(UsageError, match="torch sees no GPU"):
        benchmark.main(["gpu", "--output-dir", str(tmp_path / "records")])
    assert not (tmp_path / "records").exists()


def test_the_gpu_suite_plans_every_row_that_one_gpu_is_good_for(monkeypatch, tmp_path):
    monkeypatch.setattr(gpus, "count", lambda: 1)
    monkeypatch.setattr(gpus, "need_modules", lambda modules: None)
    items = benchmark.prepare(list(rows_of("gpu")), [], tmp_path, "gpu")
    assert {item.plan.device for item in items} == {"cuda"}
    ready = {(item.record.row.flow, item.plan.row.name) for item in items if not item.waived}
    proofs = {("online-dpo", "rdt cuda-ipc"), ("online-dpo", "torch nccl-one-gpu"), ("online-dpo", "graph mapped")}
    assert proofs | {("round-trip", "graph nccl"), ("round-trip", "graph mapped")} <= ready
    assert {item.record.edges[0].bytes for item in items if item.record.row.flow == "round-trip"} == {40_000_000}
    assert sum(item.seconds for item in items) < 25 * 60


def test_what_a_run_will_take_grows_with_its_bytes_and_trips(make_plan):
    known = published(RESULTS / "published")
    assert set(known) <= set(LADDER) and known["store driver-queue"] > known["graph shm"]

    def expected(*flags):
        return expected_seconds(make_plan("store", "--transport", "refs", *flags), known)

    assert expected("--batch-size", "4") < expected("--iterations", "200", "--batch-size", "4") < expected()
    assert expected("--batch-size", "4", "--duration", "30s") == pytest.approx(37, abs=2)


def test_several_runs_take_turns_in_an_order_that_its_seed_repeats():
    items = list("abcdefgh")
    alone = [[item] for item in items]
    turns = benchmark.turns_of(alone, 5, 1)
    orders = ["".join(item for (item,) in turns[begin : begin + 8]) for begin in range(0, 40, 8)]
    assert all(sorted(order) == items for order in orders) and len(set(orders)) == 5
    assert benchmark.turns_of(alone, 5, 1) == turns != benchmark.turns_of(alone, 5, 2)
    slow, quick = SimpleNamespace(seconds=9), SimpleNamespace(seconds=1)
    assert benchmark.turns_of([[slow], [quick]], 1, 1) == [[quick], [slow]]
    together = ["".join(turn) for turn in benchmark.turns_of([items], 5, 1)]
    assert all(sorted(order) == items for order in together) and len(set(together)) == 5


def test_what_is_finished_is_told_by_record_and_not_by_name(monkeypatch):
    made = []

    def run(plan, record, output, order):
        made.append((order, output.name))
        record.runs.append(a_run([1.0]))
        return 0

    monkeypatch.setattr(benchmark, "add_runs", run)
    monkeypatch.setattr(benchmark, "write_trace", lambda plan, record: None)
    same = {"label": "store refs", "plan": None, "seconds": 1.0}
    done, begun = (
        SimpleNamespace(**same, output=Path(name), finished=finished, record=a_record("refs"))
        for name, finished in (("bytes", 2), ("tensors", 1))
    )
    assert benchmark.measure([[done], [begun], [begun], [done]]) == [0]
    assert made == [(2, "tensors")]


def test_of_rows_that_alternate_a_turn_is_finished_where_all_of_them_are(monkeypatch, capsys):
    made = []

    def run(rows, order):
        made.append((order, [output.name for _, _, output in rows]))
        for factor, (_, record, _) in enumerate(rows, 1):
            record.runs.append(a_run([1.0 * factor, 3.0 * factor], alternation=str(order)))
        return [0, 0]

    monkeypatch.setattr(benchmark, "run_alternately", run)
    monkeypatch.setattr(benchmark, "write_trace", lambda plan, record: None)
    one, other = (
        SimpleNamespace(label=name, plan=None, seconds=1.0, output=Path(name), finished=finished,
                        record=a_record("refs"))
        for name, finished in (("first", 2), ("second", 1))
    )  # fmt: skip
    assert benchmark.measure([[one, other], [other, one], [one, other]]) == [0] * 4
    assert made == [(1, ["second", "first"]), (2, ["first", "second"])]
    capsys.readouterr()
    benchmark.print_ratios([one, other])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("second: 1.000 times as long as first (0.000 to ") and line.endswith("2 runs: no verdict")


def test_what_an_earlier_call_finished_is_kept_with_what_failed_and_not_what_was_cut_off(tmp_path, monkeypatch):
    plan, _ = plan_of("torch memcpy", ["--iterations", "3"])
    item = benchmark.Item(plan, None, tmp_path / "a.json", 1.0)
    found = plan.record()
    found.environments["0"] = describe_environment()
    found.runs = [a_run([1.0]), a_run([1.0], status="failed", reason="3 wrong bytes arrived"),
                  a_run([1.0], status="failed", reason="interrupted after 1 timed trips")]  # fmt: skip
    files.save(item.output, found)
    item.keep_finished()
    assert (item.finished, [run.status for run in item.record.runs]) == (2, ["ok", "failed"])
    found.environments["0"]["git_commit"] = "another"
    files.save(item.output, found)
    with pytest.raises(UsageError, match="measured with another git_commit"):
        item.keep_finished()


def test_it_imports_neither_ray_nor_torch():
    import subprocess

    code = "import sys, benchmark; sys.exit(bool({'ray', 'torch', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=RESULTS.parent, timeout=60).returncode == 0


def test_where_every_row_failed_the_exit_code_says_so(tmp_path, monkeypatch, capsys):
    def failed(plan, record, output, **_):
        record.runs.append(Run(started_at="", status="failed", reason="policy died"))
        files.save(output, record)
        return 1

    monkeypatch.setattr(benchmark, "add_runs", failed)
    assert benchmark.main(["--rows", "torch memcpy", "--output-dir", str(tmp_path)]) == 1
    assert "torch memcpy: policy died" in capsys.readouterr().out


def test_rows_that_alternate_and_are_interrupted_before_they_begin_have_no_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "run_alternately", lambda rows, order: [130] * len(rows))
    items = benchmark.prepare(["torch memcpy", "torch gloo"], ["--device", "cpu"], tmp_path)
    assert benchmark.measure([items]) == [130, 130]
    assert f"to go on: the same command with --continue --output-dir {tmp_path}" in capsys.readouterr().out
