# SPDX-License-Identifier: Apache-2.0
"""Show what clusters are forecast to do, and how the simulation compares with what was measured."""

from collections.abc import Iterable, Sequence

from dataflow.cluster.costs import (
    CallCost,
    ForecastFile,
    LayoutCheck,
    load_forecast,
    typical_machine,
)
from dataflow.cluster.forecast import DRIVERS_CORE, Case, Forecast, Point, forecast
from dataflow.cluster.hardware import Cluster, format_rate, parse_rate
from dataflow.cluster.presets import LINK, ClusterPreset, load_presets
from dataflow.cluster.ways import Path
from dataflow.report.tables import (
    Column,
    Section,
    TextTable,
    format_milliseconds,
    format_signed_percent,
    format_significant,
    make_table,
)
from dataflow.units import format_bytes

GOAL = 0.2  # of the measured time, within which the simulation should be
GOAL_TEXT = f"{GOAL * 100:.0f} %"
BLOCKS = "blocks"  # the placement if none is given: neighbours share a node
NOT_MEASURED = "Not measured: a simulation."


def say_checks(checks: Sequence[LayoutCheck]) -> str:
    """Return how many measured layouts the simulation is near, and that larger ones were not measured."""
    near = count_near(checks)
    counts = [check.nodes for check in checks]
    nodes = max(counts)
    measured = f"{near} of {len(checks)} measured times, on up to {nodes} nodes"
    return f"{NOT_MEASURED} It is within {GOAL_TEXT} of {measured} (docs/cluster.md)."


def say_calls(stored: ForecastFile, calls: int) -> str:
    """Return for how long so many calls of an iteration keep the driver's core busy, which is only known in part."""
    cost = stored.call
    least = format_milliseconds(calls * cost.submit_seconds, 2)
    most = format_milliseconds(calls * stored.driver_seconds_at_most, 2)
    of_all = f"so for {least} to {most} ms with the {calls:,} calls of an iteration"
    return f"{say_call(cost, stored.driver_seconds_at_most)}, {of_all}."


def say_call(cost: CallCost, at_most: float) -> str:
    """Return what a call takes, without the dot at the end."""
    one = format_milliseconds(cost.seconds, 2)
    submitting = format_milliseconds(cost.submit_seconds, 2)
    most = format_milliseconds(at_most, 2)
    return (
        f"A call takes {one} ms. The driver's core is simulated as busy for {submitting} ms of it, to submit it. "
        f"It may be busy for up to {most} ms"
    )


def say_links(checks: Sequence[LayoutCheck], cluster: Cluster) -> list[str]:
    """Return up to which rate links were measured, if those of a cluster are faster."""
    fastest = max(check.link_rate for check in checks)
    if cluster.nodes == 1 or cluster.link_rate <= fastest:
        return []
    rate = format_rate(fastest)
    return [
        f"Between nodes, the object store was measured up to {rate}. Here, a message crosses as fast as the link, "
        "which Ray may not reach: references and the way through the driver may take longer."
    ]


def count_near(checks: Sequence[LayoutCheck]) -> int:
    return count_within_goal(check.error for check in checks)


def count_within_goal(errors: Iterable[float]) -> int:
    near = [error for error in errors if abs(error) <= GOAL]
    return len(near)


def say_assumptions(preset: ClusterPreset) -> str:
    return f"Source: {preset.source}. Assumed: {preset.assumed}."


def format_full(item: Forecast) -> str:
    """Return from how many rollouts on a resource is full; "any number" if one rollout is enough."""
    point = item.full_from
    if point is None:
        return "-"
    if point.case.rollouts is None:
        return "yes"
    if point.case.rollouts == 1:
        return "any number"
    nodes = point.case.cluster.nodes
    noun = "node" if nodes == 1 else "nodes"
    size = f"{point.case.rollouts} on {nodes} {noun}"
    if point.limit != item.asked.limit:
        return f"{size}: {point.limit}"
    return size


