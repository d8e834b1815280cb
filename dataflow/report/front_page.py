# SPDX-License-Identifier: Apache-2.0
"""Build the answers of README.md: what to change, and what an iteration costs then in copies and page faults."""

from collections.abc import Mapping, Sequence

from dataflow.analysis.campaigns import Row
from dataflow.analysis.left_out import LeftOutTime
from dataflow.analysis.outcomes import rms_error
from dataflow.analysis.stored_costs import CostFile, StoredCost
from dataflow.catalogue.catalogue import BASELINE, SIMPLEST
from dataflow.records.machine import describe_gpus
from dataflow.report.campaign_tables import format_boots, format_memory
from dataflow.report.machine_columns import divide_means
from dataflow.report.outcome_tables import format_factor
from dataflow.report.tables import Section, format_milliseconds, format_range, format_significant
from dataflow.units import format_bytes

NAME = "three-answers"
TABLE = "headline"
KEPT = f"{SIMPLEST} --retain-memory"
GRAPH = "graph shm"
NAMES = (BASELINE, SIMPLEST, KEPT, GRAPH)
MILLISECOND = 1e-3
MICROSECOND = 1e-6


def build_three_answers(
    by_name: Mapping[str, Row],
    stored: CostFile,
    left_out: Sequence[LeftOutTime] = (),
    on_gpus: str = "",
) -> Section:
    """Return three changes with what an iteration costs after them, and what was measured on GPUs.

    left_out: times of machines that were predicted from the others. The section is empty if one of the changes was not
    measured.
    """
    if not by_name.keys() >= {*NAMES}:
        return Section(NAME, "")
    rows = [by_name[name] for name in NAMES]
    of_table = [cost for cost in stored.costs if cost.table == TABLE]
    costs = {cost.configuration: cost for cost in of_table if cost.configuration in NAMES}
    described = {name: describe_cost(costs.get(name)) for name in NAMES}
    gains = {name: describe_gain(by_name[name], by_name[BASELINE]) for name in NAMES}
    answers = [
        "1. **Pass references on; don't call `ray.get` in the driver.** Through the driver, an iteration costs "
        f"{described[BASELINE]}; with references, it costs {described[SIMPLEST]}{gains[SIMPLEST]}.",
        "2. **Keep freed memory, with four environment variables.** References then cost "
        f"{described[KEPT]}{gains[KEPT]}, and need {format_memory(by_name[KEPT])} GiB of memory instead of "
        f"{format_memory(by_name[SIMPLEST])} GiB.",
        "3. **Or compile the calls into a graph.** Then an iteration costs "
        f"{described[GRAPH]}{gains[GRAPH]}.",
    ]
    of_answers = [item for item in left_out if item.table == TABLE and item.configuration in NAMES]
    messages = describe_messages(rows[0], [*costs.values()], of_answers)
    parts = [messages, "\n".join(answers), describe_machines(rows, stored)]
    if on_gpus:
        parts.append(f"**On a GPU:** {on_gpus} More is [here](docs/cluster.md#gpus).")
    return Section(NAME, "", "\n\n".join(parts))


def describe_cost(cost: StoredCost | None) -> str:
    """Return the copies, the page faults, and the time that neither explains; for None, that they do not explain it."""
    if cost is None:
        return "a time that copies and page faults do not explain"
    copies = format_significant(cost.copies)
    faults = format_significant(cost.faults)
    if not cost.fixed_seconds:
        return f"{copies} copies and {faults} page faults"
    rest = format_milliseconds(cost.fixed_seconds)
    return f"{copies} copies, {faults} page faults and {rest} ms that neither explains"


def describe_gain(row: Row, other: Row) -> str:
    """Return a part of a sentence: how many times as fast as `other` a row is on all machines; "" if not known."""
    gains = divide_means(row, other)
    if not gains:
        return ""
    return f" (here, {format_range([*gains.values()])} times as fast as through the driver)"


def describe_messages(
    row: Row, costs: Sequence[StoredCost], left_out: Sequence[LeftOutTime]
) -> str:
    """Return what an iteration sends, on how many machines its cost was fitted, and with which error.

    left_out: the times of these configurations on machines that were left out of the fit.
    """
    workload = row.newest.workload
    size = format_bytes(workload.bytes_per_iteration)
    text = f"One iteration sends {size} in {len(workload.edges)} messages."
    if not costs:
        return text
    machines = min(cost.machines for cost in costs)
    error = 100 * max(cost.error for cost in costs)
    parts = [
        f"{text} Its time depends on the machine, so here is what it costs: copies of all these bytes (fitted), and "
        f"page faults (counted). Times that follow from them differ by {error:.0f} % (rms) or less from those of our "
        f"{machines} machines"
    ]
    pairs = [
        (item.predicted_seconds, item.measured_seconds)
        for item in left_out
        if item.predicted_seconds is not None
    ]
    if pairs:
        factor = format_factor(1 + rms_error(pairs))
        parts.append(
            f"and by a factor of {factor} from those of a machine that was left out of the fit"
        )
    return f"{', '.join(parts)} ([more](docs/method.md#another-machine)):"


def describe_machines(rows: Sequence[Row], stored: CostFile) -> str:
    """Return what a copy and a page fault take on the machines, and what kind of machines these are."""
    size = rows[0].newest.workload.bytes_per_iteration
    copies = [size * machine.byte_seconds / MILLISECOND for machine in stored.machines]
    faults = [machine.fault_seconds / MICROSECOND for machine in stored.machines]
    environments = []
    boots: set[str] = set()
    for row in rows:
        boots |= row.boots
        for pair in row.pairs.values():
            environments += pair.new.environments
    are_virtual = all(environment.get("virtual_machine") for environment in environments)
    kind = "virtual machines" if are_virtual else "machines"
    cores = format_range([environment["logical_cpus"] for environment in environments])
    gpus = " or ".join(sorted({describe_gpus(environment) for environment in environments}))
    return (
        f"There, all cores together take {format_range(copies)} ms for such a copy, and a page fault takes "
        f"{format_range(faults)} µs. These numbers are of tensors on CPUs, from {format_boots(len(boots))} of {kind} "
        f"with {cores} cores and {gpus}."
    )
