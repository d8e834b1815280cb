"""Measure runs, one after the other.

This module imports neither Ray nor torch. Each run has a new driver process, whose environment is set before it
starts.
"""

import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from msgspec import structs

from common.record import only_measurement
from dataflow.errors import RunFailed
from dataflow.measure.batch import Item
from dataflow.measure.monitor import Monitor
from dataflow.records.schema import Run
from dataflow.workers.cleanup import RunFolder, remove_dead_runs

MAX_REPEATS = 2  # of a run that other programs or virtual machines disturbed


def measure_all(groups: Sequence[Sequence[Item]]) -> list[int]:
    """Measure one run after the other, and leave out what an earlier call finished. The runs of a group are a pair.

    A run is measured again, at most MAX_REPEATS times, if something disturbed it. All of them are in the record; the
    times of disturbed runs do not count. Return the last exit code of each run; after 130, nothing more is measured.
    """
    from dataflow.analysis.result import Result, find_disturbance
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
                if codes[-1] == 0 and find_disturbance(item.record.runs[-1]):
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
    record.runs.append(Run(started_at=started_at, order=order, pair=pair, store_bytes=item.plan.store_bytes))
    item.save()
    try:
        remove_dead_runs()
        with RunFolder() as run_folder:
            plan = replace(item.plan, run_folder=run_folder.folder, shared_folder=run_folder.shared)
            Monitor(plan, record).follow_driver(run_folder)
    except KeyboardInterrupt:
        run = record.runs[-1]
        run.status, run.reason = "failed", f"interrupted after {len(run.seconds)} timed iterations"
        return 130
    except RunFailed as error:  # as the last thing, if processes cannot be ended
        run = record.runs[-1]
        known = f"{run.reason}; " if run.status == "failed" and run.reason != Run().reason else ""
        run.status, run.reason = "failed", f"{known}{error}"
    except Exception as error:  # a defect of the suite
        record.runs[-1].status, record.runs[-1].reason = "failed", f"{type(error).__name__}: {error}"
        raise
    finally:
        item.save()
    return 0 if record.runs[-1].status == "ok" and item.saved_path == item.path else 1
