# SPDX-License-Identifier: Apache-2.0
"""A prediction is the cost of a configuration on a machine, and the stored costs are those of the campaigns."""

import re
from dataclasses import replace

import msgspec
import pytest
from msgspec.structs import replace as replace_struct

from dataflow.analysis import machine_costs, prediction
from dataflow.analysis.campaigns import load_campaigns
from dataflow.analysis.cost_model import MAX_ERROR, MachineCosts
from dataflow.analysis.kept_predictions import predict_as_fitted
from dataflow.analysis.prediction import (
    FITTED_CORES,
    FlowVolume,
    MachineSpeed,
    count_workers,
    measure_flow,
)
from dataflow.analysis.result import group_results
from dataflow.analysis.stored_costs import (
    CostFile,
    FittedMachine,
    StoredCost,
    Unexplained,
    fit_costs,
    load_costs,
)
from dataflow.commands import predict
from dataflow.errors import RecordError, UsageError
from dataflow.flows.catalogue import build_flow
from dataflow.machine.samples import MachineSamples, NewMemory, WarmCopies
from dataflow.plan.options import CAMPAIGNS, PRESETS, RESULTS
from dataflow.records.files import load_all
from dataflow.report.prediction_tables import (
    describe_limits,
    describe_order,
    describe_refused,
    predictions_table,
)

COST = StoredCost(
    configuration="store refs", table="headline", flow="online-dpo", iteration_bytes=1000, readers_own_a_copy=True,
    copies=10.0, faults=200.0, fixed_seconds=0.5, error=0.1, factor=2.0, machines=3,
)  # fmt: skip
COSTS = MachineCosts("new", copy_seconds=0.1, fault_seconds=0.01)
FITTED = [
    FittedMachine(boot="slow", byte_seconds=2e-4, fault_seconds=0.01),
    FittedMachine(boot="fast", byte_seconds=1e-4, fault_seconds=0.01),
]
TWO_CORES = MachineSpeed("two", cores=2, rates={1: 6e3, 2: 1e4}, fault_seconds=0.01)
DESCRIBED = ("--copy-gbps", "10", "--fault-us", "1")
TIME = re.compile(
    r"^(store driver-queue|store refs|graph shm) +copy to keep +([\d,.]+)", re.MULTILINE
)


# As raymeter writes it.
FLOW_FILE = """
name = "train.py"
title = "train.py"
query.fields = [{name = "", dtype = "int64", shape = [1]}]
returns = ["trainer"]
tasks = [
    {name = "rollout", actor = "rollout", reads = ["driver"], sends.fields = [{name = "x", dtype = "int64", shape = [1048576]}]},
    {name = "trainer", actor = "trainer", reads = ["rollout"], sends.fields = [{name = "", dtype = "int64", shape = [1]}]},
]
"""  # noqa: E501


def changed(**changes):
    return msgspec.structs.replace(COST, **changes)


def cost_file(*costs, unexplained=()):
    return CostFile(campaigns=["a"], machines=FITTED, costs=[*costs], unexplained=[*unexplained])


def predict_all(speed, *costs, size=1000):
    volume = FlowVolume("online-dpo", size, tensors=1, workers=2)
    return prediction.predict(speed, cost_file(*costs), "headline", volume)


def test_page_faults_and_the_rest_grow_with_the_bytes():
    assert COST.seconds_on(COSTS, 1000) == pytest.approx(1.0 + 2.0 + 0.5)
    assert COST.seconds_on(COSTS, 2000) == pytest.approx(1.0 + 4.0 + 1.0)


def test_predictions_are_of_one_table_and_the_fastest_is_first():
    slow = changed(configuration="slow", copies=90.0)
    other = changed(table="microbenchmark")
    predictions = predict_all(TWO_CORES, slow, other, COST)
    assert [item.cost for item in predictions] == [COST, slow]
    assert predictions[0].interval == pytest.approx((3.5 / 2, 3.5 * 2))
    (half, _) = predict_all(TWO_CORES, slow, COST, size=500)
    assert (half.faults, half.fixed_seconds) == (100.0, 0.25)  # as they are in its seconds