def format_time(item: Forecast) -> str:
    return format_milliseconds(item.asked.seconds, 3)


def format_kept(item: Forecast) -> str:
    return "yes" if item.way.retains_memory else "no"


def format_share(item: Forecast) -> str:
    return f"{item.asked.share * 100:.0f} %"


def format_measured(check: LayoutCheck) -> str:
    return format_milliseconds(check.measured_seconds, 3)


def format_simulated(check: LayoutCheck) -> str:
    return format_milliseconds(check.simulated_seconds, 3)


def format_faults(check: LayoutCheck) -> str:
    counted = format_count(check.counted_faults)
    return f"{counted} ({format_count(check.simulated_faults)})"


def format_count(count: float | None) -> str:
    return "0" if count is not None and count < 1 else format_significant(count)


COLUMNS = (
    Column("data path", lambda item: item.way.label),
    Column("memory kept", format_kept, is_text=True),
    Column("ms per iteration", format_time),
    Column("longest in use", lambda item: item.asked.limit, is_text=True),
    Column("in use", format_share),
    Column("full from rollouts", format_full, is_text=True),
)
CHECK_COLUMNS = (
    Column("layout", lambda check: check.layout),
    Column("configuration", lambda check: check.configuration, is_text=True),
    Column("per iteration", lambda check: format_bytes(check.iteration_bytes)),
    Column("measured ms", format_measured),
    Column("simulated ms", format_simulated),
    Column("difference", lambda check: format_signed_percent(check.error)),
    Column("page faults: counted (simulated)", format_faults),
    Column(
        "difference with counted page faults",
        lambda check: format_signed_percent(check.error_with_counted_faults),
    ),
)


def forecast_table(forecasts: Sequence[Forecast]) -> TextTable:
    return make_table(forecasts, COLUMNS)


def case_of(preset: ClusterPreset, stored: ForecastFile) -> Case:
    """Return the case of a preset as it stands, on nodes with threads like those of the campaigns."""
    machine = typical_machine(stored)
    link_rate = parse_rate(LINK)
    cluster = Cluster(machine, preset.nodes, link_rate)
    flow = preset.make_flow()
    return Case(flow, cluster, BLOCKS, preset.rollouts, preset.trainers)


def count_gpus(preset: ClusterPreset, point: Point) -> int:
    """Return the GPUs of a preset with as many rollouts and trainers as a point has."""
    rollouts = point.case.rollouts or 1
    trainers = point.case.trainers or 1
    return preset.count_gpus(rollouts, trainers)


def limiting_gpus(preset: ClusterPreset, through_driver: Forecast) -> int | None:
    """Return from how many GPUs on the driver's core is the limit of a preset; None if at no size simulated."""
    full = through_driver.full_from
    if full is None or full.limit != DRIVERS_CORE:
        return None
    return count_gpus(preset, full)


def by_data_path(forecasts: Sequence[Forecast]) -> dict[tuple[Path, bool], Forecast]:
    """Return forecasts by their data path, and whether memory is kept."""
    by_way: dict[tuple[Path, bool], Forecast] = {}
    for item in forecasts:
        key = (item.way.path, item.way.retains_memory)
        by_way[key] = item
    return by_way


def say_first_limit(limits: Sequence[int | None]) -> str:
    """Return the answer of the page, from the GPUs from which on the driver is the limit of each preset."""
    known = [gpus for gpus in limits if gpus is not None]
    count = (
        f"{len(known)} of {len(limits)} systems"
        if len(known) < len(limits)
        else f"{len(limits)} systems"
    )
    if not known:
        return f"**In {len(limits)} systems that were simulated, the controller is the limit at no size.**"
    first = min(known)
    last = max(known)
    gpus = f"{first} GPUs on"
    if last > first:
        gpus = f"{first} to {last} GPUs on, depending on the system"
    return (
        f"**If all data goes through the controller, its core limits how fast the data moves, from {gpus}.** This is "
        f"simulated for {count}, without generation and training, and nothing of it was measured "
        "([below](#from-how-many-gpus-on-is-the-controller-the-limit))."
    )


