# SPDX-License-Identifier: Apache-2.0
"""Show predictions, what would change their order, how far they can be trusted, and how well a few of them hold."""

from collections.abc import Sequence

from dataflow.analysis.cost_model import MAX_ERROR
from dataflow.analysis.prediction import (
    FITTED_CORES,
    HOLDS,
    OTHER_MESSAGES,
    RETAINED,
    Check,
    FlowVolume,
    MachineSpeed,
    Prediction,
    distance_from_fit,
    find_crossings,
    find_gains,
)
from dataflow.analysis.stored_costs import CostFile, Unexplained
from dataflow.machine.samples import MachineSamples
from dataflow.report.tables import (
    READER_GROUPS,
    Column,
    TextTable,
    format_ends_of_seconds,
    format_microseconds,
    format_milliseconds,
    format_range,
    format_significant,
    group_of_readers,
    make_table,
)
from dataflow.units import GB, MICROSECOND, format_bytes

MAX_CROSSINGS = 3
MAX_SPREAD = 1.5  # of copies by all cores on a machine that does nothing else


def predictions_table(predictions: Sequence[Prediction]) -> TextTable:
    return make_table(predictions, COLUMNS)


def name_reader(prediction: Prediction) -> str:
    return READER_GROUPS[group_of_readers(*prediction.cost.work)]


def format_copies(prediction: Prediction) -> str:
    """Return the copies, and by how many threads each is made if that is not as many as for most configurations."""
    copying = prediction.copying
    text = format_significant(copying.copies)
    if not copying.is_fitted_to_one:
        return text
    return f"{text} by {name_count(copying.threads, 'thread')}"


CONFIGURATION = Column("configuration", lambda item: item.cost.configuration)
PREDICTED = Column("predicted ms", lambda item: format_milliseconds(item.seconds))
INTERVAL = Column("95 % interval", lambda prediction: format_ends_of_seconds(prediction.interval))
COLUMNS = (
    CONFIGURATION,
    Column("readers get", name_reader, is_text=True, rank=3),
    PREDICTED,
    INTERVAL,
    Column("copies", format_copies),
    Column("page faults", lambda item: format_significant(item.faults)),
    Column("fixed ms", lambda item: format_milliseconds(item.fixed_seconds), rank=1),
    Column("x limit", lambda item: format_significant(item.seconds / item.limit_seconds), rank=2),
)


def describe_machine_speed(speed: MachineSpeed, volume: FlowVolume) -> list[str]:
    """Return the machine, and in how many ms its cores can copy each message once for each reader."""
    fault = f"{format_microseconds(speed.fault_seconds)} µs per page fault"
    if speed.paused_fault_seconds is not None:
        paused = format_microseconds(speed.paused_fault_seconds)
        fault += f" ({paused} if the memory was freed some seconds before)"
    limit = format_milliseconds(volume.bytes / speed.rate(speed.cores))
    threads = volume.threads(speed.cores)
    return [
        f"{speed.name}: {name_count(speed.cores, 'core')}, {describe_rates(speed, threads)}, {fault}.",
        f"Limit: one copy for each reader by all cores takes {limit} ms.",
    ]


def warn_of_spread(machine: MachineSamples, size: int) -> list[str]:
    """Return a warning if other programs have probably used the machine while it was measured."""
    rates = machine.copies_of(size, machine.cores).rates
    spread = max(rates) / min(rates)
    if spread < MAX_SPREAD:
        return []
    return [
        f"warning: the slowest copy by all cores took {format_significant(spread)} times as long as the fastest one: "
        "measure the machine again when it does nothing else"
    ]


def describe_rates(speed: MachineSpeed, threads: int) -> str:
    """Return what the threads copy that work at the same time, and all cores if these are more."""
    rate = format_significant(speed.rate(threads) / GB)
    text = f"{rate} GB/s copied by {name_count(threads, 'thread')}"
    if threads < speed.cores:
        text += f" and {format_significant(speed.rate(speed.cores) / GB)} by all cores"
    return text