def test_an_unknown_factor_has_no_interval():
    (item,) = predict_all(TWO_CORES, changed(factor=None))
    assert item.interval is None and item.seconds == pytest.approx(3.5)


@pytest.mark.parametrize(("flow", "workers"), [
    ("online-dpo", 2),  # the policy's message has two readers
    ("a -> b: 8MB; b -> c: 8MB", 1),
    ("r1, r2, r3, r4, r5 -> trainer: 8MB", 5),
    ("trainer -> r1, r2, r3: 8MB", 3),
])  # fmt: skip
def test_workers_are_the_actors_that_send_or_read_at_the_same_time(flow, workers):
    assert count_workers(build_flow(flow, {})) == workers


def test_as_many_threads_copy_as_actors_work_but_no_fewer_than_in_the_campaigns_and_no_more_than_cores():
    demo = measure_flow(build_flow("online-dpo", {}))
    five = measure_flow(build_flow("r1, r2, r3, r4, r5 -> trainer: 8MB", {}))
    line = measure_flow(build_flow("a -> b: 8MB; b -> c: 8MB", {}))
    assert [demo.threads(cores) for cores in (1, 2, 16)] == [1, 2, 2]
    assert [five.threads(cores) for cores in (1, 2, 4, 16)] == [1, 2, 4, 5]
    assert line.threads(16) == FITTED_CORES


@pytest.mark.parametrize(("rates", "threads", "expected"), [
    ({16: 160.0}, 16, 160.0),
    ({16: 160.0}, 32, 160.0),
    ({16: 160.0}, 4, 80.0),  # between 40 and 160
    ({1: 20.0, 16: 160.0}, 4, 80.0),  # four times that of one
    ({1: 60.0, 16: 160.0}, 4, 160.0),  # no more than all
    ({1: 20.0, 2: 30.0, 4: 40.0, 16: 160.0}, 3, 40.0),
    ({1: 20.0, 2: 24.0, 4: 40.0, 16: 160.0}, 3, 36.0),
])  # fmt: skip
def test_the_rate_of_some_threads_lies_between_those_that_are_known(rates, threads, expected):
    speed = MachineSpeed("many", 16, rates, fault_seconds=1e-6)
    assert speed.rate(threads) == pytest.approx(expected)


def test_an_interval_is_wider_with_another_number_of_cores():
    rates = {1: 6e3, 2: 1e4, 16: 4e4}
    many = MachineSpeed("many", cores=16, rates=rates, fault_seconds=0.01)
    one = MachineSpeed("one", cores=1, rates={1: 1e4}, fault_seconds=0.01)
    (on_two,) = predict_all(TWO_CORES, COST)
    (on_many,) = predict_all(many, COST)
    (on_one,) = predict_all(one, COST)
    assert on_two.seconds == on_many.seconds == on_one.seconds
    assert on_many.interval == pytest.approx(((10 / 40 + 2.5) / 2, (10 / 6 + 2.5) * 2))
    assert on_one.interval == pytest.approx((on_two.interval[0], (2 * 1.0 + 2.5) * 2))
    assert on_many.limit_seconds == 1000 / 4e4


BY_THREAD = msgspec.structs.replace(COST, thread_copies=8.0)
MANY = MachineSpeed("many", cores=16, rates={1: 5e3, 2: 1e4, 4: 2e4, 16: 4e4}, fault_seconds=0.01)


