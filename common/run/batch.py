"""Measure several configurations: give each one a record, measure them in turns, and continue an earlier call."""

import re
import shlex
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from common.errors import UsageError
from common.flows.catalogue import build_flow, flag_name
from common.main import tolerate_closed_output
from common.plan.command_line import did_you_mean, parse_options
from common.plan.options import Options
from common.plan.plan import Plan, resolve_plan
from common.records import files
from common.records.environment import MACHINE_KEYS, describe_environment
from common.records.schema import Record, Run
from common.run.paired import run_paired
from common.run.supervisor import measure_run
from common.transports.catalogue import CONFIGURATIONS, TRANSPORTS

DEFAULT_ITERATIONS = "30"  # of a configuration that the user chose, without --iterations, --duration and --sweep
INTERRUPTED = re.compile("interrupted|the run was killed")  # the reason of a run that --continue repeats
# All runs of a record must agree in these; the version of NCCL is unknown without torch.
CONTINUE_KEYS = (*(key for key in MACHINE_KEYS if key != "nccl"), "git_commit")
Planned = tuple[Plan, UsageError | None]  # and why it cannot be measured


@dataclass
class Item:
    """One configuration: its plan, the path of its record, and the number of runs that an earlier call has finished."""

    planned: Planned
    path: Path
    label: str = ""
    finished: int = 0
    record: Record = field(init=False)

    def __post_init__(self) -> None:
        self.plan, self.skipped = self.planned
        self.label = self.label or self.plan.configuration.name
        self.record = self.plan.new_record()
        if self.skipped:
            self.record.environments["0"] = describe_environment()
            self.record.runs.append(Run(status="skipped", reason=str(self.skipped)))

    def load_finished_runs(self) -> int:
        """Keep the record and the finished runs of an earlier call (--continue). Return its --order-seed."""
        record = files.load(self.path)
        seed = self.record.arguments["order_seed"] = record.arguments.get("order_seed", 0)
        for name in ("suite", "table", "workload", "configuration", "traced", "arguments"):
            if getattr(record, name) != getattr(self.record, name):
                raise UsageError(f"--continue: {self.path} was measured with other flags: give the same flags again")
        now, then = describe_environment(), record.environments.get("0", {})
        for key in CONTINUE_KEYS:
            if then and (now.get(key) or None) != (then.get(key) or None):
                raise UsageError(f"--continue: {self.path} was measured with another {key}: measure all again")
        record.runs = [run for run in record.runs if run.status == "ok" or not INTERRUPTED.match(run.reason or "")]
        self.record, self.finished = record, len(record.runs)
        return seed


def plan_configuration(
    text: str, flags: Sequence[str], suite: str = "", table: str = "", traced: bool = False
) -> list[Planned]:
    """Return the plan of a configuration, such as "graph shm --huge-pages"; with --sweep, one per value.

    `flags` are those of all configurations. They override the flags of a suite, but not those in the text of a user.
    """
    try:
        runtime, transport, *own_flags = shlex.split(text)
    except ValueError:
        raise UsageError(f"--configs '{text}': give a runtime and a transport, and close every quote") from None
    if f"{runtime} {transport}" not in TRANSPORTS:
        raise UsageError(f"unknown configuration {text}{did_you_mean(text, CONFIGURATIONS)} (--list lists all)")
    names = {word.partition("=")[0] for word in (*own_flags, *flags)}
    for name in {"--trace", "--output", "--runs"} & names:
        raise UsageError(f"{text}: {name} is not a flag of one of several configurations: use its script")
    if not suite and not {"--iterations", "--duration", "--sweep"} & names:
        own_flags += ["--iterations", DEFAULT_ITERATIONS]
    all_flags = [*own_flags, *flags] if suite else [*flags, *own_flags]
    if traced:
        all_flags += ["--trace", "trace"]  # make_items replaces the name
    try:
        return resolve_points(runtime, parse_options("", runtime, ["--transport", transport, *all_flags]), suite, table)
    except UsageError as error:
        raise UsageError(f"{runtime} {transport}: {error}") from None


