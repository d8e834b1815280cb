# SPDX-License-Identifier: Apache-2.0
"""Test the verb `run`: which configurations it measures in which order, what it rejects, and what it continues."""

import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest
from made_records import make_record, make_run, write_campaign

from common.record_files import ARCHIVE
from dataflow.analysis.result import Result
from dataflow.catalogue.catalogue import TRANSPORTS, VARIANTS, SuitePart, suites
from dataflow.commands import list as list_command
from dataflow.commands import report
from dataflow.commands import run as benchmark
from dataflow.errors import RecordError, UsageError
from dataflow.measure import supervisor
from dataflow.measure.supervisor import plan_suite
from dataflow.plan import command_line
from dataflow.plan.command_line import plan_configuration
from dataflow.plan.durations import Durations
from dataflow.plan.options import CAMPAIGNS
from dataflow.records import files
from dataflow.records.machine import describe_environment


@pytest.fixture
def measured(monkeypatch, no_gpu):
    """Replace the measurement of a run; return the list of what was measured: the order and the record's name."""
    calls = []

    def measure_run(item, order, pair):
        record, path = item.record, item.path
        calls.append((order, path.name))
        code = int(item.plan.transport.name == "gloo")
        status = {"status": "failed", "reason": "policy died"} if code else {}
        record.environments["0"] = describe_environment()
        record.runs.append(make_run([1.0], order=order, pair=pair, **status))
        files.save(path, record)
        return code

    monkeypatch.setattr(supervisor, "measure_run", measure_run)
    monkeypatch.setattr(report, "main", lambda argv: 0)
    return calls


def test_list_has_every_configuration_its_duration_and_what_this_machine_lacks(
    capsys, no_gpu, monkeypatch, tmp_path
):
    write_campaign(
        tmp_path / "campaigns" / "1-a",
        ("store refs", {}, 4.0, {"first_seconds": 3.0}),
        ("graph nccl", {}, 4.0),
    )
    monkeypatch.setattr(benchmark, "CAMPAIGNS", tmp_path / "campaigns")
    assert list_command.main([]) == 0
    headers, *lines = [re.split("  +", line) for line in capsys.readouterr().out.splitlines()]
    rows = [dict(zip(headers, cells, strict=True)) for cells in lines]
    assert [row["configuration"] for row in rows] == [variant.name for variant in VARIANTS]
    assert all(row["description"] for row in rows)
    by_name = {row["configuration"]: row for row in rows}
    view, copy = by_name["store refs --zero-copy"], by_name["torch mapped --copy-out"]
    assert (view["readers get"], view["nodes"]) == ("a view", "several")
    assert (copy["readers get"], copy["nodes"]) == ("a reused buffer", "one")
    assert by_name["torch gloo --keep"]["readers get"] == "a copy to keep"
    refs, nccl = by_name["store refs"], by_name["graph nccl"]
    assert refs["a run takes about"] == "123 s"  # the first iteration, and 30 timed ones
    assert refs["on this machine"] == "runs"
    assert nccl["a run takes about"] == "-"
    assert nccl["on this machine"].startswith("nccl needs 3 GPUs")


@pytest.mark.parametrize(("names", "count", "words"), [
    (["torch memcpy", "torch gloo"], 0, ["to continue: the same command with --continue --output"]),
    (["store refs", "store bytes", "torch gloo"], 2,
     ["store bytes: 1,400 ms, store refs: 1,400 ms. Two runs each: no verdict.", "torch gloo was not measured."]),
])  # fmt: skip
def test_after_an_interrupt_configurations_that_have_begun_are_compared(
    measured, monkeypatch, capsys, tmp_path, names, count, words
):
    def measure_some(runs, folder):
        for (item,), transport in list(zip(runs, ("refs", "bytes"), strict=False))[:count]:
            item.record.runs.extend(make_record(transport, [1.0], [2.0]).runs)
        return [130]

    monkeypatch.setattr(supervisor, "measure_all", measure_some)
    assert benchmark.main([*names, "--output", str(tmp_path)]) == 130
    last_lines = capsys.readouterr().out.splitlines()[-len(words) :]
    for line, beginning in zip(last_lines, words, strict=True):
        assert line.startswith(beginning)