def test_copies_by_one_thread_predict_machines_with_other_cores():
    (on_many,) = predict_all(MANY, BY_THREAD)
    assert on_many.seconds == pytest.approx(8.0 * 1000 / 5e3 + 2.0 + 0.5)
    (half,) = predict_all(MANY, BY_THREAD, size=500)
    assert half.seconds == pytest.approx(on_many.seconds / 2)
    (on_one,) = predict_all(
        MachineSpeed("one", cores=1, rates={1: 1e4}, fault_seconds=0.01), BY_THREAD
    )
    assert on_one.seconds == pytest.approx(8.0 * 1000 / 1e4 + 2.0 + 0.5)


def test_with_the_cores_of_the_campaigns_copies_are_those_by_all():
    assert TWO_CORES.cores == FITTED_CORES
    (with_thread,) = predict_all(TWO_CORES, BY_THREAD)
    (without,) = predict_all(TWO_CORES, COST)
    assert with_thread.seconds == without.seconds
    assert with_thread.interval == without.interval


@pytest.mark.parametrize(("workers", "cores", "rate"), [
    (1, 16, 5e3), (2, 16, 5e3), (3, 16, 5e3), (4, 16, 1e4), (8, 16, 2e4), (99, 16, 4e4), (99, 1, 5e3),
])  # fmt: skip
def test_one_thread_copies_for_two_actors_that_work_at_the_same_time(workers, cores, rate):
    rates = {count: speed for count, speed in MANY.rates.items() if count <= cores}
    speed = replace(MANY, cores=cores, rates=rates)
    volume = FlowVolume("online-dpo", 1000, tensors=1, workers=workers)
    seconds = prediction.find_seconds(speed, BY_THREAD, volume)
    assert seconds == pytest.approx(8.0 * 1000 / rate + 2.0 + 0.5)


def test_the_interval_contains_a_prediction_by_one_thread_and_stays_as_wide():
    (without,) = predict_all(MANY, COST)
    (inside,) = predict_all(MANY, BY_THREAD)
    assert inside.interval == without.interval
    above, below = changed(thread_copies=20.0), changed(thread_copies=1.0, factor=1.1)
    (slower,) = predict_all(MANY, above)
    assert slower.interval == pytest.approx((without.interval[0], slower.seconds * 2))
    one = MachineSpeed("one", cores=1, rates={1: 1e4}, fault_seconds=0.01)
    (faster,) = predict_all(one, below)
    assert faster.interval[0] == pytest.approx(faster.seconds / 1.1)


def test_the_table_says_which_copies_are_by_one_thread():
    stored = cost_file(BY_THREAD, changed(configuration="graph shm"))

    def printed(speed, workers):
        volume = FlowVolume("online-dpo", 1000, tensors=1, workers=workers)
        predictions = prediction.predict(speed, stored, "headline", volume)
        table = predictions_table(predictions)
        column = table.headers.index("copies")
        cells = {row[0]: row[column] for row in table.cells}
        return cells, " ".join(describe_limits(speed, stored, predictions, volume))

    cells, limits = printed(MANY, workers=2)
    assert cells == {"store refs": "8 by 1 thread", "graph shm": "10"}
    assert "One copy by 1 thread takes 200 ms here. For store refs, copies by one thread" in limits
    cells, limits = printed(MANY, workers=4)
    assert cells["store refs"] == "8 by 2 threads" and "by 2 threads takes 100 ms" in limits
    cells, _ = printed(MANY, workers=99)
    assert cells["store refs"] == "8 by 16 threads"
    cells, limits = printed(TWO_CORES, workers=2)
    assert cells == {"store refs": "10", "graph shm": "10"} and "One copy by" not in limits


def test_predictions_of_a_campaign_use_one_thread_too():
    size = 1000
    memory = NewMemory(bytes=size, faults=10, seconds=[0.3])
    copies = [WarmCopies(size, threads, [size / rate]) for threads, rate in MANY.rates.items()]
    machine = MachineSamples(
        measured_at="", environment={}, just_freed=memory, huge_pages=memory, freed_before=memory, warm_copies=copies,
        pickle_bytes=1, pickle_seconds=[1.0], hash_bytes=1, hash_seconds=[1.0], round_trip_seconds=[1.0],
    )  # fmt: skip
    one = predict_as_fitted(machine, BY_THREAD, cost_file(BY_THREAD))
    pair = predict_as_fitted(machine, COST, cost_file(COST))
    assert one.seconds - pair.seconds == pytest.approx(8.0 * size / 5e3 - 10.0 * size / 1e4)


