"""Plan configurations, give each one a record, a new one or that of an earlier call, and measure their runs.

This module imports neither Ray nor torch. The environment of each driver process is set before it starts.
"""

import re
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import structs

from common.record import only_measurement, save_somewhere
from dataflow.catalogue.catalogue import configuration_name, suites
from dataflow.errors import RunFailed, UsageError, did_you_mean
from dataflow.measure.monitor import Monitor, run_beside
from dataflow.plan.command_line import Planned, plan_configuration
from dataflow.plan.options import FLAGS
from dataflow.records import files
from dataflow.records.machine import MACHINE_KEYS, describe_environment
from dataflow.records.schema import Run
from dataflow.workers.cleanup import RunFolder, remove_dead_runs

MAX_REPEATS = 2  # of a run that other programs or virtual machines disturbed
INTERRUPTED = (
    "interrupted",
    "the run was killed",
)  # how the reason of a run begins that --continue repeats


class Item:
    """One configuration that is measured or skipped: its plan, its record, and the path of the record."""

    def __init__(self, planned: Planned, path: Path, label: str = "") -> None:
        self.plan, self.skipped = planned
        self.path, self.label = path, label or self.plan.configuration.name
        self.saved_path = path  # another one if the record could not be saved there
        self.is_continued = False
        self.record = self.plan.new_record()
        if self.skipped:
            self.record.environments["0"] = describe_environment()
            self.record.runs.append(Run(status="skipped", reason=str(self.skipped)))

    def load_finished_runs(self) -> None:
        """Keep the record and the finished runs of an earlier call (--continue)."""
        self.is_continued = True
        record = files.load(self.path)
        if structs.replace(record, environments={}, runs=[]) != structs.replace(
            self.record, environments={}, runs=[]
        ):
            raise UsageError(
                f"--continue: {self.path} was measured with other flags: give the same flags again"
            )
        now, then = describe_environment(), record.environments.get("0", {})
        for key in (*MACHINE_KEYS, "git_commit"):  # all runs of a record must agree in them
            if then and (now.get(key) or None) != (then.get(key) or None):
                raise UsageError(
                    f"--continue: {self.path} was measured with another {key}: measure all again"
                )
        record.runs = [run for run in record.runs if not (run.reason or "").startswith(INTERRUPTED)]
        self.record = record

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
    """Return an item for each plan. Its label has the switches of the workload, and the flags whose values differ."""
    names = [
        "flow",
        "message",
        "placement",
        *(field.name for field in FLAGS if field.metadata["size"]),
    ]
    flags = [{name: plan.options.arguments[name] for name in names} for plan, _ in planned]
    named = {
        "message",
        *(name for name in names if len({values[name] for values in flags} - {None}) > 1),
    }
    items = []
    for index, (plan, skipped) in enumerate(planned):
        shown = {
            name: v
            for name, v in flags[index].items()
            if v is True or (v is not None and name in named)
        }
        label = configuration_name(
            plan.transport.runtime.name, plan.transport.name, plan.configuration.flags | shown
        )
        slug = re.sub("[^a-zA-Z0-9.]+", "-", label).strip("-")[
            :200
        ]  # a file name has at most 255 bytes
        items.append(Item((plan, skipped), folder / f"{index:02}-{slug}.json", label))
    return items


def plan_suite(
    names: Sequence[str], suite: str, given: Mapping[str, Any], folder: Path, table: str = ""
) -> list[Item]:
    """Return the items of a suite, or those that are named as in the suite, in --dry-run or in tables.

    Raise UsageError for an unknown name. Flags need not fit configurations of transports that are not named.
    """
    planned: list[Planned] = []
    written: list[str] = []  # how the suite names each of them
    needed = [name.split()[:2] for name in names]
    for part in suites()[suite]:
        flags = {**given, "trace": True} if part.traced else given
        for text in part.commands:
            try:
                planned += plan_configuration(text, flags, suite, table or part.table)
            except UsageError:
                if not names or text.split()[:2] in needed:
                    raise
            written += [text.removesuffix(part.flags).strip()] * (len(planned) - len(written))
    items = make_items(planned, folder)
    labels = [
        {item.label, item.plan.configuration.name, text}
        for item, text in zip(items, written, strict=True)
    ]
    for name in set(names).difference(*labels):
        raise UsageError(
            f"{suite} has no {name}{did_you_mean(name, set().union(*labels))} (--dry-run shows all)"
        )
    return [
        item
        for item, own in zip(items, labels, strict=True)
        if not names or not own.isdisjoint(names)
    ]


