# SPDX-License-Identifier: Apache-2.0
"""Check the numbers that sentences of the pages have against the records in results/."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from statistics import mean, median

import numpy as np
import pytest
from conftest import ROOT

from dataflow.analysis.campaigns import load_campaigns
from dataflow.analysis.fault_price import estimate_price
from dataflow.analysis.kept_predictions import load_predictions, predict_as_fitted
from dataflow.analysis.links import link_seconds
from dataflow.analysis.machine_costs import rates_of
from dataflow.analysis.result import Result, group_results
from dataflow.analysis.stages import attribute_to_causes, fault_seconds, iteration_seconds
from dataflow.analysis.stored_costs import load_costs
from dataflow.catalogue.catalogue import BASELINE, SIMPLEST
from dataflow.cluster.costs import LayoutCheck, load_forecast
from dataflow.machine.samples import load_machine
from dataflow.records import files
from dataflow.records.schema import Run
from dataflow.report.machine_columns import divide_means
from dataflow.report.pages import load_rows

RESULTS = ROOT / "results"
WORDS = {"six": "6", "nine": "9"}
NUMBER = rf"(\d[\d,]*(?:\.\d+)?|{'|'.join(WORDS)})"
GIB, MIB = 2**30, 2**20
MANY_FAULTS = 1000  # of an iteration or of a put
DEAR_MICROSECONDS = 5  # per page fault
KEPT = " --retain-memory"
NIXL, REFS = "rdt nixl-pull --reuse-buffers", f"store refs{KEPT}"
BESIDE = " --beside 'trainer -> rollout: 100MiB'"


@dataclass(frozen=True)
class Sentence:
    """A part of a sentence of a page, with {} for each number, and the function that computes these numbers."""

    page: str
    text: str
    compute: Callable[[], Iterable[float]]


SENTENCES: list[Sentence] = []


def says(page: str, text: str):
    """Register a function that computes the numbers of a sentence."""

    def register(compute):
        SENTENCES.append(Sentence(page, text, compute))
        return compute

    return register


@cache
def load_table(folder: str) -> list[Result]:
    """Return the results of a folder in results/ that have times."""
    results = group_results(files.load_all([RESULTS / folder]))
    return [result for result in results if result.status == "ok"]


def find_all(folder: str, name: str) -> list[Result]:
    return [result for result in load_table(folder) if result.name == name]


def find(folder: str, name: str) -> Result:
    (result,) = find_all(folder, name)
    return result


@cache
def load_headline() -> dict[str, list[Result]]:
    """Return the results of each configuration of the table `headline`, one per campaign."""
    found = defaultdict(list)
    for folder in sorted((RESULTS / "campaigns").iterdir()):
        for result in load_table(f"campaigns/{folder.name}"):
            if result.table == "headline":
                found[result.name].append(result)
    return found


def runs_of(name: str) -> list[Run]:
    """Return the runs of a configuration in all campaigns."""
    runs = []
    for result in load_headline()[name]:
        runs += result.shown_runs
    return runs


def by_mean(result: Result) -> float:
    """Return the milliseconds of a result, as tables show them."""
    return result.typical_seconds * 1e3


def p50(result: Result) -> float:
    """Return the median of all iterations in milliseconds."""
    return (result.p50_seconds or 0.0) * 1e3


def p95(result: Result) -> float:
    """Return the 95th percentile of all iterations in milliseconds."""
    return (result.p95_seconds or 0.0) * 1e3


def largest_memory(name: str) -> float:
    """Return the GiB of the run of all campaigns that needed most."""
    return max(result.peak_memory_bytes for result in load_headline()[name]) / GIB


def count_faults(run: Run) -> int:
    return sum(cost.minor_faults or 0 for cost in run.processes.values())


def faults_per_iteration(name: str) -> list[float]:
    """Return the page faults per iteration of each run of all campaigns."""
    return sorted(count_faults(run) / len(run.seconds) for run in runs_of(name))


@says(
    "docs/cluster.md",
    "`graph shm` took {} ms instead of {} ms, with {} page faults per iteration instead of {} (one run each; in the "
    "slow one, the hypervisor took {} cores)",
)
def gpus_with_kept_memory():
    kept, new = (find("published/gpu", f"graph shm{flag}") for flag in (KEPT, ""))
    assert len(kept.run_seconds) == len(new.run_seconds) == 1
    faults = [result.faults_per_iteration for result in (kept, new)]
    return by_mean(kept), by_mean(new), *faults, new.shown_runs[0].steal_cores


@says("docs/cluster.md", "But those of the driver, {} of {} MiB, still go through the host")
def bytes_of_the_driver_on_gpus():
    workload = find("published/gpu", "graph cuda-ipc").workload
    of_driver = [edge.bytes for edge in workload.edges if "driver" in (edge.source, edge.reader)]
    return sum(of_driver) / MIB, workload.bytes_per_iteration / MIB


@says(
    "docs/cluster.md",
    "`graph cuda-ipc` took {} ms with {} page faults, although all copies on the card take {} ms. With `rdt cuda-ipc`, "
    "those of the driver do not go through the host either, and readers get views: {} ms.",
)
def messages_on_one_card():
    graph, rdt = (find("published/gpu", f"{runtime} cuda-ipc") for runtime in ("graph", "rdt"))
    copies = [seconds for run in graph.shown_runs for seconds in run.memcpy_before_seconds]
    faults = graph.faults_per_iteration
    return by_mean(graph), faults, median(copies) * 1e3, by_mean(rdt)


@says("docs/method.md", "the references there as too fast by {} %, and not by {} %")
def errors_of_references_on_sixteen_cores():
    return errors_on_sixteen_cores("store refs")


@says("docs/method.md", "queues on 16 cores are predicted as too fast by {} %")
def error_of_queues_on_sixteen_cores():
    now, _ = errors_on_sixteen_cores("store driver-queue")
    return [now]


def errors_on_sixteen_cores(name):
    """Return by how many percent a prediction is too fast: by the costs of now, and as it was kept before the runs."""
    (path,) = (RESULTS / "evidence" / "machines").glob("*-16.json")
    machine = load_machine(path)
    (file,) = [file for file in load_predictions() if file.cores == machine.cores]
    (campaign,) = load_campaigns(RESULTS / "evidence" / "other-campaigns").values()
    assert fault_price(campaign) > file.fault_seconds
    headline = [item for item in file.predictions if item.table == "headline"]
    kept = {item.configuration: item.seconds for item in headline}
    costs = load_costs()
    measured = {result.name: by_mean(result) / 1e3 for result in campaign}
    of_table = {cost.configuration: cost for cost in costs.costs if cost.table == "headline"}
    predicted = predict_as_fitted(machine, of_table[name], costs).seconds
    return [100 * (1 - seconds / measured[name]) for seconds in (predicted, kept[name])]


def fault_price(campaign: Iterable[Result]) -> float:
    rates = rates_of(campaign)
    assert rates is not None
    return rates.fault_seconds


@says(
    "docs/page-faults.md",
    "the variables made 128 MiB per iteration {} times as fast over `store refs`, and {} times over `graph shm` (one "
    "run each",
)
def gains_with_changing_sizes():
    gains = []
    for transport in ("store refs", "graph shm"):
        sides = {}
        for kept in (False, True):
            flags = {"retain_memory": True} if kept else {}
            found = load_table("published/changing-sizes")
            (sides[kept],) = [
                item
                for item in found
                if item.transport.label == transport and item.configuration.flags == flags
            ]
            assert len(sides[kept].run_seconds) == 1
            assert round(sides[kept].workload.bytes_per_iteration / MIB) == 128
        gains.append(gain(sides))
    return gains


@says("docs/rdt.md", "(`peers nixl-read-thread`), they took {} ms.")
def reads_with_the_progress_thread():
    return [by_mean(find("published/rdt", "peers nixl-read-thread"))]


def memory_of(folder: str, name: str) -> float:
    """Return the GiB of the run that needed most; of several results of this name, of the largest messages."""
    results = find_all(folder, name)
    largest = max(results, key=lambda result: result.workload.bytes_per_iteration)
    return largest.peak_memory_bytes / GIB


@says(
    "docs/rdt.md",
    "it takes less than half of the time, with {} GiB of memory instead of {} GiB",
)
def memory_and_time_of_new_and_kept_memory():
    new = find("published/rdt", "rdt nixl")
    kept = find("published/rdt", f"rdt nixl{KEPT}")
    assert new.work == kept.work
    assert by_mean(kept) < by_mean(new) / 2
    return [memory_of("published/rdt", result.name) for result in (kept, new)]


@says(
    "docs/results.md",
    "they were {} to {} times as fast by the mean, depending on the machine, but needed more memory: queues {} GiB "
    "instead of {} GiB, and references {} GiB instead of {} GiB",
)
def gain_and_memory_of_queues_and_references():
    rows = {row.newest.name: row for row in load_rows() if row.newest.table == "headline"}
    gains: list[float] = []
    memory = []
    for name in ("store driver-queue", "store refs"):
        gains += divide_means(rows[name + KEPT], rows[name]).values()
        memory += [largest_memory(name + KEPT), largest_memory(name)]
    return [min(gains), max(gains), *memory]


@says(
    "docs/page-faults.md",
    "`store refs` was {} times as fast with them where it says `[madvise]`, and {} times where it says `[always]`",
)
def gains_by_huge_pages():
    gains = []
    for setting in ("madvise-never", "always-never"):
        folder = f"published/huge-pages/{setting}"
        plain = find(folder, "store refs")
        kept = find(folder, f"store refs{KEPT}")
        gains.append(by_mean(plain) / by_mean(kept))
    return gains


@says("docs/page-faults.md", "up to {} GiB over `store refs`, and up to {} GiB with the variables")
def memory_of_references():
    return largest_memory("store refs"), largest_memory(REFS)


@says("docs/page-faults.md", "over a compiled graph (`graph shm`), {} and {} GiB")
def memory_of_graph():
    return largest_memory("graph shm"), largest_memory(f"graph shm{KEPT}")


@cache
def load_sizes() -> dict[int, dict[bool, Result]]:
    """Return the results by bytes per iteration, without and with kept memory."""
    found: dict[int, dict[bool, Result]] = defaultdict(dict)
    for result in load_table("published/retained-memory"):
        is_kept = bool(result.configuration.flags.get("retain_memory"))
        found[result.workload.bytes_per_iteration][is_kept] = result
    return {size: found[size] for size in sorted(found) if size >= 16 * MIB}


def gain(sides: dict[bool, Result]) -> float:
    """Return how many times as fast kept memory makes one size of messages."""
    return by_mean(sides[False]) / by_mean(sides[True])


@says(
    "docs/page-faults.md",
    "were then {} to {} times as fast (below), but the processes needed more memory: {} to {} GiB instead of {} to {} "
    "GiB",
)
def gains_by_mean_and_their_memory():
    gains = [gain(sides) for sides in load_sizes().values()]
    memory = {}
    for is_kept in (True, False):
        of_sizes = [sides[is_kept].peak_memory_bytes / GIB for sides in load_sizes().values()]
        memory[is_kept] = [min(of_sizes), max(of_sizes)]
    return [min(gains), max(gains), *memory[True], *memory[False]]


@says("docs/page-faults.md", "With the variables, {} to {} % of the iterations")
def shares_of_slow_iterations():
    assert not any(sides[False].slow_share for sides in load_sizes().values())
    kept = [100 * sides[True].slow_share for sides in load_sizes().values()]
    return min(kept), max(kept)


@says("docs/page-faults.md", "the variables would make messages of 16 MiB {} times as fast, and "
      "those of 256 MiB {} times")  # fmt: skip
def gains_by_the_medians_of_runs():
    gains = []
    for sides in load_sizes().values():
        plain, kept = (sides[is_kept].typical_median_seconds for is_kept in (False, True))
        gains.append(plain / kept)
    return gains[0], gains[-1]


@says("docs/page-faults.md", "In {} of the {} campaign runs of `store refs --retain-memory`, there "
      "were {} to {} page faults per timed iteration")  # fmt: skip
def remaining_faults():
    fewest, second, *_, most = counts = faults_per_iteration(REFS)
    assert fewest < second / 2
    return len(counts) - 1, len(counts), second, most


@says("docs/page-faults.md", "without the variables, there are about {}.")
def faults_without_the_variables():
    return [median(faults_per_iteration("store refs"))]


@says("docs/page-faults.md", "page faults of the cold copy: {} to {} µs in the campaigns")
def prices_of_copies():
    by_boot_and_commit = defaultdict(list)
    for results in load_headline().values():
        for result in results:
            environment = result.environments[0]
            campaign = (environment["boot"], environment["git_commit"])
            by_boot_and_commit[campaign] += map(fault_seconds, result.shown_runs)
    prices = [median(seconds) * 1e6 for seconds in by_boot_and_commit.values()]
    return min(prices), max(prices)


@says(
    "docs/page-faults.md",
    "iterations with one more of them took {} µs longer, and without the variables {} µs",
)
def slopes_over_page_faults():
    slopes = []
    for flags in ({"retain_memory": True}, {}):
        price = estimate_price(find_with_flags("published/allocator", flags).shown_runs)
        assert price is not None and price.is_known
        slopes.append(price.seconds * 1e6)
    return slopes


@says("docs/page-faults.md", "-10fb, the slope was {} to {} µs in the four configurations")
def slopes_of_kept_memory_in_one_campaign():
    campaign = load_campaigns(RESULTS / "campaigns")["2026-11-28T2335-10fb"]
    slopes = []
    for result in campaign:
        if result.table == "headline" and result.keeps_memory:
            price = estimate_price(result.ok_runs)
            assert price is not None and price.is_known
            slopes.append(price.seconds * 1e6)
    assert len(slopes) == 4
    return min(slopes), max(slopes)


@says("docs/page-faults.md", "A page fault of the cold copies took {} to {} µs there.")
def prices_of_cold_copies_beside_them():
    runs = [
        *find_with_flags("published/allocator", {}).shown_runs,
        *find_with_flags("published/allocator", {"retain_memory": True}).shown_runs,
    ]
    prices = [fault_seconds(run) * 1e6 for run in runs]
    return min(prices), max(prices)


def find_with_flags(folder: str, flags: dict[str, bool]) -> Result:
    """Return the result whose configuration has these flags and no others."""
    (result,) = [item for item in load_table(folder) if item.configuration.flags == flags]
    return result


def price_of_slow_iterations(run: Run) -> float:
    """Return the µs per page fault by which the iterations of a run took longer than its median."""
    longer = sum(run.seconds) - median(run.seconds) * len(run.seconds)
    return longer / count_faults(run) * 1e6


def prices_by_vendor(vendor: str) -> list[float]:
    """Return the prices of slow iterations of a graph with kept memory, of runs that had many page faults."""
    prices = []
    for result in load_headline()[f"graph shm{KEPT}"]:
        if vendor in result.environments[0]["cpu_model"]:
            runs = [r for r in result.shown_runs if count_faults(r) > MANY_FAULTS * len(r.seconds)]
            prices += map(price_of_slow_iterations, runs)
    return sorted(prices)


@says("docs/page-faults.md", "In {} of the {} runs of `graph shm --retain-memory` on AMD EPYC that "
      "had many page faults, the slow iterations took {} to {} µs more per page fault")  # fmt: skip
def prices_on_amd():
    prices = prices_by_vendor("AMD")
    dear = [price for price in prices if price > DEAR_MICROSECONDS]
    return len(dear), len(prices), min(dear), max(dear)


@says("docs/page-faults.md", "on Intel Xeon, up to {} µs")
def price_on_intel():
    return [max(prices_by_vendor("Intel"))]


@dataclass(frozen=True)
class Puts:
    """The puts of one run of examples/put_gigabytes.py: seconds and page faults of each."""

    new: list[tuple[float, int]]
    used_seconds: float  # median of puts into memory that was used before

    @property
    def microseconds_per_fault(self) -> list[float]:
        return [(seconds - self.used_seconds) / faults * 1e6 for seconds, faults in self.new]

    @property
    def times_as_long(self) -> float:
        return median(seconds for seconds, _ in self.new) / self.used_seconds


@cache
def load_puts() -> list[Puts]:
    lines = (RESULTS / "evidence" / "put-gigabytes.jsonl").read_text().splitlines()
    runs = []
    for record in map(json.loads, lines):
        if not record["preallocated"]:
            new = [put for put in record["puts"] if put[1] > MANY_FAULTS]
            used = [put[0] for put in record["puts"] if put[1] <= MANY_FAULTS]
            runs.append(Puts(new, median(used)))
    return runs


@says("docs/page-faults.md", "Of the {} puts into new memory")
def number_of_puts():
    return [sum(len(puts.new) for puts in load_puts())]


@says(
    "docs/page-faults.md",
    "{} took {} to {} µs per page fault, and nine of ten of the others {} to {} µs",
)
def prices_of_puts():
    prices = []
    for puts in load_puts():
        prices += puts.microseconds_per_fault
    dear = [price for price in prices if price > DEAR_MICROSECONDS]
    others = [price for price in prices if price <= DEAR_MICROSECONDS]
    return len(dear), min(dear), max(dear), *np.percentile(others, (5, 95))


@says("docs/page-faults.md", "about {} times as fast, in each of six releases")
def puts_into_used_memory():
    return [median(puts.times_as_long for puts in load_puts())]


def compare_beside(name: str) -> list[float]:
    """Return the mean alone and beside the other flow, and the 95th percentile of both, in ms."""
    alone = find("published/beside", name)
    beside = find("published/beside", name + BESIDE)
    return [by_mean(alone), by_mean(beside), p95(alone), p95(beside)]


@says("docs/rdt.md", "its mean rises from {} to {} ms, and its 95th percentile from {} to {} ms")
def nixl_beside_weights():
    return compare_beside(NIXL)


@says("docs/rdt.md", "the mean rises from {} to {} ms, and the 95th percentile from {} to {} ms")
def references_beside_weights():
    return compare_beside(REFS)


@says("docs/choosing.md", "with `none`, Ray registers inside the clock ({} and {} ms")
def registrations_once_and_none():
    return reversed(registrations())


@says("docs/method.md", "of `rdt nixl` do not tell them apart: {} and {} ms")
@says("docs/rdt.md", "the mean was {} ms and not {} ms, which three runs each do not tell apart")
def registrations():
    names = ("rdt nixl --registration none", "rdt nixl")
    return [by_mean(find("published/rdt", name)) for name in names]


@says("docs/rdt.md", "it says {} ms, but with kept memory an iteration takes {} ms less")
def estimate_of_page_faults():
    new = find("published/rdt-stages", "rdt nixl").shown_runs
    kept = find("published/rdt-stages", f"rdt nixl{KEPT}").shown_runs
    estimate = mean(attribute_to_causes(run)["page faults"] for run in new)
    saved = mean(map(iteration_seconds, new)) - mean(map(iteration_seconds, kept))
    return estimate * 1e3, saved * 1e3


@says(
    "docs/results.md",
    "`store driver-queue` takes {} ms less, `store refs` {} and `graph shm` {} (`dataflow report` shows these rows). "
    "The estimate says {}, {} and {}",
)
def estimates_of_page_faults():
    saved = []
    estimates = []
    for name in (BASELINE, SIMPLEST, "graph shm"):
        new = find("published/stages", name).shown_runs
        kept = find("published/stages", f"{name}{KEPT}").shown_runs
        saved.append(1e3 * (mean(map(iteration_seconds, new)) - mean(map(iteration_seconds, kept))))
        estimates.append(1e3 * mean(attribute_to_causes(run)["page faults"] for run in new))
    return [*saved, *estimates]


@says(
    "docs/rdt.md",
    "{} of {} runs of `rdt nixl --huge-pages` ([results.md](results.md)) hung in its first",
)
def runs_that_hung_in_their_first_iteration():
    return count_hung(find("published", "rdt nixl --huge-pages"))


@says("docs/rdt.md", "{} of {} runs did (above; so did one in the records before these), and {} of {} runs of "
      "`rdt nixl-pull --reuse-buffers` in the campaigns")  # fmt: skip
def runs_that_hung():
    return [
        *count_hung(find("published/rdt", "rdt nixl-pull")),
        *count_hung(*load_headline()[NIXL]),
    ]


def find_checks(flow: str, kept: bool, *configurations: str) -> list[LayoutCheck]:
    """Return the simulated layouts whose flow begins so, with kept memory or without, of some configurations or all."""
    checks = []
    for check in load_forecast().checks:
        is_asked = not configurations or check.configuration in configurations
        if check.flow.startswith(flow) and check.configuration.endswith(KEPT) == kept and is_asked:
            checks.append(check)
    return checks


@says(
    "docs/cluster.md",
    "are all simulated as too long, by up to {} %, because these flows had fewer page faults",
)
def largest_error_with_messages_of_12_mb():
    checks = find_checks("rollout-1", False)
    errors = [check.error for check in checks]
    assert min(errors) > 0
    assert all(check.counted_faults < check.simulated_faults for check in checks)
    return [100 * max(errors)]


@says("docs/cluster.md", "With counted page faults, all of them are within {} %")
def largest_error_with_counted_page_faults():
    checks = find_checks("rollout-1", False)
    return [100 * max(abs(check.error_with_counted_faults) for check in checks)]


@says(
    "docs/cluster.md",
    "most messages of 12 MB are simulated as too short, by up to {} %, and references from one or several actors to "
    "one as too long, by {} to {} %",
)
def errors_with_kept_memory():
    of_12_mb = [check.error for check in find_checks("rollout-1", True)]
    assert sum(error < 0 for error in of_12_mb) > len(of_12_mb) / 2
    to_one = [check.error for check in find_checks("fan-in", True)]
    return -100 * min(of_12_mb), 100 * min(to_one), 100 * max(to_one)


@says("docs/cluster.md", "{} of {} runs with {} to {} actors had not settled after their warm-up")
def fan_in_runs_that_had_not_settled():
    actors = set()
    settled = []
    for result in find_all("published/fan-in", f"{SIMPLEST}{KEPT}"):
        count = result.workload.sizes["actors"]
        if count > 2:
            actors.add(count)
            settled += [run.settled for run in result.shown_runs]
    return settled.count(False), len(settled), min(actors), max(actors)


@says("docs/cluster.md", "smaller messages had {} to {} times fewer page faults than simulated")
def page_faults_through_the_driver():
    smaller = find_checks("rollout-1", False, BASELINE) + find_checks("online-dpo", False, BASELINE)
    ratios = [check.simulated_faults / check.counted_faults for check in smaller]
    return min(ratios), max(ratios)


@says("docs/cluster.md", "gloo took longer than simulated in all {} cases")
def messages_over_gloo():
    checks = find_checks("fan-in", False, "rdt gloo", "torch gloo")
    assert all(check.error < 0 for check in checks)
    return [len(checks)]


@says("docs/cluster.md", "One message of `rdt gloo` took {} times as long. An")
def one_message_over_gloo():
    (found,) = [
        check
        for check in load_forecast().checks
        if check.configuration == "rdt gloo" and check.layout.startswith("one node, 2 actors")
    ]
    return [found.measured_seconds / found.simulated_seconds]


@says("docs/cluster.md", "At 25 Gbit/s, `torch gloo` took {} times as long as simulated")
def messages_over_the_fastest_link():
    checks = [check for check in load_forecast().checks if check.configuration == "torch gloo"]
    fastest = max(checks, key=lambda check: check.link_rate)
    return [fastest.measured_seconds / fastest.simulated_seconds]


@says(
    "docs/studies/detached-ppo.md",
    "a round then takes {} ms and not {}, and over a compiled graph (`graph shm`) {}",
)
def rounds_with_packed_batches():
    times = {result.label: by_mean(result) for result in load_table("published/detached-ppo")}
    packed = "--message packed --items batch"
    views = times["store refs --items views"]
    return times[f"store refs {packed}"], views, times[f"graph shm {packed}"]


@says("docs/weights.md", "`store refs --copy-out` took {} ms and not {} (three runs each)")
def weights_by_references_with_kept_memory():
    plain = find("published/weights", "store refs --copy-out")
    kept = find("published/weights", f"store refs --copy-out{KEPT}")
    assert [len(result.run_seconds) for result in (plain, kept)] == [3, 3]
    return by_mean(kept), by_mean(plain)


def count_hung(*results):
    """Return how many runs of these results hung, and how many there are."""
    reasons = []
    for result in results:
        reasons += [run.reason or "" for run in result.runs]
    hung = ["did not end within" in reason for reason in reasons]
    return sum(hung), len(hung)


@says(
    "docs/weights.md",
    "it was {} to {} times as fast as `store refs --copy-out`, depending on the machine",
)
def gain_of_receiving_weights_in_place():
    rows = {row.newest.name: row for row in load_rows() if row.newest.table == "weights"}
    in_place = rows["rdt nixl-pull --copy-out --reuse-buffers"]
    gains = divide_means(in_place, rows["store refs --copy-out"]).values()
    return [min(gains), max(gains)]


@says(
    "docs/weights.md",
    "`store refs` had {} page faults per iteration and rollout in its campaign, and {} in",
)
def page_faults_of_weights_in_a_campaign_and_later():
    of_campaign = [
        result
        for result in load_table("campaigns/2026-11-29T0216-d52e")
        if result.table == "weights" and result.name == "store refs --copy-out"
    ]
    return [
        mean_faults_of_rollouts(of_campaign),
        mean_faults_of_rollouts(load_table("evidence/weights-again")),
    ]


def mean_faults_of_rollouts(results):
    """Return the page faults per iteration and rollout, as the mean of all runs."""
    faults = []
    for result in results:
        for run in result.shown_runs:
            for name, cost in run.processes.items():
                if name.startswith("rollout"):
                    faults.append((cost.minor_faults or 0) / len(run.seconds))
    return mean(faults)


@says("docs/weights.md", "its mean is {} ms, and that of `store refs --zero-copy --copy-out` is {} ms: "
      "{} of {} iterations of the latter took {} ms or more")  # fmt: skip
def weights_that_readers_map_in_the_store():
    graph = find("published/weights", "graph zero-copy --copy-out")
    store = find("published/weights", "store refs --zero-copy --copy-out")
    slow = [seconds for seconds in store.seconds if seconds > 2 * median(store.seconds)]
    return by_mean(graph), by_mean(store), len(slow), len(store.seconds), min(slow) * 1e3


@says("docs/cluster.md", "its mean is {} s and its p50 {} s, and the slowest iteration took {} s.")
def graph_over_three_nodes():
    slowest = max(find_all("published/cluster", "graph shm"), key=by_mean)
    return by_mean(slowest) / 1e3, p50(slowest) / 1e3, max(slowest.seconds)


@says("docs/cluster.md", "more than 25 Gbit/s, where the link alone took {} of {} ms")
def link_alone_of_the_fastest_network():
    references = find("published/cluster/2-nodes-25gbit", SIMPLEST)
    return link_seconds(references) * 1e3, by_mean(references)


@says("docs/cluster.md", "For the other configurations, mean and p50 differ by {} % at most")
def others_over_nodes():
    others = [r for r in load_table("published/cluster") if r.name != "graph shm"]
    return [max(100 * abs(by_mean(result) / p50(result) - 1) for result in others)]


@says("docs/method.md", "took up to {} times as long")
def spread_of_machines():
    spreads = []
    for results in load_headline().values():
        times = [by_mean(result) for result in results]
        spreads.append(max(times) / min(times))
    return [max(spreads)]


def half_unit(text: str) -> float:
    """Return the largest distance of a value that is written as this text: half of its last digit that is not 0.

    The first two digits count also if they are 0: 20 does not stand for 22.
    """
    if "." in text:
        return 0.5 * 10 ** -len(text.partition(".")[2])
    zeros = len(text) - max(len(text.rstrip("0")), 2)
    return 0.5 * 10 ** max(zeros, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.5", 0.05), ("6", 0.5), ("20", 0.5), ("22", 0.5), ("100", 5), ("120", 5), ("1300", 50)],
)
def test_a_number_stands_for_what_is_rounded_to_two_digits(text, expected):
    assert half_unit(text) == expected


@pytest.mark.study
@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda sentence: sentence.compute.__name__)
def test_the_numbers_of_a_sentence_are_those_of_the_records(sentence):
    text = " ".join((ROOT / sentence.page).read_text().split())
    pattern = re.escape(sentence.text).replace(re.escape("{}"), NUMBER)
    match = re.search(pattern, text)
    assert match, f"{sentence.page} has no sentence like this: {sentence.text}"
    written = [WORDS.get(number, number).replace(",", "") for number in match.groups()]
    for number, computed in zip(written, sentence.compute(), strict=True):
        assert abs(float(number) - computed) <= half_unit(number) * 1.001


def test_the_page_names_the_published_records_whose_warm_up_ends_when_times_are_steady():
    page = (ROOT / "docs" / "method.md").read_text()
    (named,) = re.findall(r"and to the folders (.*?)\sof\sresults/published", page, re.DOTALL)
    found = set()
    for path in sorted((RESULTS / "published").glob("*/records.jsonl.gz")):
        warm_ups = {record.arguments.get("warmup") for record in files.load_all([path.parent])}
        if warm_ups == {None}:
            found.add(path.parent.name)
    assert set(re.findall(r"`([\w-]+)`", named)) == found