def test_copies_faster_or_slower_than_in_all_campaigns_widen_the_interval_by_the_fixed_time():
    fast = MachineSpeed("fast", cores=2, rates={2: 4e4}, fault_seconds=0.01)
    (item,) = predict_all(fast, COST)
    assert item.interval == pytest.approx(((0.25 + 2 + 0.5 / 4) / 2, (0.25 + 2 + 0.5) * 2))
    slow = MachineSpeed("slow", cores=2, rates={2: 2.5e3}, fault_seconds=0.01)
    (item,) = predict_all(slow, COST)
    assert item.interval == pytest.approx(((4 + 2 + 0.5) / 2, (4 + 2 + 0.5 * 2) * 2))


def test_what_memory_that_is_kept_gains_and_at_which_price_of_a_page_fault_the_order_changes():
    configurations = {
        "store refs": {"copies": 10.0, "faults": 200.0},
        "store refs --retain-memory": {"copies": 5.0, "faults": 0.0},
        "graph shm": {"copies": 2.0, "faults": 100.0},
        "torch gloo": {"copies": 3.0, "faults": 0.0},  # it keeps no memory
        "graph view": {"copies": 1.0, "faults": 100.0, "readers_own_a_copy": False},
        # The next message overwrites what its readers have.
        "graph zero-copy --copy-out": {"copies": 1.0, "faults": 100.0},
    }
    size = 10
    speed = MachineSpeed("new", cores=2, rates={2: 1e6}, fault_seconds=1e-6)
    scaled = []
    for name, values in configurations.items():
        values |= {"configuration": name, "iteration_bytes": size, "fixed_seconds": 0.0}
        scaled.append(changed(**values))
    predictions = predict_all(speed, *scaled, size=size)
    seconds = {item.cost.configuration: item.seconds for item in predictions}
    gains = prediction.find_gains(predictions)
    assert gains == {"store refs": seconds["store refs"] / seconds["store refs --retain-memory"]}
    (crossing,) = prediction.find_crossings(speed, predictions)
    assert (crossing.kept, crossing.plain) == ("store refs --retain-memory", "graph shm")
    assert crossing.fault_seconds == pytest.approx(3e-5 / 100)  # three copies or 100 page faults
    assert describe_order(speed, predictions) == [
        "Times as fast with --retain-memory on this machine: store refs 6.",
        "Above 0.3 µs per page fault (here 1), store refs --retain-memory is faster than graph shm.",
    ]


def test_the_text_says_what_nothing_was_fitted_on():
    volume = measure_flow(build_flow("online-dpo", {"iteration_bytes": 10**8}))
    few = measure_flow(build_flow("a -> b: x 1000 x int64 8kB", {}))
    many = MachineSpeed("many", cores=16, rates={2: 1e4, 16: 4e4}, fault_seconds=0.01)
    fast = MachineSpeed("fast", cores=2, rates={2: 4e4}, fault_seconds=0.01)
    cost = changed(iteration_bytes=volume.bytes)

    def limits(speed, cost=cost, volume=volume):
        file = cost_file(cost)
        predictions = prediction.predict(speed, file, "headline", volume)
        return " ".join(describe_limits(speed, file, predictions, volume))

    assert "3 machines with 2 cores" in limits(TWO_CORES) and "Nothing" not in limits(TWO_CORES)
    assert "Nothing was fitted on 16 cores" in limits(many)
    assert "faster or slower here than on all" in limits(fast)
    assert "faster or slower here than on all" in limits(replace(TWO_CORES, fault_seconds=0.02))
    assert "faster or slower" not in limits(TWO_CORES)
    assert "predicted by their bytes" in limits(TWO_CORES, COST)
    assert "predicted by their bytes" not in limits(TWO_CORES)
    assert "1,000 tensors of 7.813 KiB on average" in limits(TWO_CORES, volume=few)