def pair_with_checkout(item: Item, checkout: Path) -> list[Item]:
    """Return the item with this code and with that of another checkout; their records go to new/ and old/."""
    folder, name = item.path.parent, item.path.name
    old_plan = replace(item.plan, checkout=checkout.resolve())
    old = Item((old_plan, None), folder / "old" / name, f"{item.label}, {checkout.resolve().name}")
    return [Item((item.plan, None), folder / "new" / name, item.label), old]


def measure_all(groups: Sequence[Sequence[Item]]) -> list[int]:
    """Measure one run after the other, and leave out what an earlier call finished. The runs of a group are a pair.

    A run is measured again, at most MAX_REPEATS times, if something disturbed it. All of them are in the record; the
    times of disturbed runs do not count. Return the last exit code of each run; after 130, nothing more is measured.
    """
    from dataflow.analysis.result import Result
    from dataflow.report.tables import format_milliseconds
    from dataflow.trace.spans import write_chrome

    pairs = [secrets.token_hex(4) if len(items) > 1 else "" for items in groups]
    runs = [(item, pair) for items, pair in zip(groups, pairs, strict=True) for item in items]
    counts: Counter[Path] = Counter()
    codes: list[int] = []
    with only_measurement():
        for item in {item for item, _ in runs if item.is_continued}:
            item.load_finished_runs()  # again, because the call that held the lock may have finished more
        begin = time.monotonic()
        for order, (item, pair) in enumerate(runs):
            counts[item.path] += 1
            # A run that was disturbed and its repetitions have the same position.
            if counts[item.path] <= len({run.order for run in item.record.runs}):
                continue
            codes.append(measure_run(item, order, pair))
            for _ in range(0 if item.plan.options.allow_disturbed else MAX_REPEATS):
                if codes[-1] == 0 and item.record.runs[-1].disturbance:
                    codes[-1] = measure_run(item, order, pair)
            run = item.record.runs[-1]
            if run.spans:
                write_chrome(item.path.with_suffix(".trace"), run, item.record.workload.edges)
            if len(runs) > 1:
                result = Result((structs.replace(item.record, runs=[run]),))
                took = time.monotonic() - begin
                left = took / len(codes) * (len(runs) - order - 1)
                times = f"{timedelta(seconds=round(took))} so far, about {timedelta(seconds=round(left))} left"
                median = format_milliseconds(result.seconds_of(run)) if run.seconds else ""
                print(f"{order + 1:3} of {len(runs)}  {item.label}: {result.failure or f'{median} ms per iteration'} "
                      f"({times})", flush=True)  # fmt: skip
            if codes[-1] == 130:
                break
    return codes


def measure_run(item: Item, order: int, pair: str = "") -> int:
    """Measure the plan once in a process of its own. The record gets the run and is saved, whatever happens.

    `order` is the position among all runs, and `pair` is the name that two paired runs share. Return the exit code: 0,
    1 (the run failed) or 130 (it was interrupted).
    """
    record, started_at = item.record, datetime.now(UTC).isoformat(timespec="seconds")
    record.runs.append(
        Run(started_at=started_at, order=order, pair=pair, store_bytes=item.plan.store_bytes)
    )
    item.save()
    try:
        remove_dead_runs()
        with run_beside(item.plan.beside) as count_iterations, RunFolder() as run_folder:
            plan = replace(item.plan, run_folder=run_folder.folder, shared_folder=run_folder.shared)
            monitor = Monitor(plan, record)
            monitor.follow_driver(run_folder)
            run = record.runs[-1]
            if plan.beside and run.status == "ok":
                begin, _ = monitor.progress.iteration(
                    2 + (run.warmup_iterations or 0)
                )  # the first timed one
                _, end = monitor.progress.iteration(monitor.progress.progress[2])
                run.beside_iterations, run.beside_seconds = (
                    count_iterations(begin, end),
                    end - begin,
                )
                run.other_cores, run.loopback_bytes = (
                    None,
                    None,
                )  # the other flow has a part in them
    except KeyboardInterrupt:
        run = record.runs[-1]
        run.status, run.reason = "failed", f"interrupted after {len(run.seconds)} timed iterations"
        return 130
    except RunFailed as error:  # as the last thing, if processes cannot be ended
        run = record.runs[-1]
        known = f"{run.reason}; " if run.status == "failed" and run.reason != Run().reason else ""
        run.status, run.reason = "failed", f"{known}{error}"
    except Exception as error:  # a defect of the suite
        record.runs[-1].status, record.runs[-1].reason = (
            "failed",
            f"{type(error).__name__}: {error}",
        )
        raise
    finally:
        item.save()
    return 0 if record.runs[-1].status == "ok" and item.saved_path == item.path else 1