def say_limit(name: str, preset: ClusterPreset, forecasts: Sequence[Forecast]) -> str:
    """Return from how many GPUs on the driver is the limit of a preset, and what references take instead."""
    by_way = by_data_path(forecasts)
    driver = by_way[Path.DRIVER, False]
    first = limiting_gpus(preset, driver)
    limit = "at no size that was simulated" if first is None else f"from {first} GPUs on"
    gpus = count_gpus(preset, driver.asked)
    times = []
    for path in (Path.DRIVER, Path.REFERENCES):
        for is_kept in (False, True):
            seconds = by_way[path, is_kept].asked.seconds
            times.append(format_significant(seconds))
    driver_seconds, kept_driver, references, kept_references = times
    return (
        f"* **`{name}`: {limit}.** On {gpus} GPUs ({preset.title}; {preset.rollouts} rollouts), moving the data takes "
        f"{driver_seconds} s through the driver ({kept_driver} s if memory is kept), and {references} s as references "
        f"({kept_references} s if it is kept)."
    )


def forecast_sections() -> list[Section]:
    """Return the answer for all presets, a table of each one, and the comparison with what was measured."""
    stored = load_forecast()
    answers = []
    limits = []
    tables = []
    for name, preset in load_presets().items():
        case = case_of(preset, stored)
        forecasts = forecast(case, stored.ways)
        answers.append(say_limit(name, preset, forecasts))
        through_driver = by_data_path(forecasts)[Path.DRIVER, False]
        limits.append(limiting_gpus(preset, through_driver))
        title = f"{name}: {preset.title}, {preset.rollouts} rollouts, {preset.nodes} nodes"
        notes = [f"{say_assumptions(preset)} {NOT_MEASURED}"]
        table = forecast_table(forecasts)
        tables.append(Section("cluster-presets", title, table=table, notes=notes))
    first = Section("cluster-first", "", say_first_limit(limits))
    answer = Section("cluster-limit", "", "\n".join(answers))
    call = say_call(stored.call, stored.driver_seconds_at_most)
    calls = Section("cluster-calls", "", f"{call}.")
    return [first, answer, *tables, calls, checks_section(stored.checks)]


def checks_section(checks: Sequence[LayoutCheck]) -> Section:
    """Return the measured and the simulated times, those of several nodes first."""
    ordered = sorted(checks, key=lambda check: -check.nodes)
    sentences = [say_near(checks), say_near_with_counted_faults(checks)]
    sentence = " ".join(filter(None, sentences))
    return Section("cluster-checks", "", sentence, make_table(ordered, CHECK_COLUMNS))


def say_near(checks: Sequence[LayoutCheck]) -> str:
    """Return how many simulated times are within GOAL of the measured ones: on several nodes, and of all."""
    several = [check for check in checks if check.nodes > 1]
    of_several = f"{count_near(several)} of {len(several)} times on emulated nodes"
    of_all = f"{count_near(checks)} of all {len(checks)}"
    return f"{of_several}, and {of_all}, are simulated within {GOAL_TEXT} of the measured time."


def say_near_with_counted_faults(checks: Sequence[LayoutCheck]) -> str:
    """Return how many times are near if page faults are as many as the runs counted; "" if none was simulated so."""
    compared = []
    errors = []
    for check in checks:
        error = check.error_with_counted_faults
        if error is not None:
            compared.append(check)
            errors.append(error)
    if not errors:
        return ""
    near = f"With as many page faults as the runs counted, {count_within_goal(errors)} of {len(errors)} are"
    if len(compared) == len(checks):
        return f"{near}."
    return f"{near} (with the predicted number, {count_near(compared)})."