def test_an_interval_is_wider_for_other_messages_and_unknown_for_many_tensors():
    factor = prediction.factor_for
    large = FlowVolume("online-dpo", 10**8, tensors=10, workers=2)
    cost = changed(iteration_bytes=10**8, factor=1.5)
    assert factor(cost, large) == 1.5
    assert factor(cost, replace(large, flow="a -> b: 100MB")) == pytest.approx(2.24, abs=0.01)
    assert factor(cost, replace(large, bytes=2 * 10**8)) == pytest.approx(2.24, abs=0.01)
    assert factor(cost, replace(large, bytes=10**7)) is None
    assert factor(cost, replace(large, flow="a -> b: 100MB", tensors=10_000)) is None
    assert factor(changed(factor=None), large) is None


def test_a_configuration_that_copies_and_page_faults_do_not_explain_is_named():
    refused = Unexplained(configuration="torch x", table="headline", flow="a", error=0.31)
    assert describe_refused([refused], "headline") == [
        "No prediction for torch x: copies and page faults miss its times on those machines by 31 %, which is more "
        "than 20 %."
    ]
    assert describe_refused([refused], "weights") == []


def test_no_configuration_is_predicted_that_the_fit_refuses():
    stored = load_costs()
    assert max(cost.error for cost in stored.costs) <= MAX_ERROR
    assert stored.unexplained and min(item.error for item in stored.unexplained) > MAX_ERROR


def read_times(printed: str) -> dict[str, float]:
    return {name: float(text.replace(",", "")) for name, text in TIME.findall(printed)}


def test_the_price_of_a_page_fault_changes_what_is_predicted(capsys):
    assert predict.main(["--copy-gbps", "10", "--fault-us", "0.01"]) == 0
    cheap = read_times(capsys.readouterr().out)
    assert predict.main(["--copy-gbps", "10", "--fault-us", "5"]) == 0
    dear = read_times(capsys.readouterr().out)
    assert cheap["store driver-queue"] > cheap["store refs"] > cheap["graph shm"]
    factors = [dear[name] / cheap[name] for name in ("store refs", "graph shm")]
    assert min(factors) > 2


def test_cores_need_not_be_those_of_the_campaigns(capsys):
    predict.main(["--copy-gbps", "12,40", "--fault-us", "0.3", "--cores", "16"])
    printed = capsys.readouterr().out
    assert (
        "16 cores, 24 GB/s copied by 2 threads and 40 by all cores, 0.3 µs per page fault"
        in printed
    )
    assert "one copy for each reader by all cores takes 12 ms" in printed


def test_the_command_shows_copies_by_one_thread_with_other_cores_only(capsys):
    by_thread = re.compile(r"^(store refs|graph shm) .*  [\d.]+ by 1 thread ", re.MULTILINE)
    predict.main(["--copy-gbps", "5,35", "--fault-us", "1.1", "--cores", "16"])
    assert by_thread.findall(capsys.readouterr().out) == ["store refs"]
    predict.main(["--copy-gbps", "5,9", "--fault-us", "1.1"])
    assert "by 1 thread" not in capsys.readouterr().out


def test_another_flow_says_how_it_is_predicted(capsys):
    predict.main([*DESCRIBED, "--flow", "a -> b: x int64 64MB"])
    assert "predicted by their bytes" in capsys.readouterr().out
    predict.main([*DESCRIBED])
    assert "predicted by their bytes" not in capsys.readouterr().out


def test_the_order_of_small_tensors_is_not_explained(capsys):
    predict.main([*DESCRIBED, "--flow", "a -> b: x 1000 x int64 8kB"])
    assert "Times as fast with" not in capsys.readouterr().out
    predict.main([*DESCRIBED])
    assert "Times as fast with" in capsys.readouterr().out


