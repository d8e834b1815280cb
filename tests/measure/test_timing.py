# SPDX-License-Identifier: Apache-2.0
"""Test the timing loop: the order of operations, what the clock includes, and what is verified when."""

import time
from dataclasses import replace
from functools import partial
from statistics import median
from types import SimpleNamespace

import msgspec
import pytest
import torch
from conftest import KILOBYTES
from made_records import ENVIRONMENT, rows_of

import dataflow.transports.processes as script
from common.timing import time_group
from dataflow.analysis.result import group_results
from dataflow.catalogue.catalogue import TRANSPORTS
from dataflow.endpoints.actor import Endpoint
from dataflow.endpoints.progress_table import ENDING
from dataflow.flows.catalogue import online_dpo
from dataflow.flows.flow import DRIVER
from dataflow.measure.counters import costs_by_process
from dataflow.measure.driver_report import DriverReport
from dataflow.measure.loop import Measurement
from dataflow.measure.monitor import Monitor
from dataflow.measure.verified import find_failure
from dataflow.measure.warm_up import WarmUp, iteration_groups
from dataflow.plan.options import Options
from dataflow.plan.plan import Plan
from dataflow.records.schema import ProcessCost, Run
from dataflow.report.sections import sections
from dataflow.workers.worker_group import WorkerGroup

WORKERS = ("driver", "policy", "reference", "reward")


def record_loop(numbers, in_flight):
    """Return the calls of the timing loop, and its times by a clock that only these calls advance."""
    calls, times, seconds = [], [], {"send": 1000, "receive": 7}

    def call(name, number):
        calls.append((name, number))
        return number

    def read_clock():
        return sum(seconds[name] for name, _ in calls)

    functions = partial(call, "send"), partial(call, "receive")
    time_group(numbers, in_flight, *functions, lambda *saved: times.append(saved), read_clock)
    return calls, times


def test_iterations_in_flight_are_received_in_order_and_a_group_takes_the_time_of_all_its_steps():
    for in_flight in (1, 2, 3, 6):
        _, times = record_loop(range(1, 7), in_flight)
        assert [number for number, *_ in times] == [*range(1, 7)]
        assert times[-1][2] - times[0][1] == 6 * 1007
    calls, times = record_loop(range(1, 6), 3)
    assert [number for name, number in calls if name == "send"] == [1, 2, 3, 4, 5]
    assert [number for name, number in calls if name == "receive"] == [1, 2, 3, 4, 5]
    assert "".join(name[0] for name, _ in calls) == "sssrsrsrrr"
    # Two other queries are sent while the first one is open.
    assert [end - start for _, start, end in times][::4] == [3 * 1000 + 7, 1000 + 3 * 7]


@pytest.mark.parametrize(("warmup", "flags", "groups"), [
    (0, "--iterations 2", [[1], [2], [3]]),
    (1, "--iterations 5 --check-every 2", [[1], [2], [3, 4], [5, 6], [7]]),
    (3, "--iterations 5 --in-flight 2", [[1], [2, 3], [4], [5, 6], [7, 8], [9]]),
    (2, "--iterations 2 --check-every 100", [[1], [2], [3], [4, 5]]),
])  # fmt: skip
def test_groups_end_where_everything_is_verified(make_plan, warmup, flags, groups):
    plan = make_plan(
        "store", "--transport", "refs", "--warmup", str(warmup), *flags.split(), *KILOBYTES
    )
    found = [
        (list(numbers), is_timed)
        for numbers, is_timed in iteration_groups(plan, WarmUp(is_fixed=True))
    ]
    assert found == [(numbers, numbers[0] > 1 + warmup) for numbers in groups]


def warm_up_groups(plan, warm_up, seconds, faults):
    """Return the numbers of the groups of the warm-up, of which each takes so long and has so many page faults."""
    groups = []
    for numbers, is_timed in iteration_groups(plan, warm_up):
        if numbers[0] > 1 and not is_timed:
            warm_up.seconds.append(seconds[len(groups)])
            warm_up.faults.append(faults[len(groups)])
            groups.append(list(numbers))
    return groups


