"""The flags that every script has: each is one field, with its bounds, its help, and where it may be used."""

import argparse
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UsageError
from common.flow.catalogue import FLOWS
from common.plan import kinds, refusals
from common.plan.faults import Fault
from common.plan.kinds import at_least, bytes_at_least, seconds
from common.plan.presets import PRESETS
from common.plan.sweep import POINT_SECONDS, SWEPT, Sweep
from common.record.rows import Row
from common.units import parse_seconds

RESULTS = Path(__file__).resolve().parents[2] / "results"
MINIMUM_STORE_BYTES = 75 * 2**20  # Ray refuses less
LEAST_TRIPS, MOST_TRIPS = 3, 10**6  # of --duration, however long or short they are


def flag(
    default: Any, help: str, kind: Any = None, *, row: bool = False, refuse: Callable[..., str | None] | None = None,
    **argparse_options: Any,
) -> Any:  # fmt: skip
    """A field of Options that is a flag.

    Args:
        kind: parses its text; None: a switch, or one of `choices`.
        row: given, it makes another row of a transport.
        refuse: (row, options) -> why it cannot be used there, in one line; asked only where it is given.
    """
    metadata = {"help": help, "kind": kind, "row": row, "refuse": refuse, "argparse": argparse_options}
    return dataclasses.field(default=default, metadata=metadata)


def size(help: str, kind: Callable[[str], Any] | None, **argparse_options: Any) -> Any:
    """A field that is a size of some flows; each has its own default."""
    return flag(None, help, kind, size=True, **argparse_options)