@pytest.mark.study("weights")
def test_a_flow_that_campaigns_have_measured_has_its_own_costs(capsys):
    predict.main([*DESCRIBED, "--flow", "weights", "--model", "gpt2"])
    printed = capsys.readouterr().out
    assert "torch broadcast" in printed and "driver-queue" not in printed


def test_a_preset_and_the_flow_of_a_file_are_predicted(tmp_path, capsys):
    path = tmp_path / "flow.toml"
    path.write_text(FLOW_FILE)
    assert predict.main([*DESCRIBED, "--flow", str(path)]) == 0
    assert "8 MiB per iteration" in capsys.readouterr().out
    assert predict.main([*DESCRIBED, "--flow", next(iter(PRESETS))]) == 0


@pytest.mark.parametrize(("words", "reason"), [
    (["--copy-gbps", "10"], "give both"),
    (["--fault-us", "1"], "give both"),
    ([*DESCRIBED, "--machine", "a.json"], "--machine: leave it out"),
    (["--copy-gbps", "0", "--fault-us", "1"], "--copy-gbps"),
    (["--copy-gbps", "nan", "--fault-us", "1"], "--copy-gbps"),
    (["--copy-gbps", "40,12", "--fault-us", "1"], "--copy-gbps"),
    (["--copy-gbps", "1,2,3", "--fault-us", "1"], "--copy-gbps"),
    ([*DESCRIBED, "--cores", "0"], "--cores"),
    (["--cores", "4"], "--cores: give --copy-gbps and --fault-us"),
    ([*DESCRIBED, "--flow", "a ->"], "a ->"),
    ([*DESCRIBED, "--flow", "a -> b: 8B"], "measure them with"),
    ([*DESCRIBED, "--in-flight", "2"], "--in-flight: no prediction takes it into account"),
    ([*DESCRIBED, "--iterations", "2"], "--iterations: give --check, too"),
    ([*DESCRIBED, "--runs", "2"], "--runs, --output and --state: give --check, too"),
    ([*DESCRIBED, "--check"], "--check measures this machine"),
    (["--check", "--runs", "0"], "--runs: 0 is not possible: give a whole number"),
    (["--copy-gbps", "x", "--fault-us", "1"], "--copy-gbps: x is not possible: give a number above 0"),
    (["--copy-gbps", "3,2", "--fault-us", "1"], "give one rate, or that of one thread"),
])  # fmt: skip
def test_wrong_flags_are_rejected_in_one_line(words, reason):
    with pytest.raises(UsageError, match=reason):
        predict.main(words)


def test_without_a_measured_machine_the_command_that_measures_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(predict, "MACHINES", tmp_path)
    with pytest.raises(UsageError, match="python3 -m dataflow machine"):
        predict.main([])


def test_a_measured_machine_has_a_rate_for_each_number_of_threads():
    memory = NewMemory(bytes=1000, faults=10, seconds=[0.3])
    machine = MachineSamples(
        measured_at="", environment={}, just_freed=memory, huge_pages=memory,
        freed_before=NewMemory(bytes=1000, faults=10, seconds=[0.5]),
        warm_copies=[WarmCopies(1000, 1, [0.1, 0.2, 0.1]), WarmCopies(1000, 2, [0.05])],
        pickle_bytes=1, pickle_seconds=[1.0], hash_bytes=1, hash_seconds=[1.0], round_trip_seconds=[1.0],
    )  # fmt: skip
    speed = predict.speed_of_samples(machine, "here", 1000)
    assert (speed.cores, speed.rates) == (2, {1: 1e4, 2: 2e4})
    assert speed.fault_seconds == pytest.approx(0.02)
    assert speed.paused_fault_seconds == pytest.approx(0.04)


