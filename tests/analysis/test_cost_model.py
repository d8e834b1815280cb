# SPDX-License-Identifier: Apache-2.0
"""The cost model finds the copies and the fixed time of which times were made, and says how well it explains them."""

from dataclasses import replace
from math import inf, log

import pytest
from made_records import make_record, make_run

from dataflow.analysis import cost_model, machine_costs
from dataflow.analysis.campaigns import load_campaigns
from dataflow.analysis.cost_model import Cost, MachineCosts, Observation, fit
from dataflow.analysis.prediction import FITTED_CORES
from dataflow.analysis.result import group_results
from dataflow.plan.options import CAMPAIGNS

LARGE = 448 * 2**20
MACHINES = [
    MachineCosts("a", copy_seconds=0.036, fault_seconds=1.4e-6),
    MachineCosts("b", copy_seconds=0.047, fault_seconds=1.3e-6),
    MachineCosts("c", copy_seconds=0.023, fault_seconds=1.2e-6),
    MachineCosts("d", copy_seconds=0.012, fault_seconds=0.3e-6),
]
# One thread of them takes between as long as all cores and three times as long.
WITH_THREADS = [
    replace(costs, thread_copy_seconds=ratio * costs.copy_seconds)
    for costs, ratio in zip(MACHINES, (1.4, 1.9, 1.0, 3.0), strict=True)
]


def observe(machines, copies=0.0, faults=0.0, fixed=0.0, noise=()):
    """Return what a configuration with this cost takes on each machine, times a factor of `noise` if there is one."""
    observations = []
    for position, costs in enumerate(machines):
        seconds = copies * costs.copy_seconds + faults * costs.fault_seconds + fixed
        factor = noise[position] if noise else 1.0
        observations.append(Observation(costs, seconds * factor, faults))
    return observations


@pytest.mark.parametrize(
    ("copies", "faults", "fixed"), [(17.3, 678_000, 0.0), (6.7, 0, 0.0), (2.4, 0, 0.176)]
)
def test_a_fit_finds_the_cost_of_which_times_were_made(copies, faults, fixed):
    cost = fit(observe(MACHINES, copies, faults, fixed), LARGE)
    assert cost.copies == pytest.approx(copies, rel=1e-3)
    assert cost.fixed_seconds == pytest.approx(fixed, rel=1e-3, abs=1e-6)
    assert cost.error < 1e-3 and cost.is_explained


def test_small_messages_take_a_fixed_time():
    cost = fit(observe(MACHINES, fixed=0.002), iteration_bytes=1000)
    assert (cost.copies, cost.fixed_seconds) == (0.0, pytest.approx(0.002))


def test_several_campaigns_of_a_machine_count_once():
    slow = observe(MACHINES[:1], copies=20.0)
    once = fit([*slow, *observe(MACHINES[1:], copies=10.0)], LARGE)
    often = fit([*slow * 5, *observe(MACHINES[1:], copies=10.0)], LARGE)
    assert often.copies == pytest.approx(once.copies)
    assert often.machines == len(MACHINES)


def test_one_machine_explains_nothing():
    assert fit(observe(MACHINES[:1] * 3, copies=5.0), LARGE) is None


def test_times_that_copies_do_not_explain_are_refused():
    noise = (0.5, 2.0, 0.5, 2.0)
    assert not fit(observe(MACHINES, copies=5.0, noise=noise), LARGE).is_explained


def test_an_interval_contains_machines_as_different_as_those_of_the_fit():
    noise = (0.9, 1.1, 0.95, 1.05)
    observations = observe(MACHINES, copies=5.0, noise=noise)
    cost = fit(observations, LARGE)
    for observation in observations:
        error = log(cost.seconds_on(observation.costs) / observation.seconds)
        assert abs(error) < log(cost.factor)
    assert cost.factor > fit(observe(MACHINES, copies=5.0), LARGE).factor


def test_without_a_machine_to_spare_the_interval_is_unknown():
    assert Cost(1.0, 0.0, 0.1, error=0.0, machines=2, numbers=2).factor == inf


def test_a_prediction_uses_other_page_faults_if_they_are_known():
    cost = Cost(2.0, 1000.0, 0.5, error=0.0, machines=3, numbers=2)
    costs = MachineCosts("new", copy_seconds=0.1, fault_seconds=1e-3)
    assert cost.seconds_on(costs) == pytest.approx(0.2 + 1.0 + 0.5)
    assert cost.seconds_on(costs, faults=0.0) == pytest.approx(0.2 + 0.5)