def name_count(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def describe_order(speed: MachineSpeed, predictions: Sequence[Prediction]) -> list[str]:
    """Return what keeping memory gains on this machine, and at which prices of a page fault the order changes."""
    lines = []
    gains = [f"{name} {format_significant(gain)}" for name, gain in find_gains(predictions).items()]
    if gains:
        lines.append(f"Times as fast with {RETAINED} on this machine: {', '.join(gains)}.")
    here = format_microseconds(speed.fault_seconds)
    for crossing in find_crossings(speed, predictions)[:MAX_CROSSINGS]:
        price = format_microseconds(crossing.fault_seconds)
        lines.append(
            f"Above {price} µs per page fault (here {here}), {crossing.kept} is faster than {crossing.plain}."
        )
    return lines


def describe_limits(
    speed: MachineSpeed,
    stored: CostFile,
    predictions: Sequence[Prediction],
    volume: FlowVolume,
) -> list[str]:
    """Return to what the costs were fitted, and how this machine and these messages differ from that."""
    rates = [1 / machine.byte_seconds / GB for machine in stored.machines]
    prices = [machine.fault_seconds / MICROSECOND for machine in stored.machines]
    fitted_bytes = predictions[0].cost.iteration_bytes
    machines = max(prediction.cost.machines for prediction in predictions)
    lines = [
        f"Fitted to the mean times of campaigns on {machines} machines with {FITTED_CORES} cores "
        f"({format_range(rates)} GB/s, {format_range(prices)} µs per page fault) and messages of "
        f"{format_bytes(fitted_bytes)} per iteration."
    ]
    if speed.cores != FITTED_CORES:
        lines.append(
            f"Nothing was fitted on {name_count(speed.cores, 'core')}: the intervals go from copies by all cores to "
            "copies by one."
        )
    lines += describe_copying(speed, predictions, volume)
    if is_unlike(speed, stored, volume):
        lines.append(
            "Copies or page faults are faster or slower here than on all of those machines. No measurement has checked "
            "that, so a prediction can miss by more than its interval says."
        )
    if not volume.is_that_of(predictions[0].cost):
        lines.append(describe_other_messages(volume))
    return lines


def describe_copying(
    speed: MachineSpeed, predictions: Sequence[Prediction], volume: FlowVolume
) -> list[str]:
    """Return which configurations are predicted by copies of one thread, and what such a copy takes here."""
    by_thread = [item for item in predictions if item.copying.is_fitted_to_one]
    if not by_thread:
        return []
    threads = by_thread[0].copying.threads
    milliseconds = format_milliseconds(volume.bytes / speed.rate(threads))
    names = ", ".join(item.cost.configuration for item in by_thread)
    return [
        f"One copy by {name_count(threads, 'thread')} takes {milliseconds} ms here. For {names}, copies by one thread "
        "predict a machine that is left out of the fit better than copies by all cores."
    ]


def is_unlike(speed: MachineSpeed, stored: CostFile, volume: FlowVolume) -> bool:
    """Return whether copies or page faults take a time here that lies outside of those of the campaigns' machines."""
    copying = 1 / speed.rate(volume.threads(speed.cores))
    if distance_from_fit(copying, stored.machines) != 1:
        return True
    prices = [machine.fault_seconds for machine in stored.machines]
    return not min(prices) <= speed.fault_seconds <= max(prices)


def describe_other_messages(volume: FlowVolume) -> str:
    """Return how far messages can be trusted that no campaign has measured."""
    if volume.is_large:
        return (
            "These messages are not those of the campaigns, and are predicted by their bytes: each interval goes at "
            f"least from the predicted time divided by {OTHER_MESSAGES:g} to {OTHER_MESSAGES:g} times it."
        )
    return (
        f"These messages have {volume.tensors:,} tensors of {format_bytes(volume.tensor_bytes)} on average. Calls and "
        "tensors take time that is in no prediction, so an iteration can take many times as long."
    )


def describe_refused(unexplained: Sequence[Unexplained], table: str) -> list[str]:
    """Return for which configurations of a table there is no prediction, and why."""
    return [describe_error(refused) for refused in unexplained if refused.table == table]


def describe_error(refused: Unexplained) -> str:
    return (
        f"No prediction for {refused.configuration}: copies and page faults miss its times on those machines by "
        f"{100 * refused.error:.0f} %, which is more than {100 * MAX_ERROR:.0f} %."
    )


def checks_table(checks: Sequence[Check]) -> TextTable:
    """Return what was predicted and what was measured of each configuration."""
    columns = (
        Column("configuration", lambda check: CONFIGURATION.cell(check.prediction)),
        Column("predicted ms", lambda check: PREDICTED.cell(check.prediction)),
        Column("95 % interval", lambda check: INTERVAL.cell(check.prediction)),
        Column("measured ms", format_measured),
        Column("page faults", format_faults_of_check, rank=1),
        Column(f"within {100 * HOLDS:.0f} %", name_verdict, is_text=True),
    )
    return make_table(checks, columns)


def format_measured(check: Check) -> str:
    if check.measured_seconds is None:
        return "-"
    return format_milliseconds(check.measured_seconds)


def format_faults_of_check(check: Check) -> str:
    """Return the predicted and the counted page faults per iteration."""
    predicted = format_significant(check.prediction.faults)
    return f"{predicted} → {format_significant(check.measured_faults)}"


def name_verdict(check: Check) -> str:
    """Return whether a prediction holds, and by how many percent it differs from the measured time."""
    if check.measured_seconds is None:
        return "not measured"
    error = check.prediction.seconds / check.measured_seconds - 1
    return f"{'yes' if check.holds else 'no'} ({100 * error:+.0f} %)"


def describe_checks(checks: Sequence[Check]) -> str:
    held = sum(check.holds for check in checks)
    return (
        f"The prediction holds within {100 * HOLDS:.0f} % of the measured mean for {held} of {len(checks)} "
        "configurations."
    )
