"""One JSON file a row: what it is of, where it ran, and its runs, each with every sample. No derived number is stored.

History of the schema:
    1   2026-11-20   the first
    2   2026-11-20   setup_seconds; trips_us and spans, when what was done, with --trace; new flags in arguments
    3   2026-11-21   a row has runs, each a process of its own; what it is of stands in `row`; costs by process,
                     environments by node; the time of whole episodes; wrong bytes by field
    4   2026-11-21   a row may be swept over a size: each run says at which point it is (sweep; at, edges); CPU time,
                     the hand-over alone, and what else the machine did
    5   2026-11-22   trips may alternate with those of other rows (alternation)
"""

from typing import Annotated, Any, Literal

import msgspec

from common.flow.flow import Flow

SCHEMA_VERSION = 5

Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Struct(msgspec.Struct, forbid_unknown_fields=True):
    """Every part of a record."""


class Edge(Struct):
    """A message of the flow that crosses from one actor to another."""

    source: str = msgspec.field(name="from")
    reader: str = msgspec.field(name="to")
    bytes: Count


def edges_of(flow: Flow) -> list[Edge]:
    return [Edge(source=edge.source, reader=edge.reader, bytes=edge.bytes) for edge in flow.edges]


class Layout(Struct):
    """Where things live. `nodes` are indices, the driver's is 0."""

    placement: str = "pack"  # or "spread"
    address: bool = False  # of a cluster that was there before
    trainer: bool = False  # an actor has the driver's ends
    one_process: bool = False  # all participants in one
    gpus: float = 0  # of each actor
    replicas: dict[str, int] = {}  # actor -> how many, where it is not one
    ranks: dict[str, int] = {}  # actor -> of each replica, where it is not one
    nodes: dict[str, int] = {}  # participant -> node, where it was found to run


class RowKey(Struct):
    """What a row is of: two records with the same are runs of one row."""

    runtime: str
    transport: str
    flow: str
    flags: dict[str, Any] = {}  # by the names of the options, those that make it another row
    message: str = "bare"  # "bare": one tensor; "fields": a dict; "packed": a dict in one buffer
    sizes: dict[str, int | str | bool] = {}  # of the flow
    device: str = "cpu"  # or "cuda"
    layout: Layout = msgspec.field(default_factory=Layout)


class Cost(Struct):
    """What one process took, once however many participants live in it."""

    peak_memory_bytes: Count | None = None  # its largest resident set; shared pages count in each process
    harness_seconds: float = 0.0  # inside the clock, yet the suite's own, after the first trip
    minor_faults: Count | None = None  # pages that were new to it after the first trip


class Run(Struct):
    """One process that measured the row."""

    started_at: str  # UTC, ISO 8601
    order: Count = 0  # its turn among the runs of its suite: drift can be seen
    alternation: str = ""  # shared by the runs, of other records, with which its trips alternated; "": it ran alone
    at: dict[str, int] = {}  # of a sweep: what of the row's sizes or flags this run had, in addition
    edges: list[Edge] = []  # of a sweep: the record's are those of its first point
    status: Literal["ok", "waived", "failed"] = "failed"
    reason: str | None = "the run was killed"  # why it is waived or failed, and what to do
    busy_cores: float = 0.0  # of work that others did just before
    throttled_seconds: float | None = None  # for which a container's CPU limit held it back; None: nothing says so
    ceiling_before_seconds: list[Seconds] = []  # one warm copy an edge by --threads threads, one sample a pass
    ceiling_after_seconds: list[Seconds] = []
    ceiling_all_cores_seconds: list[Seconds] = []  # the same by every core
    hand_over_before_seconds: list[Seconds] = []  # a word through a pipe for each edge, between as many processes
    hand_over_after_seconds: list[Seconds] = []
    setup_seconds: dict[str, float] = {}  # what -> once, before the first trip
    # Edge -> how its bytes travelled, as found at run time; a trainer's ends are its tasks "query" and "result".
    path: dict[str, str] = {}
    payload_copied: bool | None = None  # False: readers held views; None: never seen
    first_seconds: Seconds | None = None  # the very first trip
    seconds: list[Seconds] = []  # the latency of each timed trip, in order
    episode_seconds: list[Seconds] = []  # from an episode's first query to its last result: throughput
    cpu_seconds: float | None = None  # of all processes together, Ray's own too, within the timed episodes
    wrong_bytes: Count = 0  # over all trips, the untimed ones too
    wrong_bytes_by_field: dict[str, int] = {}  # "policy -> reward" or "policy -> reward, logprobs"
    operations: dict[str, int] = {}  # queue transports: of one timed episode, counted where they happen; all are alike
    message_bytes: dict[str, list[int]] = {}  # task -> as serialised, of each message of an episode
    stored_bytes: Count = 0  # taken in by the object store during the timed trips; channels bypass it
    spilled_bytes: Count = 0  # written to disk by the object store, from the first trip on
    processes: dict[str, Cost] = {}
    trips_us: list[tuple[float, float]] = []  # with --trace: start and end of each timed trip
    spans: list[tuple[str, int, str, str, int, float, float]] = []  # process, thread, stage, edge, trip, start, end


class Record(Struct, kw_only=True):
    """A row and its runs."""

    schema_version: int = SCHEMA_VERSION
    row: RowKey
    edges: list[Edge]  # of the flow as its users draw it
    sweep: str = ""  # as asked: each run is a point of it; `record.points` makes a record of each
    warmup: Count  # trips between the first and the timed ones
    arguments: dict[str, Any] = {}  # every other flag, by its name
    environments: dict[str, dict[str, Any]] = {}  # by the index of the node
    runs: list[Run] = []

    @property
    def bytes_per_trip(self) -> int:
        """Bytes that the readers of one trip receive."""
        return sum(edge.bytes for edge in self.edges)
