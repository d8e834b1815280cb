# SPDX-License-Identifier: Apache-2.0
"""Plan configurations, give each one a record, a new one or that of an earlier call, and measure their runs.

This module imports neither Ray nor torch. The environment of each driver process is set before it starts.
"""

import re
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import structs

from common.record import only_measurement, save_somewhere
from dataflow.catalogue.catalogue import configuration_name, suites
from dataflow.errors import RunFailed, UsageError, did_you_mean
from dataflow.measure.monitor import Monitor, run_beside
from dataflow.plan.command_line import Planned, list_members, plan_transport
from dataflow.plan.options import FLAGS
from dataflow.records import files
from dataflow.records.folder import RecordFolder
from dataflow.records.machine import MACHINE_KEYS, describe_environment, machine_values
from dataflow.records.schema import Record, Run
from dataflow.workers.cleanup import RunFolder, remove_dead_runs

MAX_REPEATS = 2  # of a run that other programs or virtual machines disturbed
# How the reason of a run begins that --continue repeats.
INTERRUPTED = ("interrupted", "the run was killed")


class Item:
    """One configuration that is measured or skipped: its plan, its record, and the path of the record."""

    def __init__(self, planned: Planned, path: Path, label: str = "") -> None:
        self.plan, self.skipped = planned
        self.path = path
        self.saved_path = path  # another one if the record could not be saved there
        self.label = label or self.plan.configuration.name
        self.is_continued = False
        self.record = self.plan.new_record()
        if self.skipped:
            self.record.environments["0"] = describe_environment()
            self.record.runs.append(Run(status="skipped", reason=str(self.skipped)))

    def keep_finished_runs(self, record: Record) -> None:
        """Take over the record of an earlier call (--continue), with those of its runs that have finished.

        Left out are runs that were interrupted or killed; failed ones stay. Raise UsageError if the record was made
        with other flags, on another machine or by another commit.
        """
        self.is_continued = True
        if not files.is_same_measurement(record, self.record):
            raise UsageError(
                f"--continue: {self.path} was measured with other flags: give the same flags again"
            )
        self._check_environment(record)
        record.runs = [run for run in record.runs if not (run.reason or "").startswith(INTERRUPTED)]
        self.record = record

    def _check_environment(self, record: Record) -> None:
        """Raise UsageError if a record is of another machine or commit. All runs of a record must agree in them."""
        now = describe_environment()
        then = record.environments.get("0")
        if not then:
            return
        keys = (*MACHINE_KEYS, "git_commit")
        values_now = machine_values(now, keys)
        values_then = machine_values(then, keys)
        for key in keys:
            if values_now[key] != values_then[key]:
                raise UsageError(
                    f"--continue: {self.label} was measured with another {key}: measure all again"
                )

    def save(self) -> None:
        """Save the record, whatever happens; raise RecordError if there is no place for it."""
        self.saved_path = save_somewhere(self.saved_path, self.record)


@contextmanager
def new_records(items: Sequence[Item]) -> Iterator[None]:
    """Create the records. Remove them if an error ends the block before anything is measured."""
    created: list[Item] = []
    try:
        for item in items:
            files.create(item.path, item.record)
            created.append(item)
        yield
    except BaseException:
        for item in created:
            if all(run.status == "skipped" for run in item.record.runs):
                item.path.unlink(missing_ok=True)
        raise


def make_items(planned: Sequence[Planned], folder: Path) -> list[Item]:
    """Return an item for each plan, with a record that is not yet saved.

    Its label has the --message and the switches of the workload, and the flags whose values differ.
    """
    sizes = [flag.name for flag in FLAGS if flag.size]
    names = ["flow", "message", "placement", *sizes]
    named = {"message"}
    arguments = [plan.options.arguments for plan, _ in planned]
    for name in names:
        values = {given[name] for given in arguments}
        if len(values - {None}) > 1:
            named.add(name)
    items = []
    for index, (plan, skipped) in enumerate(planned):
        shown = {}
        for name in names:
            value = arguments[index][name]
            if value is True or (value is not None and name in named):
                shown[name] = value
        transport = plan.transport
        flags = plan.configuration.flags | shown
        label = configuration_name(transport.runtime.name, transport.name, flags)
        words = re.sub("[^a-zA-Z0-9.]+", "-", label).strip("-")
        slug = words[:200]  # a file name has at most 255 bytes
        items.append(Item((plan, skipped), folder / f"{index:02}-{slug}.json", label))
    return items