def observe_one_thread(machines, copies, faults=0.0, fixed=0.0):
    """Return what a configuration takes that copies with one thread at a time."""
    observations = []
    for costs in machines:
        seconds = copies * costs.thread_copy_seconds + faults * costs.fault_seconds + fixed
        observations.append(Observation(costs, seconds, faults))
    return observations


def test_times_that_follow_one_thread_have_copies_by_one_thread_too():
    times = observe_one_thread(WITH_THREADS, copies=10.8, faults=678_000)
    cost = fit(times, LARGE)
    assert cost.thread_copies == pytest.approx(10.8, rel=1e-3)
    unknown = [replace(item, costs=MACHINES[i]) for i, item in enumerate(times)]
    assert replace(cost, thread_copies=None) == fit(unknown, LARGE)  # copies by all cores stay


def test_times_that_follow_all_cores_have_no_copies_by_one_thread():
    cost = fit(observe(WITH_THREADS, copies=16.6, faults=678_000), LARGE)
    assert cost.thread_copies is None and cost.copies == pytest.approx(16.6, rel=1e-3)


def test_copies_by_one_thread_need_machines_to_leave_out_large_messages_and_no_fixed_time():
    times = observe_one_thread(WITH_THREADS, copies=10.8)
    assert fit(times[:2], LARGE).thread_copies is None
    assert fit(times, iteration_bytes=1000).thread_copies is None
    assert fit([*times[:3], *observe(MACHINES[3:], copies=10.8)], LARGE).thread_copies is None
    with_fixed = fit(observe(WITH_THREADS, copies=2.4, fixed=0.176), LARGE)
    assert with_fixed.fixed_seconds > 0 and with_fixed.thread_copies is None


def test_one_thread_of_a_machine_is_the_mean_of_its_campaigns():
    slow, fast = (replace(WITH_THREADS[0], thread_copy_seconds=value) for value in (0.04, 0.09))
    times = observe([slow, fast, MACHINES[0]], copies=1.0)
    (machine,) = cost_model.by_machine(times)
    assert machine.costs.thread_copy_seconds == pytest.approx(0.06)


def results_with_threads(threads):
    copies = {
        "memcpy_before_seconds": [0.3, 0.4],
        "memcpy_after_seconds": [0.5],
        "memcpy_all_cores_seconds": [0.1],
        "cold_copy_before_seconds": [1.0],
        "cold_copy_after_seconds": [1.0],
        "cold_copy_faults": 100_000,
    }
    run = make_run([1.0], **copies)
    record = make_record("refs", run, flags={"threads": threads}, iteration_bytes=LARGE)
    return group_results([record])


def test_the_rate_of_one_thread_is_that_of_runs_with_one():
    (result,) = results_with_threads(1)
    rates = machine_costs.rates_of([result])
    size = result.workload.bytes_per_iteration
    assert rates.thread_byte_seconds * size == pytest.approx(0.4)
    assert rates.byte_seconds * size == pytest.approx(0.1)
    observed = machine_costs.observe(result, rates, is_mean=True)
    assert observed.costs.thread_copy_seconds == pytest.approx(0.4)
    two = machine_costs.rates_of(results_with_threads(2))
    assert two.thread_byte_seconds is None and two.byte_seconds == rates.byte_seconds


def test_one_thread_is_no_faster_than_all_cores_in_the_campaigns():
    by_boot = machine_costs.rates_by_boot(load_campaigns(CAMPAIGNS))
    for rates in by_boot.values():
        assert rates.byte_seconds < rates.thread_byte_seconds < FITTED_CORES * rates.byte_seconds


def test_the_campaigns_are_explained():
    """Most configurations with large messages have one number of copies on all machines."""
    costs = machine_costs.fit_campaigns(load_campaigns(CAMPAIGNS))
    large = [cost for cost in costs if cost.result.table == "headline"]
    assert len(large) >= 10
    unexplained = [cost.result.label for cost in large if not cost.of_median.is_explained]
    # Measured on two machines, in two runs each. Why it is not explained is not known.
    assert set(unexplained) <= {"torch gloo --keep"}


def test_rates_are_those_of_large_copies():
    (results, *_) = load_campaigns(CAMPAIGNS).values()
    rates = machine_costs.rates_of(results)
    assert 1e9 < 1 / rates.byte_seconds < 1e12
    assert 0 < rates.fault_seconds < 1e-4
    small = [result for result in results if result.workload.bytes_per_iteration < 2**20]
    assert small and machine_costs.rates_of(small) is None


def test_no_number_of_a_cost_is_below_0():
    times = [Observation(costs, 1e-9, 100_000.0) for costs in MACHINES]
    cost = fit(times, LARGE)
    assert cost.copies >= 0 and cost.error > cost_model.MAX_ERROR