def test_a_damaged_file_of_costs_is_rejected(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text("{}")
    with pytest.raises(RecordError, match=r"costs\.json has no costs"):
        load_costs(path)


def test_the_stored_costs_are_those_of_the_campaigns():
    stored = load_costs()
    fitted = fit_costs()
    assert stored.campaigns == fitted.campaigns
    assert stored.machines == fitted.machines
    assert [item.configuration for item in stored.unexplained] == [
        item.configuration for item in fitted.unexplained
    ]
    for old, new in zip(stored.costs, fitted.costs, strict=True):
        assert old.configuration == new.configuration
        assert [old.copies, old.faults, old.fixed_seconds] == pytest.approx(
            [new.copies, new.faults, new.fixed_seconds], rel=0.01, abs=1e-4
        )
        assert (old.thread_copies is None) == (new.thread_copies is None)
        assert (old.thread_copies or 0.0) == pytest.approx(new.thread_copies or 0.0, rel=0.01)


def test_stored_costs_keep_copies_by_one_thread(tmp_path):
    stored = load_costs()
    known = {}
    for cost in stored.costs:
        if cost.thread_copies is not None:
            known[cost.configuration] = cost
    assert "store refs" in known and "graph shm" not in known
    for cost in known.values():
        assert cost.thread_copies < cost.copies and cost.fixed_seconds == 0
    path = tmp_path / "costs.json"
    path.write_bytes(msgspec.json.encode(stored))
    assert load_costs(path) == stored


def test_all_machines_of_the_campaigns_have_the_cores_that_predictions_assume():
    cores = set()
    for results in load_campaigns(CAMPAIGNS).values():
        for result in results:
            cores |= {environment["logical_cpus"] for environment in result.environments}
    assert cores == {FITTED_CORES}


def speed_of_records(results):
    rates = machine_costs.rates_of([result for result in results if result.status == "ok"])
    return MachineSpeed("then", 2, {2: 1 / rates.byte_seconds}, rates.fault_seconds)


@pytest.mark.study("weights")
def test_the_page_says_how_many_other_large_messages_lie_in_the_wider_intervals():
    stored = load_costs()
    costs = {cost.configuration: cost for cost in stored.costs if cost.table == prediction.TABLE}
    is_inside = []
    for folder in ("sweeps", "retained-memory", "weights"):
        results = group_results(load_all([RESULTS / "published" / folder]))
        speed = speed_of_records(results)
        for result in results:
            volume = replace(measure_flow(result.flow), flow=result.workload.flow)
            cost = costs.get(result.name)
            if cost is None or not volume.is_large or volume.is_that_of(cost):
                continue
            interval = prediction.find_interval(speed, cost, stored.machines, volume)
            seconds = prediction.mean_seconds(result.seconds)
            if result.status == "ok" and interval:
                is_inside.append(interval[0] <= seconds <= interval[1])
    assert len(is_inside) > 20
    assert sum(is_inside) >= 0.85 * len(is_inside)
    page = " ".join((RESULTS.parent / "docs" / "method.md").read_text().split())
    assert (
        f"{sum(is_inside)} of {len(is_inside)} published times of other large messages lie in it"
        in page
    )


def test_iterations_with_pauses_predict_a_flow_that_campaigns_measured_both_ways():
    large = replace_struct(COST, iteration_bytes=2**30)
    without_pauses = replace_struct(large, table="without-pauses")
    volume = FlowVolume("online-dpo", 2**30, tensors=5, workers=2)
    for costs, table in (
        ([without_pauses], "without-pauses"),
        ([without_pauses, large], "headline"),
    ):
        stored = CostFile(campaigns=[], machines=FITTED, costs=costs, unexplained=[])
        assert prediction.choose_table(stored, volume) == table


def test_no_prediction_is_of_messages_whose_sizes_change():
    with pytest.raises(UsageError, match="--changing-sizes: no prediction takes it into account"):
        predict.parse_command(["--changing-sizes", "0.5"])