def test_dry_run_prints_messages_memory_iterations_and_times_of_campaigns_and_measures_nothing(
    capsys, tmp_path, monkeypatch
):
    warm = {"warmup_seconds": [2.0], "first_seconds": 1.0}
    write_campaign(tmp_path / "campaigns" / "1-a", ("store refs", {}, 4.0, warm))
    monkeypatch.setattr(benchmark, "CAMPAIGNS", tmp_path / "campaigns")
    assert (
        benchmark.main(
            ["store refs", "graph shm", "--runs", "3", "--dry-run", "--output", str(tmp_path / "a")]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert re.search("^store refs .* 369 s$", shown, re.MULTILINE)
    assert re.search("^graph shm .* -$", shown, re.MULTILINE)
    flow = ("--flow", "rollout-1, rollout-2 -> trainer: tokens int64 80kB, logprobs float32 40kB")
    configurations = ("store refs", "graph shm --message packed", "--runs", "2")
    folder = tmp_path / "nothing"
    assert benchmark.main([*flow, *configurations, "--dry-run", "--output", str(folder)]) == 0
    output = capsys.readouterr().out
    assert "234.4 KiB per iteration\n" in output and re.search(
        "graph shm --message packed +2 x 30 ", output
    )
    assert not folder.exists()


def test_flags_of_a_configuration_override_common_flags_which_override_those_of_a_suite(no_gpu):
    for flags in ({}, {"iterations": 7}):
        ((plan, _),) = plan_configuration("torch memcpy --iterations 5", flags)
        assert plan.options.iterations == 5
    for suite, own in (("quick", 5), ("benchmark", 10)):
        for flags, iterations in (({}, own), ({"iterations": 7}, 7)):
            (item,) = plan_suite(["torch memcpy"], suite, flags, Path())
            assert item.plan.options.iterations == iterations


def test_the_flags_of_variants_become_plans_and_no_text(no_gpu, monkeypatch):
    monkeypatch.setattr("dataflow.plan.plan.require_memory", lambda *_: 2**33)
    monkeypatch.setattr(command_line, "parse_flags", lambda words: pytest.fail(f"parsed {words}"))
    items = plan_suite([], "benchmark", {"device": "cpu"}, Path())
    assert [item.plan.configuration.name for item in items] == [v.name for v in VARIANTS]
    assert [item.plan.options.iterations for item in items] == [v.iterations for v in VARIANTS]


@pytest.mark.parametrize(("argv", "reason"), [
    ([], "give a configuration, or --suite (--help"),
    (["store ref", "--suite", "hops"], "hops has no store ref: did you mean store refs?"),
    (["--suite", "benchmark", "graph shm --copy-in"], "benchmark has no graph shm --copy-in"),
    (["--suite", "quikc"], "--suite: 'quikc' is unknown: did you mean quick?"),
    (["--suite", "xyzzy"], "--suite: 'xyzzy' is unknown: give quick, "),
    (["store refs", "--device", "gpu"], "--device: 'gpu' is unknown: give auto, cpu, cuda"),
    (["graph shmm"], "did you mean graph shm?"),
    (["graph shm", "--rnus", "3"], "unknown flag --rnus: did you mean --runs?"),
    (["--version"], "unknown flag --version (--help lists the flags)"),
    (["store refs", "--transport", "refs"], "unknown flag --transport (--help lists the flags)"),
    (["store refs", "--flow", "no.toml"], "--flow no.toml: there is no file no.toml: give a flow.toml that raymeter"),
    (["store refs", "--flow", "no.py:make"], "--flow no.py:make: there is no file no.py: give FILE.py:FUNCTION"),
    (["torch gloo --flow 'a -> b"], "close every quote"),
    (["refs"], """'refs': did you mean "store refs"?"""), (["store shm"], "did you mean graph shm?"),
    (["store refs --flow 'a => b: 8MB'"], "write 'a -> b: 8MB'"),
    (["store refs --flow 'a b: tokens int64 8MB'"], "a flow needs an arrow, as 'rollout -> trainer: 12MB'"),
    (["store refs --flow 'a -> b: tokens int64 8'"], "is it 8 B or 8 MB?"),
    (["store refs --flow 'a -> b: 8'"], "is it 8 B or 8 MB?"),
    (["store refs", "--runs", "0"], "--runs 0"),
    (["torch gloo --runs 2"], "unknown flag --runs"),
    (["store", "refs", "--runs", "3"], 'store refs: did you mean "store refs" in quotes?'),
    (["store refs", "--flow", "rollout", "-", "tokens"], "the flow must be in quotes"),
    (["store refs", "--iterations", "ten"], "--iterations: 'ten' is not possible: give a whole number"),
    (["store refs", "--runs", "ten"], "--runs: 'ten' is not possible: give a whole number"),
    (["store refs", "--model-scale", "half"], "--model-scale: 'half' is not possible: give a number"),
    (["store refs", "--warmup", "long"], "'long' is not possible: give a whole number from 0 to 1000000, or steady"),
    (["store refs", "--iterations", "0"], "'0' is not possible: give 1 to 10000000"),
    (["store refs", "--model-scale", "2"], "'2' is not possible: give more than 0 and at most 1"),
    (["store refs", "--output", "/tmp"], "--output /tmp is a folder, and one configuration is written into a file"),
    (["store refs", "graph shm", "--output", "/etc/passwd"], "--output /etc/passwd exists and is no folder"),
    (["torch nccl", "rdt nccl"], "this machine can measure none of the configurations: nccl needs"),
    (["--suite", "quick", "--paired"], "--paired: give two configurations"),
    (["torch gloo", "torch nccl", "--paired"], "--paired: give two configurations that this machine can"),
    (["torch gloo", "torch gloo --iteration-bytes 1MiB", "--paired"], "compares times of equal messages"),
    (["store refs", "--against", "/tmp"], "there is no checkout of this project"),
    (["store refs", "--continue"], "--continue: give the --output of the earlier call"),
    (["store refs", "--continue", "--output", "/nowhere/run"], "--continue: give the --output of the earlier call"),
    (["store refs", "--continue", "--against", "/tmp"], "--continue: a measurement with --against cannot be"),
], ids=lambda value: " ".join(value) if isinstance(value, list) else "")  # fmt: skip
def test_wrong_flags_are_rejected_in_one_line(no_gpu, argv, reason):
    with pytest.raises(UsageError) as error:
        benchmark.main(argv)
    assert reason in str(error.value) and "\n" not in str(error.value)


def test_every_transport_of_the_catalogue_is_in_its_module_and_the_other_way_round():
    by_module = defaultdict(set)
    for transport in TRANSPORTS.values():
        by_module[transport.module].add(transport.function)
    for module, names in by_module.items():
        assert set(import_module(f"dataflow.{module}").TRANSPORTS) == names


@pytest.mark.parametrize("suite", sorted(suites().keys() - {"gpu"}))
def test_every_suite_can_be_planned(suite, no_gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "dataflow.plan.plan.require_memory", lambda *_: 2**33
    )  # whatever other programs use
    flags = {"device": "cpu"} | ({"address": "auto"} if suite.startswith("cluster") else {})
    items = plan_suite([], suite, flags, tmp_path)
    tables = {part.table: part.traced for part in suites()[suite]}
    assert len({item.path for item in items}) == len(items)
    for item in items:
        assert (item.record.suite, item.record.traced) == (suite, tables[item.record.table])
        assert item.plan.options.trace == item.record.traced


@pytest.mark.parametrize(
    "suite",
    ["hops", "campaign", "cluster", pytest.param("sweeps", marks=pytest.mark.long)],
)
def test_every_name_of_a_suite_selects_its_configurations(suite, no_gpu, monkeypatch):
    monkeypatch.setattr(
        "dataflow.plan.plan.require_memory", lambda *_: 2**33
    )  # whatever other programs use
    flags = {"address": "auto"} if suite == "cluster" else {}
    items = plan_suite([], suite, flags, Path())
    for name in {name for part in suites()[suite] for name in part.names}:
        labels = {item.plan.transport.label for item in plan_suite([name], suite, flags, Path())}
        assert labels == {" ".join(name.split()[:2])}
    for item in items[:: 1 + len(items) // 8]:  # as --dry-run and tables name them
        assert item.plan in [
            selected.plan for selected in plan_suite([item.label], suite, flags, Path())
        ]


def test_a_name_without_more_flags_selects_only_its_own_configuration(no_gpu):
    for name, is_copied in (("graph mapped", False), ("graph mapped --copy-out", True)):
        assert {
            item.plan.options.copy_out for item in plan_suite([name], "sweeps", {}, Path())
        } == {is_copied}
    flags = {"copy_out": True, "threads": 2}  # they do not fit others
    (item,) = plan_suite(["torch mapped"], "stages", flags, Path())
    assert (item.plan.transport.name, item.plan.options.threads) == ("mapped", 2)


def test_a_campaign_takes_about_an_hour_as_the_pages_say(no_gpu, monkeypatch):
    monkeypatch.setattr("dataflow.plan.plan.require_memory", lambda *_: 2**33)
    monkeypatch.setattr("dataflow.plan.validate.require_modules", lambda *_: None)
    durations = Durations(CAMPAIGNS)
    measured = []
    not_measured = 0  # by the campaigns of this page; each counts as the longest one
    for item in plan_suite([], "campaign", {}, Path()):
        assert not item.skipped
        run_seconds = durations.iterations_seconds(item.plan)
        if run_seconds is None:
            not_measured += 1
        else:
            measured.append(run_seconds + durations.other_seconds(item.plan))
    seconds = 3 * (sum(measured) + not_measured * max(measured))
    assert 45 * 60 <= seconds <= 60 * 60


def test_a_campaign_times_kept_memory_longer_and_some_queues_without_pauses(no_gpu, monkeypatch):
    monkeypatch.setattr("dataflow.plan.plan.require_memory", lambda *_: 2**33)
    monkeypatch.setattr("dataflow.plan.validate.require_modules", lambda *_: None)
    plans = [item.plan for item in plan_suite([], "campaign", {}, Path())]
    kept = [plan.options.iterations for plan in plans if plan.options.retain_memory]
    assert len(kept) == 5 and min(kept) >= 100
    without_pauses = [plan for plan in plans if plan.options.check_every == 10]
    assert {plan.configuration.name for plan in without_pauses} == {
        "store driver-queue --check-every 10",
        "store refs --check-every 10",
    }
    headline = [plan.workload for plan in plans if plan.table == "headline"]
    assert {plan.workload == headline[0] for plan in without_pauses} == {True}


def test_runs_are_interleaved_in_an_order_that_the_seed_repeats():
    groups = [[letter] for letter in "abcdefgh"]
    runs = benchmark.order_runs(groups, 5, "a")
    orders = ["".join(letter for (letter,) in runs[begin : begin + 8]) for begin in range(0, 40, 8)]
    assert all(sorted(order) == list("abcdefgh") for order in orders)
    assert len(set(orders)) == 5
    assert benchmark.order_runs(groups, 5, "a") == runs != benchmark.order_runs(groups, 5, "b")
    assert benchmark.order_runs(groups, 1, "a") == groups


def test_records_have_new_names_in_the_folder_of_results_without_an_output(
    measured, monkeypatch, tmp_path
):
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path)
    for names in (["torch memcpy"], ["torch memcpy"], ["torch memcpy", "torch mapped"]):
        assert benchmark.main(names) == 0
    assert (
        len([*tmp_path.glob("torch-memcpy-*.json")]) == len([*tmp_path.glob("run-*/*.json")]) == 2
    )


def test_a_sweep_has_a_record_per_value_and_skips_a_value_that_does_not_fit(measured, tmp_path):
    sweep = ("--sweep", "iteration-bytes=4KiB,1MiB,100TB")
    assert benchmark.main(["torch memcpy", *sweep, "--output", str(tmp_path)]) == 0
    records = files.load_all([tmp_path])
    runs = {record.workload.sizes["iteration_bytes"]: record.runs[0] for record in records}
    assert {size: run.status for size, run in runs.items()} == {
        2**12: "ok",
        2**20: "ok",
        10**14: "skipped",
    }
    assert "memcpy needs" in runs[10**14].reason
    assert {record.table for record in records} == {"sweep-iteration-bytes"}


def test_a_package_that_the_tables_need_is_missed_before_the_first_run(
    measured, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(benchmark, "find_missing", lambda *_: ["matplotlib"])
    output = tmp_path / "new"
    benchmark.main(["store refs", "graph shm", "--output", str(output)])
    error = capsys.readouterr().err
    assert error.startswith("warning: there will be records, but no tables and charts: matplotlib")
    assert len(measured) == 2


def test_measures_reports_failures_and_continues(measured, capsys, tmp_path):
    argv = ["torch memcpy", "torch gloo", "torch nccl", "--output", str(tmp_path)]
    assert benchmark.main([*argv, "--runs", "2"]) == 1
    output = capsys.readouterr().out
    names = ["00-torch-memcpy.json", "01-torch-gloo.json", "02-torch-nccl.json"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == names
    assert [files.load(tmp_path / name).runs[-1].status for name in names] == [
        "ok",
        "failed",
        "skipped",
    ]
    assert "  4 of 4  torch " in output
    assert re.search(r"torch gloo: failed: policy died \(0:00:\d\d so far", output)
    with pytest.raises(RecordError, match="exists"):
        benchmark.main([*argv, "--runs", "3"])
    with pytest.raises(
        UsageError, match=r"it has records of another measurement, such as 00-torch-memcpy\.json"
    ):
        benchmark.main(["torch mapped", "torch multiprocessing", *argv[3:]])
    first = files.load(tmp_path / names[0])
    first.runs[1].status, first.runs[1].reason = "failed", "interrupted after 2 timed iterations"
    files.save(tmp_path / names[0], first)
    (tmp_path / f"{names[0]}.partial").touch()  # a call that was killed has left it
    measured.clear()
    assert benchmark.main([*argv, "--runs", "3", "--continue"]) == 1
    assert sorted(name for _, name in measured) == [names[0], names[0], names[1]]
    assert len(files.load(tmp_path / names[0]).runs) == 3
    with pytest.raises(UsageError, match="was measured with other flags"):
        benchmark.main([*argv, "--continue", "--timeout", "60"])
    for key in ("git_commit", "boot"):
        first.environments["0"] = describe_environment() | {key: "another"}
        files.save(tmp_path / names[0], first)
        with pytest.raises(UsageError, match=f"was measured with another {key}"):
            benchmark.main([*argv, "--continue"])


@pytest.fixture
def suite_of_three(monkeypatch, measured, tmp_path):
    """Return the words that measure a suite of two configurations, and of a third one that is skipped."""
    part = SuitePart("configurations", ["torch memcpy", "torch mapped", "torch nccl"])
    monkeypatch.setitem(suites(), "quick", [part])
    return ["--suite", "quick", "--output", str(tmp_path)]


def count_runs(folder):
    """Return the number of runs of each record by its transport."""
    records = files.load_all([folder])
    return {record.configuration.transport: len(record.runs) for record in records}


def test_the_records_of_a_suite_are_one_file_at_the_end_and_can_be_continued(
    suite_of_three, measured, tmp_path
):
    argv, path = suite_of_three, tmp_path / ARCHIVE
    assert benchmark.main([*argv, "--runs", "2"]) == 0
    assert [*tmp_path.iterdir()] == [path]
    assert count_runs(tmp_path) == {"memcpy": 2, "mapped": 2, "nccl": 1}
    before = path.read_bytes()
    with pytest.raises(UsageError, match=f"{ARCHIVE} exists: .*, give --continue"):
        benchmark.main([*argv, "--runs", "3"])
    with pytest.raises(
        UsageError, match=f"{ARCHIVE} has a record of other flags .*, torch memcpy:"
    ):
        benchmark.main([*argv, "--continue", "--timeout", "60"])
    assert (path.read_bytes(), [*tmp_path.iterdir()]) == (before, [path])
    measured.clear()
    assert benchmark.main([*argv, "--runs", "2", "--continue"]) == 0
    assert (path.read_bytes(), measured) == (before, [])
    assert benchmark.main([*argv, "--runs", "3", "--continue"]) == 0
    assert sorted(name for _, name in measured) == ["00-torch-memcpy.json", "01-torch-mapped.json"]
    assert [*tmp_path.iterdir()] == [path]
    assert count_runs(tmp_path) == {"memcpy": 3, "mapped": 3, "nccl": 1}


def test_a_suite_that_is_interrupted_keeps_a_file_per_configuration_until_it_is_continued(
    suite_of_three, measured, monkeypatch, tmp_path
):
    measure = supervisor.measure_run

    def interrupt(item, order, pair):
        measure(item, order, pair)
        return 130

    with monkeypatch.context() as patched:
        patched.setattr(supervisor, "measure_run", interrupt)
        assert benchmark.main(suite_of_three) == 130
    assert len([*tmp_path.glob("0?-torch-*.json")]) == len([*tmp_path.iterdir()]) == 3
    assert count_runs(tmp_path) == {"memcpy": 1, "mapped": 0, "nccl": 1}
    assert benchmark.main([*suite_of_three, "--continue"]) == 0
    assert [*tmp_path.iterdir()] == [tmp_path / ARCHIVE]
    assert count_runs(tmp_path) == {"memcpy": 1, "mapped": 1, "nccl": 1}


def test_a_folder_with_the_archive_of_another_measurement_is_rejected(suite_of_three, tmp_path):
    assert benchmark.main(suite_of_three) == 0
    argv = ["torch gloo", "torch mapped", "--continue", "--output", str(tmp_path)]
    with pytest.raises(UsageError, match="or of another measurement, torch memcpy: give the same"):
        benchmark.main(argv)
    assert [*tmp_path.iterdir()] == [tmp_path / ARCHIVE]


@pytest.fixture
def measure_made_runs(monkeypatch, no_gpu):
    """measure_made_runs(*changes): the runs that are measured next are made ones, each with these changes."""

    def prepare(*changes):
        waiting = iter(changes)

        def measure_run(item, order, pair):
            item.record.runs.append(make_run([1.0], order=order, **next(waiting)))
            item.record.environments["0"] = describe_environment()
            files.save(item.path, item.record)
            return int(item.record.runs[-1].status != "ok")

        monkeypatch.setattr(supervisor, "measure_run", measure_run)

    monkeypatch.setitem(suites(), "quick", [SuitePart("configurations", ["torch memcpy"])])
    return prepare


@pytest.mark.parametrize(
    ("busy", "flags", "count"),
    [([1.0, 0], [], 2), ([1.0, 1.0, 1.0], [], 3), ([1.0], ["--allow-disturbed"], 1)],
    ids=["once", "always", "allowed"],
)
def test_a_disturbed_run_is_measured_again_at_most_twice_and_the_reason_is_printed(
    measure_made_runs, capsys, tmp_path, busy, flags, count
):
    argv = ["--suite", "quick", "torch memcpy", *flags, "--output", str(tmp_path)]
    measure_made_runs(*({"other_cores": cores} for cores in busy))
    code = benchmark.main([*argv, "--runs", "1"])
    (record,) = files.load_all([tmp_path])
    assert [run.order for run in record.runs] == [0] * count
    assert code == int(Result((record,)).status != "ok")
    printed = capsys.readouterr().out
    for repetition in range(1, count):
        reason = (
            "torch memcpy: other programs used 1.0 cores during this run, so it is measured again"
        )
        assert f"{reason} (repetition {repetition} of at most 2)" in printed
    assert printed.count("is measured again") == count - 1
    measure_made_runs({"other_cores": 0})
    benchmark.main([*argv, "--runs", "2", "--continue"])
    (record,) = files.load_all([tmp_path])
    assert [run.order for run in record.runs][count:] == [1]


@pytest.mark.parametrize(("runs", "code"), [
    ([{}], 0),
    ([{"settled": False}], 1),
    ([{"status": "failed", "reason": "policy died"}], 1),
    ([{"status": "failed", "reason": "policy died"}, {}], 1),
    ([{"settled": False}, {}], 0),
    ([{"memcpy_before_seconds": [9.0]}] * 3, 1),
], ids=["ok", "not settled", "failed", "one failed", "one not settled", "impossible"])  # fmt: skip
def test_the_exit_code_says_whether_each_configuration_has_a_result(
    measure_made_runs, tmp_path, runs, code
):
    changes = [{"memcpy_all_cores_seconds": []} | change for change in runs]
    measure_made_runs(*changes)
    argv = ["--suite", "quick", "torch memcpy", "--output", str(tmp_path)]
    assert benchmark.main([*argv, "--runs", str(len(runs))]) == code


def test_the_path_of_a_record_is_printed_once(measure_made_runs, capsys, tmp_path):
    measure_made_runs({})
    path = tmp_path / "record.json"
    assert benchmark.main(["torch memcpy", "--output", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if str(path) in line] == [f"records: {path}"]
    assert lines[-1] == "Execution time: 1 seconds"
    assert lines[-2].endswith("the sum of the timed iterations:")


def test_an_interrupt_is_the_exit_code_and_says_how_to_continue_also_with_make(
    measured, monkeypatch, capsys, tmp_path
):
    monkeypatch.setattr(supervisor, "measure_all", lambda runs, folder: [1, 130])
    monkeypatch.setenv("DATA_FLOW_MAKE", 'make quick FLAGS="--continue --output OUTPUT"')
    assert benchmark.main(["torch memcpy", "torch mapped", "--output", str(tmp_path)]) == 130
    shown = capsys.readouterr().out
    assert f"to continue: the same command with --continue --output {tmp_path}\n" in shown
    assert f'with make:   make quick FLAGS="--continue --output {tmp_path}"\n' in shown


def test_a_skipped_configuration_beside_a_measured_one_is_no_failure(measured, capsys, tmp_path):
    assert benchmark.main(["torch memcpy", "torch nccl", "--output", str(tmp_path)]) == 0
    assert (
        "skipped: torch nccl: nccl needs 3 GPUs and this machine has 0" in capsys.readouterr().out
    )


def test_records_that_were_saved_elsewhere_are_not_looked_for_in_the_output(
    measured, monkeypatch, tmp_path
):
    def measure_all(runs, folder):
        for (item,) in runs:
            item.path.unlink()
            item.saved_path = tmp_path / "elsewhere.json"
        return [1] * len(runs)

    monkeypatch.setattr(supervisor, "measure_all", measure_all)
    monkeypatch.setattr(report, "main", lambda argv: pytest.fail(f"{argv} has no records"))
    output = tmp_path / "records"
    assert benchmark.main(["torch memcpy", "torch mapped", "--output", str(output)]) == 1


def test_paired_runs_are_neighbours_in_either_order_and_share_a_name(measured, tmp_path):
    argv = ["torch memcpy", "torch mapped", "--paired", "--runs", "20", "--output", str(tmp_path)]
    assert benchmark.main(argv) == 0
    runs = sorted((run.order, name, run.pair) for name in sorted({name for _, name in measured})
                  for run in files.load(tmp_path / name).runs)  # fmt: skip
    assert [order for order, *_ in runs] == list(range(40))
    pairs = [runs[begin : begin + 2] for begin in range(0, 40, 2)]
    assert all(one[1] != other[1] and one[2] == other[2] != "" for one, other in pairs)
    assert len({one[2] for one, _ in pairs}) == 20
    assert len({one[1] for one, _ in pairs}) == 2
