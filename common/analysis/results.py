"""One row with all its runs, as tables and charts read it. Nothing here is stored."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from common.analysis.limits import impossible
from common.analysis.statistics import Summary, summarise
from common.errors import RecordError
from common.flow.catalogue import build_flow, flow_of_edges
from common.flow.flow import Flow
from common.record.points import points
from common.record.rows import place, row_name
from common.record.schema import Record, Run


@dataclass(frozen=True)
class Result:
    """A row and its runs, of which several records may hold some.

    shared_ceiling_seconds: of all rows of a ladder, so that their shares of it compare.
    """

    records: tuple[Record, ...]
    shared_ceiling_seconds: float | None = None

    @property
    def record(self) -> Record:
        """The first, for all that its runs have in common."""
        return self.records[0]

    @property
    def rung(self) -> str:
        """How the catalogue of rows calls it."""
        row = self.record.row
        return row_name(row.runtime, row.transport, row.flags)

    @property
    def name(self) -> str:
        return self.named(self.rung)

    def named(self, rung: str) -> str:
        """How another rung is called with this row's messages, place and device: like is compared with like."""
        row = self.record.row
        words = ["--message packed"] if row.message == "packed" else []
        words += ["--as-shipped"] if row.sizes.get("as_shipped") else []
        words += [f"--fields {row.sizes['fields']}"] if "fields" in row.sizes else []
        if row.layout.address:
            words.append("--address")
        elif row.layout.placement == "spread":
            words.append("--placement spread")
        if row.device == "cuda":
            words.append("on cuda")
        if self.injected:
            words.append(f"--inject {self.injected}")
        return " ".join([rung, *words])

    @property
    def injected(self) -> str | None:
        """What was made to go wrong, if anything."""
        return self.record.arguments.get("inject")

    @cached_property
    def flow(self) -> Flow:
        """As its users draw it.

        Raises:
            RecordError: this version knows no such flow.
        """
        row = self.record.row
        if ".py:" in row.flow:  # its file may be elsewhere, or changed; the record has its edges
            return flow_of_edges(row.flow, [(edge.source, edge.reader, edge.bytes) for edge in self.record.edges])
        try:
            return build_flow(row.flow, row.sizes, row.message)
        except (TypeError, ValueError):
            raise RecordError(
                f"{self.name} is of a flow that is unknown here ({row.flow}): update the suite, or leave it out"
            ) from None

    @property
    def flow_name(self) -> str:
        """For people; as it was asked for where it could not be drawn, as a point of a sweep that was refused."""
        return self.flow.name if self.record.edges else self.record.row.flow

    @property
    def environments(self) -> list[dict[str, Any]]:
        """Of the driver, of each record that has a run that is ok; what did not begin knows no machine."""
        done = [record for record in self.records if any(run.status == "ok" for run in record.runs)]
        return [record.environments.get("0", {}) for record in done]

    @property
    def in_flight(self) -> int:
        """How many trips are under way at a time."""
        return self.record.row.flags.get("in_flight", 1)

    @property
    def episode(self) -> int:
        """How many trips in a row; at least as many as are under way at a time."""
        return self.record.row.flags.get("episode", self.in_flight)

    @property
    def runs(self) -> list[Run]:
        return [run for record in self.records for run in record.runs]

    @cached_property
    def best_status(self) -> str:
        """ok where a run is; failed where one failed and none is ok."""
        return next(s for s in ("ok", "failed", "waived") if any(run.status == s for run in self.runs))

    @cached_property
    def status(self) -> str:
        """That of its best runs; impossible where these are ok and say what cannot be."""
        return "impossible" if self._impossible else self.best_status

    @cached_property
    def _impossible(self) -> str | None:
        """Why its numbers cannot be."""
        return impossible(self.flow, self.record.row.layout.one_process, self.shown) if self.seconds else None

    @property
    def failure(self) -> str | None:
        """Why its numbers are impossible, or what became of the runs that are not ok, and of the first of them why."""
        if self._impossible:
            return f"impossible, {self._impossible}"
        others = [run for run in self.runs if run.status != "ok"]
        if not others:
            return None
        some = f"{len(others)} of {len(self.runs)} runs " if self.status == "ok" else ""
        return f"{some}{others[0].status}, {others[0].reason}"

    @cached_property
    def shown(self) -> list[Run]:
        """Whose numbers are shown: the runs that are ok; where none is, what those that failed could finish."""
        return [run for run in self.runs if run.status == self.best_status]

    @property
    def alternated(self) -> bool:
        """Whether its trips alternated with those of other rows."""
        return any(run.alternation for run in self.runs)

    @property
    def traced(self) -> bool:
        """Whether it was to be; runs that failed have no spans."""
        return _traced(self.record)

    @property
    def traced_run(self) -> Run:
        """The first with spans; StopIteration where none has."""
        return next(run for run in self.runs if run.spans)

    @cached_property
    def seconds(self) -> list[float]:
        """The timed trips of all runs that are shown."""
        return [seconds for run in self.shown for seconds in run.seconds]

    @cached_property
    def seconds_by_run(self) -> list[list[float]]:
        """The same, a list for each run that has some."""
        return [run.seconds for run in self.shown if run.seconds]

    @cached_property
    def paced_by_run(self) -> list[float]:
        """Seconds a trip of each run, by its whole episodes: of trips that overlap each takes longer."""
        return [sum(run.episode_seconds) / len(run.seconds) for run in self.shown if run.episode_seconds]

    @property
    def paced_seconds(self) -> float:
        """The median of these runs."""
        return float(np.median(self.paced_by_run))

    @cached_property
    def summary(self) -> Summary:
        """Statistics of the trips; ValueError where there is none."""
        return summarise(self.seconds)

    @property
    def first_seconds(self) -> float | None:
        return self.shown[0].first_seconds

    @property
    def payload_copied(self) -> bool | None:
        return self.shown[0].payload_copied

    @property
    def peak_memory_bytes(self) -> int:
        """Of all processes of the first run; 0 where it is not known."""
        return sum(cost.peak_memory_bytes or 0 for cost in self.shown[0].processes.values())

    @property
    def stored_bytes_per_trip(self) -> float:
        return sum(run.stored_bytes for run in self.shown) / len(self.seconds)

    @property
    def spilled_bytes(self) -> int:
        return sum(run.spilled_bytes for run in self.shown)

    @property
    def wrong_bytes(self) -> int:
        """Of all runs: those that are ok do not make up for one that is not."""
        return sum(run.wrong_bytes for run in self.runs)

    @property
    def harness_share(self) -> float:
        """What part of a median trip the suite takes itself; harness_seconds starts after the first trip."""
        costs = [cost.harness_seconds for run in self.shown for cost in run.processes.values()]
        warmups = [record.warmup for record in self.records for run in record.runs if run.status == self.best_status]
        return sum(costs) / (sum(warmups) + len(self.seconds)) / self.summary.median

    @property
    def cpu_seconds_per_trip(self) -> float | None:
        """Of all processes together; None where it was not measured."""
        found = [run.cpu_seconds for run in self.shown if run.cpu_seconds is not None]
        return sum(found) / len(self.seconds) if found and len(found) == len(self.shown) else None

    @property
    def hand_over_seconds(self) -> float | None:
        """What a word through a pipe for each edge took beside these runs."""
        samples = [s for run in self.runs for s in run.hand_over_before_seconds + run.hand_over_after_seconds]
        return float(np.median(samples)) if samples else None

    @property
    def above_ceiling(self) -> float | None:
        """The share of its own runs' ceiling, where a row that copies took less time than that; else None."""
        own = ceiling_of(self.shown)
        return own / self.summary.median if self.payload_copied and own and self.summary.median < 0.99 * own else None

    @property
    def ceiling_seconds(self) -> float | None:
        return self.shared_ceiling_seconds or ceiling_of(self.runs)