@pytest.mark.parametrize(("seconds", "faults", "count", "settled"), [
    ([1.0] * 60, [9.0] * 60, 10, True),
    ([1.0] * 9 + [9.0] + [1.0] * 50, [9.0] * 60, 10, True),  # a single slow iteration does not matter
    ([5.0, 4.0, 3.0, 2.0, 1.0] + [0.5] * 55, [0.0] * 60, 13, True),  # the first median of 0.5, 0.5 and 0.5
    ([1.0] * 60, [5000.0] * 7 + [100.0] * 53, 17, True),  # the page faults of five iterations still fell
    ([1.0] * 60, [90.0] * 7 + [0.0] * 53, 10, True),  # few page faults cost nothing
    ([0.9**n for n in range(60)], [0.0] * 60, 60, False),
    ([1.0] * 60, [10000 * 0.9**n + 500 for n in range(60)], 44, True),
    ([1.0] * 60, [1e6 * 0.9**n for n in range(60)], 60, False),
], ids=range(8))  # fmt: skip
def test_warm_up_ends_when_times_and_page_faults_no_longer_fall(
    make_plan, seconds, faults, count, settled
):
    plan = make_plan("store", *KILOBYTES, "--iterations", "3")
    warm_up = WarmUp(is_fixed=False, clock=lambda: 0.0)
    groups = warm_up_groups(plan, warm_up, seconds, faults)
    assert (groups, warm_up.settled) == ([[number] for number in range(2, count + 2)], settled)


def test_warm_up_ends_after_its_time_but_not_before_ten_groups(make_plan):
    now = iter(range(0, 1000, 2))
    plan = make_plan("store", "--transport", "refs", *KILOBYTES, "--in-flight", "2")
    warm_up = WarmUp(is_fixed=False, clock=lambda: float(next(now)))
    groups = warm_up_groups(plan, warm_up, [2.0**-n for n in range(60)], [0.0] * 60)
    assert (groups, warm_up.settled) == (
        [[number, number + 1] for number in range(2, 52, 2)],
        False,
    )


QUIET = [50.0] * 300


def kept_faults(*bursts, size=20_000.0):
    """Return the page faults of iterations of which some have a burst: those at these positions."""
    return [QUIET[0] + size * (position in bursts) for position in range(300)]


@pytest.mark.parametrize(("seconds", "faults", "count", "settled"), [
    ([0.1] * 300, QUIET, 20, True),
    ([0.1] * 300, kept_faults(0), 21, True),
    ([0.1] * 300, kept_faults(5, 19), 40, True),
    ([0.1] * 300, kept_faults(5, 24, 43, 62), 83, True),  # one after the other, each within 20 iterations
    ([0.1] * 300, kept_faults(*range(5, 300, 19)), 200, False),
    ([0.1] * 300, kept_faults(5, size=3000.0), 20, True),  # 9 ms of 100 ms
    ([0.1] * 300, kept_faults(5, size=4000.0), 26, True),
    ([0.001] * 300, kept_faults(5, size=90.0), 20, True),  # few page faults cost nothing
    ([0.1] * 300, [20_000.0] * 300, 20, True),  # equally many in each iteration
    ([0.1 * 0.95**n for n in range(300)], QUIET, 200, False),
])  # fmt: skip
def test_with_kept_memory_the_warm_up_ends_after_20_iterations_without_a_burst(
    make_plan, seconds, faults, count, settled
):
    plan = make_plan("store", *KILOBYTES, "--retain-memory", "--iterations", "3")
    warm_up = WarmUp(is_fixed=False, keeps_memory=True, clock=lambda: 0.0)
    groups = warm_up_groups(plan, warm_up, seconds, faults)
    assert (len(groups), warm_up.settled) == (count, settled)


@pytest.mark.parametrize(
    ("in_flight", "seconds", "count"), [(1, 2.0, 50), (1, 10.0, 26), (1, 100.0, 20), (2, 2.0, 50)]
)
def test_with_kept_memory_the_warm_up_takes_at_most_a_minute_but_20_groups(
    make_plan, in_flight, seconds, count
):
    now = iter([number * seconds for number in range(300)])
    flags = ("--transport", "refs", "--retain-memory", "--in-flight", str(in_flight))
    plan = make_plan("store", *KILOBYTES, *flags)
    warm_up = WarmUp(is_fixed=False, keeps_memory=True, clock=lambda: next(now))
    groups = warm_up_groups(plan, warm_up, [0.1] * 300, kept_faults(*range(0, 300, 7)))
    assert (len(groups), warm_up.settled) == (count, False)
    assert {len(group) for group in groups} == {in_flight}


def test_a_configuration_that_keeps_memory_has_the_longer_warm_up(measured, make_plan):
    plans = [
        make_plan("store", "--transport", "refs", *KILOBYTES, *flags)
        for flags in ((), ("--retain-memory",))
    ]
    assert [plan.max_warmup for plan in plans] == [60, 200]
    many = make_plan(
        "store", "--transport", "refs", *KILOBYTES, "--retain-memory", "--in-flight", "32"
    )
    assert many.max_warmup == 640
    run = measured("--retain-memory", "--iterations", "2").run
    assert run.warmup_iterations >= 20 and run.settled is not None