def resolve_points(runtime: str, points: Sequence[Options], suite: str = "", table: str = "") -> list[Planned]:
    """Return a plan per value of a sweep. A value that does not fit is skipped, unless it is the first and smallest."""
    planned: list[Planned] = []
    for options in points:
        try:
            planned.append(resolve_plan(runtime, options, suite, table))
        except UsageError as error:
            try:
                flow = build_flow(options.flow, options.sizes, options.message)
                smallest, _ = planned[0]
            except (ValueError, IndexError):
                raise error from None
            options = replace(options, transport=smallest.transport.name)
            planned.append((replace(smallest, options=options, requested_flow=flow), error))
    return planned


def make_items(planned: Sequence[Planned], folder: Path) -> list[Item]:
    """Return an item for each plan. Its label has the flags of the workload whose values differ between the plans."""
    flags = []
    for plan, _ in planned:
        options = plan.options
        values = {"flow": plan.workload.flow, "message": options.message, "placement": options.placement}
        flags.append({name: value for name, value in (values | options.sizes).items() if value is not None})
    items = []
    for index, (plan, skipped) in enumerate(planned):
        label = plan.configuration.name
        for name, value in flags[index].items():
            differs = len({others[name] for others in flags if name in others}) > 1
            if name in ("message", "as_sent") or differs:
                label += f" {flag_name(name)}" + ("" if value is True else f" {value}")
        slug = re.sub("[^a-zA-Z0-9.]+", "-", label).strip("-")[:200]  # a file name has at most 255 bytes
        path = folder / f"{index:02}-{slug}.json"
        if plan.options.trace:
            plan = replace(plan, options=replace(plan.options, trace=path.with_suffix(".trace")))
        items.append(Item((plan, skipped), path, label))
    return items


def pair_with_checkout(item: Item, checkout: Path) -> list[Item]:
    """Return the item with this code and with that of another checkout; their records go to new/ and old/."""
    folder, name = item.path.parent, item.path.name
    old_plan = replace(item.plan, checkout=checkout.resolve())
    old = Item((old_plan, None), folder / "old" / name, f"{item.label}, {checkout.resolve().name}")
    return [Item(item.planned, folder / "new" / name, item.label), old]


def measure_turns(turns: Sequence[Sequence[Item]]) -> list[int]:
    """Measure each turn: one item, or two that are paired. Turns that an earlier call has finished are left out.

    Return the exit codes of the runs; after 130, nothing more is measured.
    """
    from common.report.tables import format_milliseconds

    counts: Counter[Path] = Counter()
    waiting: list[tuple[int, Sequence[Item]]] = []
    for order, items in enumerate(turns):
        counts.update(item.path for item in items)
        if any(counts[item.path] > item.finished for item in items):
            waiting.append((order, items))
    codes: list[int] = []
    durations: list[float] = []
    for order, items in waiting:
        begin = time.monotonic()
        if len(items) > 1:
            codes += run_paired([(item.plan, item.record, item.path) for item in items], order)
        else:
            codes.append(measure_run(items[0].plan, items[0].record, items[0].path, order))
        durations.append(time.monotonic() - begin)
        left = statistics.mean(durations) * (len(waiting) - len(durations))
        for item in items:
            run, trace = item.record.runs[-1], item.plan.options.trace
            if trace and run.spans:
                from common.trace.spans import write_chrome

                write_chrome(trace, run, item.record.workload.edges)
            result = run.reason
            if run.status == "ok":
                result = f"{format_milliseconds(statistics.median(run.seconds))} ms, {len(run.seconds)} iterations"
            if len(turns) > 1:
                times = f"{format_duration(durations[-1])}; about {format_duration(left)} left"
                with tolerate_closed_output():
                    print(f"{order + 1:3} of {len(turns)}  {item.label}: {result} ({times})")
        if 130 in codes:
            break
    return codes


def format_duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