def plan_suite(
    names: Sequence[str], suite: str, given: Mapping[str, Any], folder: Path, table: str = ""
) -> list[Item]:
    """Return the items of a suite, or those that are named as in the suite, in --dry-run or in tables.

    Raise UsageError for an unknown name, and for flags that do not fit a configuration. They need not fit those of
    transports that are not named, if there are names.
    """
    planned: list[Planned] = []
    written: list[str] = []  # how the suite names each of them
    needed = {" ".join(name.split()[:2]) for name in names}
    for part in suites()[suite]:
        flags = {**given, "trace": True} if part.traced else given
        for member in list_members(part):
            values = {**member.flags, **flags}
            try:
                added = plan_transport(member.transport, values, suite, table or part.table)
            except UsageError:
                if not names or member.transport.label in needed:
                    raise
                continue
            planned += added
            written += [member.name] * len(added)
    items = make_items(planned, folder)
    if not names:
        return items
    selected = []
    known: set[str] = set()
    for item, text in zip(items, written, strict=True):
        labels = {item.label, item.plan.configuration.name, text}
        known |= labels
        if not labels.isdisjoint(names):
            selected.append(item)
    for name in names:
        if name not in known:
            advice = f"{did_you_mean(name, known)} (--dry-run shows all)"
            raise UsageError(f"{suite} has no {name}{advice}")
    return selected


def pair_with_checkout(item: Item, checkout: Path) -> list[Item]:
    """Return the item with this code and with that of another checkout; their records go to new/ and old/."""
    folder = item.path.parent
    name = item.path.name
    old_plan = replace(item.plan, checkout=checkout.resolve())
    old = Item((old_plan, None), folder / "old" / name, f"{item.label}, {checkout.resolve().name}")
    return [Item((item.plan, None), folder / "new" / name, item.label), old]


@dataclass(frozen=True)
class ScheduledRun:
    """One run that is to be measured: its configuration, its position among all runs, and the name of its pair."""

    item: Item
    order: int
    pair: str = ""  # shared by two runs of a paired measurement


def measure_all(groups: Sequence[Sequence[Item]], folder: RecordFolder) -> list[int]:
    """Measure one run after the other, and leave out what an earlier call finished. The runs of a group are a pair.

    Wait until other measurements on this machine have ended. Return the last exit code of each run that was measured
    now; after 130, nothing more is measured. Raise RecordError if a record cannot be read or saved, and UsageError if
    one that is continued is of other flags, another machine or commit.
    """
    scheduled = schedule_runs(groups)
    codes: list[int] = []
    with only_measurement():
        folder.take_apart()
        for item in {run.item for run in scheduled if run.item.is_continued}:
            # Again, because the call that held the lock may have finished more.
            item.keep_finished_runs(files.load(item.path))
        remaining = find_remaining(scheduled)
        begin = time.monotonic()
        for run in remaining:
            codes.append(measure_until_undisturbed(run))
            save_trace(run.item)
            if len(scheduled) > 1:
                seconds_so_far = time.monotonic() - begin
                seconds_left = seconds_so_far / len(codes) * (len(remaining) - len(codes))
                position = f"{run.order + 1:3} of {len(scheduled)}"
                print_progress(run.item, position, seconds_so_far, seconds_left)
            if codes[-1] == 130:
                break
        if 130 not in codes:
            folder.join()
    return codes


def schedule_runs(groups: Sequence[Sequence[Item]]) -> list[ScheduledRun]:
    """Return the runs of all groups in their order. The runs of a group of several items are a pair."""
    scheduled: list[ScheduledRun] = []
    for items in groups:
        pair = secrets.token_hex(4) if len(items) > 1 else ""
        for item in items:
            scheduled.append(ScheduledRun(item, len(scheduled), pair))
    return scheduled


def find_remaining(scheduled: Sequence[ScheduledRun]) -> list[ScheduledRun]:
    """Return the runs that no earlier call has finished (--continue), going by the records of their items."""
    passed: Counter[Path] = Counter()
    remaining = []
    for run in scheduled:
        path = run.item.path
        passed[path] += 1
        # A run that was disturbed and its repetitions have the same position.
        finished = {finished.order for finished in run.item.record.runs}
        if passed[path] > len(finished):
            remaining.append(run)
    return remaining