@pytest.fixture
def measured(make_plan, monkeypatch, tmp_path):
    """measured(*flags, spoil=...) -> record and run of actors in this process, what was verified, and the latencies."""
    verified = {name: [] for name in WORKERS}
    verify = Endpoint.verify

    def noting_verify(self, first, last):
        verified[self.name].append((first, last))
        return verify(self, first, last)

    def run(*flags, spoil=lambda number, result: None):
        threads = ("--threads", str(torch.get_num_threads()))
        plan = make_plan(
            "torch", "--transport", "memcpy", *threads, *flags, *KILOBYTES, run_folder=tmp_path
        )
        (tmp_path / "progress").unlink(missing_ok=True)
        record = plan.new_record()
        record.runs, record.environments = [Run()], {"0": ENVIRONMENT}
        monitor = Monitor(plan, record)
        table, report = monitor.progress, DriverReport(record.runs[0])
        with monkeypatch.context() as patch:
            patch.setattr(Endpoint, "verify", noting_verify)
            workers = WorkerGroup(plan)
            connection = script.by_memcpy(workers)

            def collect(results):
                spoil(table.progress[1], results[0])
                return results

            Measurement(plan, workers, replace(connection, collect=collect), report).measure()
        assert table.phase == ENDING
        endpoints = (workers.driver, *workers.actors.values())
        # A view that is held could block the end of a transport.
        assert not any(inbox.held for endpoint in endpoints for inbox in endpoint.inboxes.values())
        monitor.collect_samples()
        (run,) = record.runs
        seconds = [run.first_seconds, *run.warmup_seconds, *run.seconds]
        assert table.numbers() == dict.fromkeys(WORKERS, len(seconds))
        assert min(seconds) > 0
        return SimpleNamespace(record=record, run=run, verified=verified)

    return run


def test_correct_run(measured, tmp_path):
    done = measured("--warmup", "1", "--iterations", "3", "--check-every", "2")
    assert done.verified == {name: [(1, 1), (2, 2), (3, 4), (5, 5)] for name in WORKERS}
    assert (done.run.status, done.run.reason, done.run.readers_own_a_copy) == ("ok", None, True)
    assert (done.run.wrong_bytes, done.run.spans, done.run.iterations_us) == (0, [], [])
    assert (done.run.warmup_iterations, done.run.settled) == (
        1,
        None,
    )  # unknown after a fixed number of iterations
    (name,) = done.run.processes  # one process, whose memory counts once
    assert name == "policy+reference+reward+driver"
    assert not hasattr(Endpoint.make_payload, "__wrapped__")  # nothing is traced
    reported = msgspec.json.decode((tmp_path / "report").read_bytes(), type=DriverReport)
    assert reported.run.readers_own_a_copy is True


@pytest.mark.parametrize("iteration", range(1, 8))
def test_a_wrong_byte_is_found_at_the_end_of_a_group_and_an_old_number_in_every_iteration(
    measured, iteration
):
    def change_last_byte(number, result):
        if number == iteration:
            result.view(torch.uint8)[-1] ^= 1

    def change_number(number, result):
        if number == iteration:
            result[0] -= 1

    flags = ("--warmup", "1", "--iterations", "5", "--check-every")
    run = measured(*flags, "2", spoil=change_last_byte).run
    is_last = iteration in (1, 2, 4, 6, 7)
    assert (run.wrong_bytes, run.status) == ((1, "failed") if is_last else (0, "ok"))
    run = measured(*flags, "5", spoil=change_number).run
    assert run.status == "failed" and run.wrong_bytes >= 1
    assert list(run.wrong_bytes_by_field) == ["reward -> driver"]


@pytest.mark.parametrize("kind", ["flip", "stale"])
def test_fault_of_a_task_is_found_by_all_its_readers(measured, kind):
    done = measured("--warmup", "1", "--iterations", "3", "--inject", f"policy:5:{kind}")
    assert done.run.status == "failed" and "most of them in policy -> re" in done.run.reason
    assert set(done.run.wrong_bytes_by_field) == {"policy -> reference", "policy -> reward"}