def ceiling_of(runs: Iterable[Run]) -> float | None:
    """The median of the runs' passes, before and after the trips; None where there is none."""
    samples = [seconds for run in runs for seconds in run.ceiling_before_seconds + run.ceiling_after_seconds]
    return float(np.median(samples)) if samples else None


def results_of(records: Iterable[Record]) -> list[Result]:
    """The rows in the ladder's order, each with the runs of all its records; traced ones are rows of their own."""
    found: dict[bytes, list[Record]] = {}
    for record in chain.from_iterable(map(points, records)):
        if record.runs:
            found.setdefault(_identity(record), []).append(record)
    results = [Result(tuple(own)) for own in found.values()]
    return sorted(results, key=lambda result: (place(result.rung)[0], result.name))


def _identity(record: Record) -> bytes:
    layout = msgspec.structs.replace(record.row.layout, nodes={})  # where actors were found; asked for was the same
    row = msgspec.structs.replace(record.row, layout=layout)
    alternated = any(run.alternation for run in record.runs)
    apart = [row, record.edges, _traced(record), alternated, record.arguments.get("inject")]
    return msgspec.json.encode(apart, order="sorted")


def _traced(record: Record) -> bool:
    return bool(record.arguments.get("trace")) or any(run.spans for run in record.runs)