def measure_until_undisturbed(run: ScheduledRun) -> int:
    """Measure a run, and repeat it at most MAX_REPEATS times while something disturbs it. Return the last exit code.

    All of these runs are in the record. None is repeated with --allow-disturbed, or if it fails or is interrupted.
    Raise RecordError if the record cannot be saved.
    """
    from dataflow.report.render import print_text  # imports numpy

    item = run.item
    code = measure_run(item, run.order, run.pair)
    if item.plan.options.allow_disturbed:
        return code
    for repetition in range(1, MAX_REPEATS + 1):
        disturbance = item.record.runs[-1].disturbance
        if code != 0 or not disturbance:
            break
        print_text(
            f"{item.label}: {disturbance} during this run, so it is measured again "
            f"(repetition {repetition} of at most {MAX_REPEATS})"
        )
        sys.stdout.flush()
        code = measure_run(item, run.order, run.pair)
    return code


def save_trace(item: Item) -> None:
    """Write the Chrome trace of the last run beside its record, if it was traced."""
    from dataflow.trace.spans import write_chrome

    run = item.record.runs[-1]
    if run.spans:
        write_chrome(item.path.with_suffix(".trace"), run, item.record.workload.edges)


def print_progress(item: Item, position: str, seconds_so_far: float, seconds_left: float) -> None:
    """Print the time per iteration of the last run of an item, or why it has none, and how long all runs take."""
    from dataflow.report.render import print_text

    so_far = timedelta(seconds=round(seconds_so_far))
    left = timedelta(seconds=round(seconds_left))
    times = f"{so_far} so far, about {left} left"
    print_text(f"{position}  {item.label}: {describe_last_run(item)} ({times})")
    sys.stdout.flush()


def describe_last_run(item: Item) -> str:
    """Return the time per iteration of the last run of an item, or why it has none."""
    from dataflow.analysis.result import Result
    from dataflow.report.tables import format_milliseconds

    run = item.record.runs[-1]
    result = Result((structs.replace(item.record, runs=[run]),))
    if run.status != "ok":
        return str(result.failure)
    text = f"{format_milliseconds(result.seconds_of(run))} ms per iteration"
    if run.disturbance:
        text += f", disturbed: {run.disturbance}"
    if run.settled is False:
        text += ", its times had not settled after the warm-up"
    return text


def measure_run(item: Item, order: int, pair: str = "") -> int:
    """Measure the plan once in a process of its own. The record gets the run, and is saved before and after it.

    `order` is the position among all runs, and `pair` is the name that two paired runs share. Return the exit code: 0,
    1 (the run failed, or its record is saved in another place) or 130 (it was interrupted). Raise RecordError if there
    is no place for the record. A defect of the suite is raised again when the run is marked as failed.
    """
    runs = item.record.runs
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    store_bytes = item.plan.store_bytes
    runs.append(Run(started_at=started_at, order=order, pair=pair, store_bytes=store_bytes))
    item.save()
    try:
        remove_dead_runs()
        follow_run(item)
    except KeyboardInterrupt:
        iterations = len(runs[-1].seconds)
        fail(runs[-1], f"interrupted after {iterations} timed iterations")
        return 130
    except RunFailed as error:  # as the last thing, if processes cannot be ended
        has_reason = runs[-1].status == "failed" and runs[-1].reason != Run().reason
        fail(runs[-1], f"{runs[-1].reason}; {error}" if has_reason else str(error))
    except Exception as error:  # a defect of the suite
        fail(runs[-1], f"{type(error).__name__}: {error}")
        raise
    finally:
        item.save()
    is_in_place = item.saved_path == item.path
    return 0 if runs[-1].status == "ok" and is_in_place else 1


def follow_run(item: Item) -> None:
    """Start the driver process of a plan, and that of the flow of --beside, and follow them to their end.

    If the run fails, its status says so. Raise RunFailed if a process cannot be started or ended, if there is no space
    for the folders of a run, or if the flow of --beside fails or ends too early.
    """
    with run_beside(item.plan.beside) as count_iterations, RunFolder() as run_folder:
        plan = replace(item.plan, run_folder=run_folder.folder, shared_folder=run_folder.shared)
        monitor = Monitor(plan, item.record)
        monitor.follow_driver(run_folder)
        run = item.record.runs[-1]
        if plan.beside and run.status == "ok":
            first_timed = 2 + (run.warmup_iterations or 0)
            begin, _ = monitor.progress.iteration(first_timed)
            _, end = monitor.progress.iteration(monitor.progress.progress[2])
            run.beside_iterations = count_iterations(begin, end)
            run.beside_seconds = end - begin
            run.other_cores = None  # the other flow has a part in both
            run.loopback_bytes = None


def fail(run: Run, reason: str) -> None:
    run.status = "failed"
    run.reason = reason
