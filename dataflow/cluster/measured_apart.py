# SPDX-License-Identifier: Apache-2.0
"""Read what was measured apart from the demo's flow: the calls of Ray, and the page faults of smaller messages.

* A call with a message: one message per iteration, on the line through the times of its two smallest sizes, at 0 bytes.
* Submitting a call: the driver's spans of traced runs.
* One call more: chains, and calls at the same time, beside round trips.

All of them are of one machine, and no machine has other times. Round trips of 1 KiB took far longer on one machine: if
calls were scaled by them, flows with larger messages would be simulated as too slow there.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path as FilePath
from statistics import fmean

from dataflow.analysis.result import Result, group_results
from dataflow.analysis.stages import TracedSpan
from dataflow.analysis.stored_costs import shorten
from dataflow.cluster.costs import CallCost, SizedFaults, WayCalls
from dataflow.flows.flow import DRIVER, Flow
from dataflow.plan.options import RESULTS
from dataflow.records import files

PUBLISHED = RESULTS / "published"
KEPT = " --retain-memory"
REFERENCES = "store refs"
DIRECT = "rdt gloo"
ONE_MESSAGE = "retained-memory"  # a table: a message per iteration, in several sizes
HOPS = "hops"  # a table: messages of 1 KiB
STAGES = "stages"  # a table of traced runs
ROUND_TRIP = "round-trip"
AT_ONCE = "scatter-gather"
SUBMIT = "submit"  # a stage
ENDS = 2  # a message is sent, and read

Amount = Callable[[Result], float]
Count = Callable[[Flow], int]


@cache
def load_table(name: str) -> list[Result]:
    """Return the results of a published table."""
    return load_results(PUBLISHED / name)


def load_results(folder: FilePath) -> list[Result]:
    return group_results(files.load_all([folder]))


def transport_of(result: Result) -> str:
    """Return the name of a configuration without its flags, but with that of kept memory."""
    configuration = result.configuration
    is_kept = configuration.flags.get("retain_memory", False)
    name = f"{configuration.runtime} {configuration.transport}"
    return name + KEPT if is_kept else name


def mean_seconds(result: Result) -> float:
    return fmean(result.seconds)


def core_seconds(result: Result) -> float:
    """Return the processor time of all processes per iteration."""
    return result.cpu_seconds_per_iteration or 0.0


def count_calls(flow: Flow) -> int:
    return len(flow.tasks)


def count_messages(flow: Flow) -> int:
    return len(flow.edges)


def calls_of_store() -> WayCalls:
    """Return what calls take through the object store.

    A call that makes a message and one that reads it take the same time: each takes half of what both take.
    """
    cost = CallCost(
        seconds=shorten(time_of_call(mean_seconds)),
        core_seconds=shorten(time_of_call(core_seconds)),
        submit_seconds=shorten(time_of_submitting(REFERENCES, count_calls)),
        source=f"tables {ONE_MESSAGE} and {STAGES}",
    )
    return WayCalls(call=cost, reading_call=cost)


def calls_of_direct() -> WayCalls:
    """Return what calls take with Ray Direct Transport.

    Each message that is read takes as long as one message more of a chain. Threads of the driver submit at the same
    time, and wait for each other. So its core is busy for no longer than what each message more at the same time adds.
    """
    plain = calls_of_store().call
    in_a_row = find_hops(DIRECT, "chain")
    at_once = find_hops(DIRECT, AT_ONCE)
    at_most = time_of_one_more(at_once, mean_seconds, count_messages)
    submitting = time_of_submitting(DIRECT, count_messages)
    reading = CallCost(
        seconds=shorten(time_of_one_more(in_a_row, mean_seconds, count_messages)),
        core_seconds=shorten(time_of_one_more(in_a_row, core_seconds, count_messages)),
        submit_seconds=shorten(min(submitting, at_most)),
        source=f"tables {HOPS} and {STAGES}",
    )
    return WayCalls(call=plain, reading_call=reading)


def driver_seconds_at_most() -> float:
    """Return what each of several calls at the same time adds: all of them need the driver's core."""
    at_once = find_hops(REFERENCES, AT_ONCE)
    return shorten(time_of_one_more(at_once, mean_seconds, count_calls))


def messages_by_size(name: str) -> list[Result]:
    """Return the results of one message per iteration, the smallest first."""
    results = [result for result in load_table(ONE_MESSAGE) if transport_of(result) == name]
    return sorted(results, key=lambda result: result.workload.bytes_per_iteration)


def time_of_call(amount: Amount) -> float:
    """Return what a call takes with a message of no bytes: the mean of runs with and without kept memory."""
    times = []
    for name in (REFERENCES, REFERENCES + KEPT):
        small, larger, *_ = messages_by_size(name)
        begin = small.workload.bytes_per_iteration
        end = larger.workload.bytes_per_iteration
        at_zero = (amount(small) * end - amount(larger) * begin) / (end - begin)
        times.append(at_zero / len(small.flow.tasks))
    return fmean(times)


def find_hops(name: str, flow: str) -> Result:
    """Return the result of small messages in a flow."""
    for result in load_table(HOPS):
        if result.workload.flow == flow and transport_of(result) == name:
            return result
    raise LookupError(f"{HOPS}: no {name} with {flow}")


def time_of_one_more(several: Result, amount: Amount, count: Count) -> float:
    """Return what each call, or each message, that a round trip does not have adds to its time."""
    single = find_hops(transport_of(several), ROUND_TRIP)
    more = count(several.flow) - count(single.flow)
    return (amount(several) - amount(single)) / more


def time_of_submitting(name: str, count: Count) -> float:
    """Return for how long the driver submits each call, or each message, of a flow, on all its threads together."""
    microseconds = 0.0
    calls = 0
    for result in load_table(STAGES):
        if transport_of(result) == name:
            calls += count(result.flow) * len(result.seconds)
            microseconds += sum(span.end_us - span.begin_us for span in spans_of_submitting(result))
    return microseconds / calls / 1e6


def spans_of_submitting(result: Result) -> list[TracedSpan]:
    """Return when the driver submitted something."""
    spans = []
    for run in result.shown_runs:
        for values in run.spans:
            span = TracedSpan(*values)
            if span.process == DRIVER and span.stage == SUBMIT:
                spans.append(span)
    return spans


def faults_of_smaller(is_kept: bool, smallest_bytes: int) -> list[SizedFaults]:
    """Return the page faults of a byte that is sent, or read, in messages smaller than those of the demo."""
    name = REFERENCES + KEPT if is_kept else REFERENCES
    smaller = []
    for result in messages_by_size(name):
        size = result.workload.bytes_per_iteration
        faults = result.faults_per_iteration
        if size < smallest_bytes and faults is not None:
            smaller.append(SizedFaults(size, shorten(faults / (ENDS * size))))
    return smaller