BIG, SMALL = (
    online_dpo(),
    online_dpo(batch_size=4, prompt_seq_len=256),
)  # Ray copies messages up to 100 KiB
EDGES = [str(edge) for edge in BIG.edges]
COPIES = [("store refs", {}), ("graph mapped", {"copy_out": True}),
          ("store refs", {"zero_copy": True, "copy_out": True})]  # fmt: skip
VIEWS = [("store refs", {"zero_copy": True}), ("graph mapped", {}), ("torch multiprocessing", {})]


def judge(configuration, views, wrong=None, flow=BIG, device="cpu"):
    """Return why a run failed whose readers found views on these edges, and copies on the others."""
    name, flags = configuration
    plan = Plan(TRANSPORTS[name], Options(transport=name.split()[1], **flags), flow, device)
    return find_failure(plan, wrong or {}, {edge: edge in views for edge in EDGES})


def test_one_edge_with_another_data_path_fails_the_run():
    assert (
        {judge(copies, []) for copies in COPIES}
        == {judge(views, EDGES) for views in VIEWS}
        == {None}
    )
    for edge in EDGES:
        others = [other for other in EDGES if other != edge]
        for copies in COPIES:
            assert judge(copies, [edge]).startswith(
                f"{edge}: readers got views, but copies are expected of"
            )
        for views in VIEWS:
            assert judge(views, others).startswith(
                f"{edge}: readers got copies, but views are expected of"
            )


def test_small_messages_and_gpu_memory_may_be_copied_but_copies_may_not_be_views():
    assert judge(VIEWS[0], [], flow=SMALL) is judge(VIEWS[0], [], device="cuda") is None
    assert judge(COPIES[0], EDGES, flow=SMALL)
    plan = Plan(TRANSPORTS["store refs"], Options(transport="refs"), BIG)
    assert "partly copies" in find_failure(plan, {}, dict.fromkeys(EDGES))
    wrong = {"policy -> reference, mask": 1, "policy -> reward, mask": 7, "reward -> driver": 2}
    reason = judge(COPIES[0], EDGES, wrong)  # wrong bytes come first
    assert reason.startswith(
        "10 bytes differ from what was sent, most of them in policy -> reward, mask"
    )


@pytest.mark.parametrize("flags", [(), ("--check-every", "2")], ids=" ".join)
def test_the_clock_runs_while_the_driver_makes_its_query_and_waits_for_its_gpus(
    measured, monkeypatch, flags
):
    make_payload = Endpoint.make_payload

    def make_slowly(self, number, task=DRIVER):
        if self.name == DRIVER:
            time.sleep(0.02)
        return make_payload(self, number, task)

    monkeypatch.setattr(Endpoint, "make_payload", make_slowly)
    monkeypatch.setattr("dataflow.measure.loop.tensors.synchronise", lambda: time.sleep(0.03))
    assert min(measured("--warmup", "1", "--iterations", "4", *flags).run.seconds) > 0.05


@pytest.mark.parametrize("flags", [(), ("--check-every", "4")], ids=" ".join)
def test_a_delay_of_one_edge_is_in_the_time_of_the_published_table(measured, monkeypatch, flags):
    slept = []  # milliseconds, because a busy machine ends a sleep late

    def receive_late(endpoint, inputs, task=DRIVER, receive=Endpoint.receive):
        if task == "policy":
            begin = time.perf_counter()
            time.sleep(0.02)
            slept.append(1e3 * (time.perf_counter() - begin))
        return receive(endpoint, inputs, task)

    monkeypatch.setattr(Endpoint, "receive", receive_late)
    flags = ("--iterations", "12", "--warmup", "1", "--allow-disturbed", *flags)
    (section,) = sections(group_results([measured(*flags).record]))
    (row,) = rows_of(section)
    assert (
        0.9 < float(row["p50 ms"].replace(",", "")) / median(slept) < 1.6
    )  # 2 if the clock counts twice


def test_processes_of_two_nodes_with_the_same_id_are_kept_apart():
    """Containers count from 1, so their process ids are small and alike."""
    pids = {"driver": 7, "policy": 345, "reference": 345, "reward": 345}
    nodes = {"driver": 0, "policy": 1, "reference": 1, "reward": 2}
    costs = {
        name: {
            "pid": pid,
            "peak_memory_bytes": 1000 + pid + nodes[name],
            "minor_faults": 5 * nodes[name],
        }
        for name, pid in pids.items()
    }
    found = costs_by_process(costs, nodes)
    assert found == {
        "driver": ProcessCost(1007, 0),
        "policy+reference": ProcessCost(1346, 5),  # one process, which counts once
        "reward": ProcessCost(1347, 10),
    }
