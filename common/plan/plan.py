"""One run as it will be: what follows from the flags, the flow and this machine, resolved once."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from common.flow.flow import DRIVER, Flow, into_dataset, packed, with_trainer
from common.plan.faults import Fault
from common.plan.options import Options
from common.plan.turn import Turn
from common.record.rows import Row, readers_hold_views
from common.record.schema import Edge, Layout, Record, RowKey, edges_of


@dataclass(frozen=True)
class Place:
    """Which of an actor's processes one is: the replicas take messages in turn, the ranks of each all of them."""

    actor: str
    replica: int = 0
    replicas: int = 1
    rank: int = 0
    ranks: int = 1

    @property
    def answers(self) -> bool:
        """The last rank does."""
        return self.rank == self.ranks - 1

    def takes(self, number: int) -> bool:
        return (number - 1) % self.replicas == self.replica

    def last_due(self, number: int) -> int:
        """The last message up to this one that it takes; 0 before the first."""
        return max(0, number - (number - 1 - self.replica) % self.replicas)


@dataclass(frozen=True)
class Plan:
    """What supervisor, worker and participants all know.

    row: the catalogue's, of the transport alone.
    asked: the flow as its users draw it.
    gpus: that may be used, in all. store_bytes: of a private cluster's object store.
    folder: the run's own, for files that end with it; shared: the same in /dev/shm.
    here: where flags that name files count from.
    turn: where its trips alternate with those of other rows.
    checkout: of this project, whose code runs it (None: this one).
    """

    row: Row
    options: Options
    asked: Flow
    device: str = "cpu"
    gpus: int = 0
    store_bytes: int = 0
    folder: Path = Path()
    shared: Path = Path()
    here: Path = Path()
    turn: Turn | None = None
    checkout: Path | None = None

    @cached_property
    def flow(self) -> Flow:
        """The tasks that run."""
        if self.row.needs.trainer:
            return with_trainer(self.asked)
        return into_dataset(self.asked) if self.options.sink == "trainer" else self.asked

    @property
    def sink(self) -> str | None:
        """--sink trainer: the task that makes micro-batches of what the flow returns."""
        if self.options.sink == "driver":
            return None
        return self.flow.tasks[-1].name

    @cached_property
    def layout(self) -> Layout:
        """Where things live: what runtimes and transports ask."""
        return Layout(
            placement=self.options.placement or "pack",
            address=bool(self.options.address),
            trainer=self.row.needs.trainer,
            one_process=self.row.needs.one_process,
            gpus=self.gpus_per_actor(),
            replicas=self.options.counts("replicas"),
            ranks=self.options.counts("ranks"),
        )

    @property
    def packed(self) -> bool:
        return self.options.message == "packed"

    @cached_property
    def wire(self) -> Flow:
        """The messages that travel."""
        return packed(self.flow) if self.packed else self.flow

    @property
    def fault(self) -> Fault | None:
        return self.options.inject

    @property
    def participants(self) -> tuple[str, ...]:
        """The driver and every process of an actor."""
        return tuple(self.places)

    @cached_property
    def places(self) -> dict[str, Place]:
        """Each participant's; an actor of one process bears its own name, others are numbered."""
        found, replicas, ranks = {DRIVER: Place(DRIVER)}, self.options.counts("replicas"), self.options.counts("ranks")
        for actor in self.flow.actors:
            several, wide = replicas.get(actor, 1), ranks.get(actor, 1)
            for replica in range(several):
                for rank in range(wide):
                    name = actor + f".{replica}" * (several > 1) + f".{rank}" * (wide > 1)
                    found[name] = Place(actor, replica, several, rank, wide)
        return found

    @property
    def views(self) -> bool:
        """Whether the transport hands readers views of another's memory."""
        return self.row.views or self.options.zero_copy

    @property
    def promised_views(self) -> bool:
        """Whether that is what readers end with; what lies in host memory is copied to a GPU."""
        shared = self.device == "cpu" or self.row.needs.one_machine
        return shared and readers_hold_views(self.row, self.options.row_flags)

    @property
    def trips(self) -> int:
        """All of them: the first, the warm-up, the timed ones."""
        return 1 + self.options.warmup + self.options.iterations

    def gpus_per_actor(self) -> float:
        """The `num_gpus` of each: 1 where there are enough, otherwise an equal fraction that fits.

        Ray never splits an actor over GPUs, so with 2 GPUs and 3 roles each takes a half, not two thirds.
        """
        if self.gpus == 0:
            return 0
        share = math.ceil((len(self.participants) - 1) / self.gpus)
        return 1 if share == 1 else math.floor(10_000 / share) / 10_000  # Ray counts in ten-thousandths

    def gpu_of(self, participant: str) -> str:
        """Where a participant's tensors live, as a process that sees every GPU numbers them."""
        if self.device == "cpu":
            return "cpu"
        return (
            f"cuda:{self.flow.actors.index(self.places[participant].actor) % self.gpus if participant != DRIVER else 0}"
        )

    def record(self) -> Record:
        """The record of this row, without a run."""
        options, flow = self.options, self.asked
        flags, sizes = (
            {name: _without_folder(value) for name, value in of.items() if name not in options.at}
            for of in (options.row_flags, self.sizes)
        )
        kept = ("iterations", "duration", "timeout", "in_flight", "threads", "preset", "scale", "object_store_bytes")
        arguments = {name: getattr(options, name) for name in kept}
        arguments |= {"episode": options.trips_in_a_row, "trace": bool(options.trace)}
        arguments |= {"inject": str(options.inject)} if options.inject else {}
        return Record(
            row=RowKey(
                runtime=self.row.runtime, transport=self.row.transport, flow=self.flow_name, flags=flags,
                message="bare" if flow.bare else options.message or "fields", sizes=sizes, device=self.device,
                layout=self.layout,
            ),
            edges=self.edges,
            sweep=options.sweep.text if options.sweep else "",
            warmup=options.warmup,
            arguments=arguments,
        )  # fmt: skip

    @property
    def edges(self) -> list[Edge]:
        """As records have them."""
        return edges_of(self.asked)

    @property
    def flow_name(self) -> str:
        """As records call it."""
        return str(_without_folder(self.options.flow))

    @property
    def sizes(self) -> dict[str, int | str | bool]:
        from common.flow.catalogue import sizes_of

        given = {name: value for name, value in self.options.sizes.items() if value is not None}
        return sizes_of(self.options.flow, None if self.options.fields else self.options.message) | given


def _without_folder(value: Any) -> Any:
    """Of my_flow.py:my_flow only the name, since others have the file elsewhere."""
    return Path(value).name if isinstance(value, str) and ".py:" in value else value