def training(name: str, default: Any, help: str, kind: Callable[[str], Any] | None, **argparse_options: Any) -> Any:
    """A field that says something of the trainers behind ChatLearn's queues."""
    refuse = refusals.only_stream_dataset(name)
    return flag(default, help, kind, row=True, refuse=refuse, **argparse_options)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Everything that was asked."""

    # fmt: off
    flow: str = flag("online-dpo", f"who sends what to whom: {', '.join(FLOWS)}, or one of your own, such as "
        "'rollout-1, rollout-2 -> trainer: tokens int64 8MB, logprobs float32 4MB' or my_flow.py:my_flow (default: "
        "%(default)s)", kinds.flow)
    preset: str | None = flag(None, "a payload that users know, as flow and sizes (--list-presets)",
        choices=list(PRESETS))
    scale: float = flag(1.0, "so much of a preset's rows: 0.25, say", kinds.fraction)
    transport: str | None = flag(None, "how the bytes travel", str)
    message: str | None = flag(None, "how messages of several fields travel: each as it is, or in one flat buffer; "
        "online-dpo has one flat tensor without it (default: fields)", choices=["fields", "packed"])
    zero_copy: bool = flag(False, "object store: readers map tensors instead of copying them", row=True,
        refuse=refusals.only_tensors_of_the_store)
    copy_out: bool = flag(False, "mapped transports: readers copy what they see into their own memory", row=True,
        refuse=refusals.only_views)
    huge_pages: bool = flag(False, "torch takes its memory in pages of 2 MiB (THP_MEM_ALLOC_ENABLE=1)", row=True,
        refuse=refusals.switched_off)
    reuse_buffers: bool = flag(False, "graph, shm: readers copy into memory that they used before", row=True,
        refuse=refusals.only_shm)
    device: str = flag("auto", "where the tensors live (default: auto)", choices=["auto", "cpu", "cuda"])
    batch_size: int | None = size("prompts a message", at_least(1))
    prompt_seq_len: int | None = size("tokens a prompt", at_least(1))
    max_new_tokens: int | None = size("tokens a response", at_least(0))
    num_samples: int | None = size("responses a prompt", at_least(1))
    rows: int | None = size("samples a message", SWEPT["rows"], also="--message-rows")
    prompt_len: str | None = size("tokens of a prompt: a number, or drawn, as lognormal:200:0.6:512 (median, sigma, "
        "longest) or uniform:10:512", str)
    response_len: str | None = size("tokens of a response, likewise", str)
    seq_length: int | None = size("tokens that vllm pads to", at_least(1))
    padding: str | None = size("to the longest of the batch, or to --seq-length", None, choices=["megatron", "vllm"])
    as_shipped: bool | None = size("messages keep the views that ChatLearn ships, each with all of its storage", None,
        action="store_const", const=True)
    payload_bytes: int | None = size("bytes of each message, such as 12MB or 64KiB", bytes_at_least(1))
    roles: int | None = size("how many actors", SWEPT["roles"])
    payload: int | None = size("bytes of a trip, such as 64MiB: the flow's flat messages scaled in proportion",
        SWEPT["payload"])
    fields: int | None = size("tensors that each flat message is cut into: the same bytes as a dict of them",
        SWEPT["fields"])
    sweep: Sweep | None = flag(None, "a run at each of several sizes, in one record: payload, rows, fields, in-flight "
        "or roles, as payload=1KiB:1GiB:4x, in-flight=1:4:+1 or fields=1,8,64, with --duration 1s each", Sweep.parse,
        metavar="NAME=POINTS")
    runs: int = flag(1, "processes that measure it, one after the other; rows in turns: benchmark.py --runs (default: "
        "%(default)s)", at_least(1, 1000))
    iterations: int = flag(100, "timed trips (default: %(default)s)", at_least(1, 10**7))
    duration: float | None = flag(None, "timed trips for so long, the checks between them included, instead of "
        "--iterations: 10s, say", seconds, metavar="SECONDS")
    episode: int = flag(0, "trips in a row, without a check of every byte between them; of the last ones, as many as "
        "may be under way, all bytes are checked, of the others the stamps; store ref-queue makes new queues in each "
        "(default: --in-flight, and the same queues)", at_least(1), row=True, refuse=refusals.no_such_episode)
    keep_queues: bool = flag(False, "store ref-queue: make the queues once, and not in every --episode", row=True,
        refuse=refusals.only_ref_queue("keep_queues"))
    poll_queues: bool = flag(False, "store ref-queue: ask a queue for its size before each get, as ChatLearn v1.1 does",
        row=True, refuse=refusals.only_ref_queue("poll_queues"))
    colocated: bool = flag(False, "store ref-queue: a model waits for all messages of the one before, as where they "
        "share GPUs", row=True, refuse=refusals.only_ref_queue("colocated"))
    replicas: str | None = flag(None, "store ref-queue: actors of a model that take whole messages in turn, as "
        "policy=2,reference=3", kinds.counts, row=True, metavar="MODEL=N,...",
        refuse=refusals.only_ref_queue("replicas"))
    ranks: str | None = flag(None, "store ref-queue: ranks of each replica (tp times pp); all receive, the last one "
        "answers", kinds.counts, row=True, metavar="MODEL=N,...", refuse=refusals.only_ref_queue("ranks"))
    generation_batch: str | None = flag(None, "store ref-queue: rows that a model takes at a time; it cuts a message "
        "and puts its answer together again", kinds.counts, row=True, metavar="MODEL=N,...",
        refuse=refusals.only_ref_queue("generation_batch"))
    model_seconds: str | None = flag(None, "models take so long for each message, asleep, as if on GPUs of their own, "
        "and the trainer (of --sink trainer) for each step, where it is the reading actor for each message: "
        "policy=200ms,trainer=50ms (default: no time)", kinds.times,
        row=True, metavar="MODEL=TIME,...")
    in_flight: int = flag(1, "trips under way at a time: handed over and not yet collected (default: %(default)s)",
        SWEPT["in_flight"], row=True, refuse=refusals.deeper_than_it_holds)
    sink: str = flag("driver", "who takes the results: the driver, or a trainer that makes micro-batches of them; "
        "store ref-queue: a StreamDataset, and trainers behind it (default: %(default)s)",
        choices=["driver", "trainer"], row=True, refuse=refusals.only_whole_episodes)
    train_micro_batch: int = flag(8, "samples of a trainer's micro-batch (default: %(default)s)", at_least(1), row=True,
        refuse=refusals.only_trainers)
    train_global_batch: int = training("train_global_batch", 128, "samples of a training step (default: %(default)s)",
        at_least(1))
    data_parallel: int = training("data_parallel", 1, "ranks of a trainer that share its samples", at_least(1, 16))
    train_ranks: int = training("train_ranks", 1, "ranks of each of those, which all read the same", at_least(1, 16))
    trainers: int = training("trainers", 0, "models that are trained (default: two for ppo, policy and value, else "
        "one)", at_least(1, 4))
    epochs: int = training("epochs", 1, "over the samples of an episode, later ones shuffled", at_least(1, 100))
    relay_episodes: int = training("relay_episodes", 1, "train on the samples of this many episodes, the last one "
        "among them", at_least(1, 16))
    relay_sample: str | None = training("relay_sample", None, "which of them, and in which order: a function that is "
        "given a list of samples for each episode and returns one list, as my_sample.py:latest (default: all)",
        kinds.function)
    loader: str = training("loader", "fixed", "StreamDataset takes messages as its next micro-batch needs them (with "
        "--relay-episodes or --relay-sample all first) and knows how many come, or (dynamic) asks the queue whether "
        "there is another", None, choices=["fixed", "dynamic"])
    warmup: int = flag(3, "untimed trips after the first one (default: %(default)s)", at_least(0, 10**6))
    timeout: float = flag(120.0, "seconds until a trip is given up (default: %(default)s)", seconds, metavar="SECONDS")
    threads: int = flag(1, "torch threads a role (default: %(default)s)", at_least(1), row=True,
        refuse=refusals.more_than_cores)
    address: str | None = flag(None, "an existing Ray cluster, as ip:port or auto (default: a private one on this "
        "machine)", str, refuse=refusals.only_several_machines)
    placement: str | None = flag(None, "roles on the driver's node, or turn by turn on two (a private cluster gets a "
        "second raylet on this machine) or more (default: pack, with --address spread)", choices=["pack", "spread"],
        refuse=lambda row, options: refusals.only_ray(row, options) if options.placement == "spread" else None)
    object_store_bytes: int | None = flag(None, "size of a private cluster's store, such as 4GiB (default: Ray's, "
        "30%% of free memory)", bytes_at_least(MINIMUM_STORE_BYTES), refuse=refusals.only_ray)
    trace: Path | None = flag(None, "write where the time goes, as a Chrome trace (costs time itself); with several "
        "trips in flight, of whole episodes", Path,
        metavar="FILE", refuse=refusals.one_clock)
    output: Path | None = flag(None, "the record (default: a fresh file in results/)", Path, metavar="FILE")
    inject: Fault | None = flag(None, argparse.SUPPRESS, Fault.parse)
    # fmt: on

    def __post_init__(self) -> None:
        """The defaults that follow from other flags; of a sweep, its first point."""
        if self.sweep:
            self._begin(self.sweep)
        if self.duration and self.iterations not in (self.default("iterations"), MOST_TRIPS):
            raise UsageError("--duration says when to stop, so does --iterations: give one of them")
        object.__setattr__(self, "iterations", MOST_TRIPS if self.duration else self.iterations)
        if self.trace and self.runs > 1:
            raise UsageError("--trace is of one run, and --runs asks for several: leave one of them out")
        if self.as_shipped and self.message == "packed":
            raise UsageError("--as-shipped: packing copies what a view shows and nothing more: leave it out")
        if self.as_shipped and self.message is None:
            object.__setattr__(self, "message", "fields")
        object.__setattr__(self, "placement", self.placement or ("spread" if self.address else "pack"))

    def _begin(self, sweep: Sweep) -> None:
        name, value = sweep.name, getattr(self, sweep.name)
        if self.trace:
            raise UsageError("--trace is of one run, and --sweep has several: leave one of them out")
        if value not in (self.default(name), *sweep.values):
            raise UsageError(f"--sweep says --{name.replace('_', '-')} already: leave one of them out")
        if value not in sweep.values:
            object.__setattr__(self, name, sweep.values[0])
        if self.duration is None and self.iterations == self.default("iterations"):
            object.__setattr__(self, "duration", POINT_SECONDS)

    @property
    def points(self) -> list["Options"]:
        """Of a sweep: what each of its runs is asked."""
        if not self.sweep:
            return [self]
        values: list[dict[str, Any]] = [{self.sweep.name: value} for value in self.sweep.values]
        return [dataclasses.replace(self, **value) for value in values]

    @property
    def at(self) -> dict[str, int]:
        """Of a sweep: at which point this is."""
        return {self.sweep.name: getattr(self, self.sweep.name)} if self.sweep else {}

    def given(self, field: "dataclasses.Field[Any]") -> bool:
        return getattr(self, field.name) != field.default

    @staticmethod
    def default(name: str) -> Any:
        return next(field.default for field in FIELDS if field.name == name)

    @property
    def sizes(self) -> dict[str, int | None]:
        return {name: getattr(self, name) for name in SIZES}

    @property
    def trips_in_a_row(self) -> int:
        """Between two checks of every byte."""
        return self.episode or self.in_flight

    def counts(self, name: str) -> dict[str, int]:
        """--replicas, --ranks or --generation-batch: of the models that it names."""
        parts = [part.partition("=") for part in (getattr(self, name) or "").split(",") if part]
        return {model: int(number) for model, _, number in parts}

    @property
    def trainer_count(self) -> int:
        """Models that are trained behind a StreamDataset: in PPO policy and value."""
        return self.trainers or (2 if self.flow == "ppo" else 1)

    @property
    def model_times(self) -> dict[str, float]:
        """--model-seconds: of the models that it names."""
        parts = [part.partition("=") for part in (self.model_seconds or "").split(",") if part]
        return {model: parse_seconds(time) for model, _, time in parts}

    @property
    def new_queues(self) -> bool:
        """Whether an episode begins with new queues, as ChatLearn's do."""
        return bool(self.episode) and not self.keep_queues

    @property
    def slots(self) -> int:
        """Payloads of each sender: those under way, the one being made, and the one that a reader still holds.

        Never fewer than three, since transports that alternate between two buffers would show a stale one as fresh.
        """
        return self.in_flight + 2

    @property
    def row_flags(self) -> dict[str, Any]:
        """Those that make another row of a transport, by their names."""
        return {
            field.name: getattr(self, field.name) for field in FIELDS if field.metadata["row"] and self.given(field)
        }

    def refuse(self, row: Row) -> None:
        """UsageError for the first flag that cannot be used with this row."""
        for field in FIELDS:
            refuse = field.metadata["refuse"]
            if refuse and self.given(field) and (reason := refuse(row, self)):
                raise UsageError(reason)


FIELDS = dataclasses.fields(Options)
SIZES = tuple(field.name for field in FIELDS if "size" in field.metadata["argparse"])
