"""Define the flags that every script has: one field of Options per flag, with its group, default, help and bounds."""

# ruff: noqa: RUF009  flag() is dataclasses.field()

import dataclasses
import tomllib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, convert

from dataflow.flows.catalogue import DETACHED_PPO, FLOWS, FLOWS_OF_MODELS, PIPELINE, WEIGHTS, ZERO
from dataflow.plan.flag import flag, parse_assignments
from dataflow.studies.chatlearn.options import REF_QUEUE_FLAGS, ChatLearnOptions
from dataflow.studies.detached_ppo.flow import ITEMS
from dataflow.studies.pipeline.flow import SCHEDULES
from dataflow.studies.weights.flow import MODELS
from dataflow.units import parse_bytes, parse_seconds

RESULTS = Path(__file__).resolve().parents[2] / "results"
PRESETS_TEXT = Path(__file__).with_name("presets.toml").read_text(encoding="utf-8")
PRESETS = tomllib.loads(PRESETS_TEXT)
MIN_STORE_BYTES = 75 * 2**20  # Ray rejects less
MIN_TIMED_ITERATIONS, MAX_TIMED_ITERATIONS = 3, 10**6  # with --duration, whatever time an iteration takes
MAX_WARMUP, MIN_WARMUP_GROUPS = 60, 10  # untimed iterations; groups of --in-flight of them, which are compared


def parse_warmup(text: str) -> int | None:
    """Return the number of untimed iterations; None for steady."""
    return None if text == "steady" else convert(text, Annotated[int, Meta(ge=0, le=10**6)], strict=False)


_SIZES = "sizes of flows (--list-flows shows the defaults)"
_workload, _size = partial(flag, "workload"), partial(flag, _SIZES, None)
_transport, _measurement = partial(flag, "transport"), partial(flag, "measurement")
_actors, _output = partial(flag, "actors"), partial(flag, "output")
_FEW = Meta(ge=1, le=16)
_COUNT, _BYTES, _TIME = Meta(ge=1, le=10**6), Meta(ge=1, le=10**15), Meta(gt=0)
_LENGTHS = "a number, lognormal:200:0.6:512 (median, sigma, longest) or uniform:10:512"


@dataclass(frozen=True, kw_only=True)
class Options(ChatLearnOptions):
    # fmt: off
    flow: str = _workload("online-dpo", f"actors and the messages between them: {', '.join(FLOWS)}, text such as "
        "'rollout-1, rollout-2 -> trainer: tokens int64 8MB, logprobs float32 4MB', or a function that returns a Flow, "
        "for example my_flow.py:make", str)
    preset: str | None = _workload(None, "flow and sizes of a known system", str, choices=tuple(PRESETS))
    scale: float = _workload(1.0, "multiply the batch size of --preset, or the first dimension of all "
        "tensors of --model, by this share", float, Meta(gt=0, le=1))
    message: str | None = _workload(None, "send messages of several fields as a dict of tensors (fields, the default), "
        "copied into one buffer (packed), with each list of tensors as one tensor of values and one of offsets "
        "(jagged), or as a TensorDict, as in verl (tensordict); of weights, only the values that have changed, with "
        "their indices (indices). Flow online-dpo has flat messages, and ChatLearn's fields with this flag", str,
        choices=("fields", "packed", "jagged", "tensordict", "indices"))
    batch_size: int | None = _size("samples or prompts per message", int, _COUNT)
    prompt_seq_len: int | None = _size("tokens per prompt of the demo's flow and of detached-ppo", int, _COUNT)
    max_new_tokens: int | None = _size("tokens per response of the demo's flow", int, Meta(ge=0, le=10**6))
    num_samples: int | None = _size("responses per prompt of the demo's flow", int, _COUNT)
    prompt_len: str | None = _size(f"tokens per prompt of ChatLearn's flows: {_LENGTHS}", str)
    response_len: str | None = _size(f"tokens per response of ChatLearn's flows: {_LENGTHS}", str)
    seq_length: int | None = _size("tokens to which --padding vllm pads each sample; tokens per sample of detached-ppo",
        int, _COUNT)
    padding: str | None = _size("pad to the longest sample (megatron) or to --seq-length (vllm)", str,
        choices=("megatron", "vllm"))
    as_sent: bool | None = _size("send views of larger tensors, as ChatLearn does; pickle writes all of a view's "
        "storage. Without this flag, each tensor has its own storage")
    payload_bytes: int | None = _size("bytes per message, such as 12MB or 64KiB", parse_bytes, _BYTES)
    actors: int | None = _size("actors of the flows chain and scatter-gather", int, Meta(ge=1, le=64))
    model: str | None = _size(f"tensors of --flow weights: {', '.join(MODELS)}, or the size of one flat tensor, such "
        "as 1GiB", str)
    receivers: int | None = _size("rollouts that receive all weights", int, Meta(ge=1, le=64))
    senders: int | None = _size("trainers, each of which sends its part of the tensors", int, Meta(ge=1, le=64))
    bucket_size: int | None = _size("cut the weights into messages of at most this size, or of one larger tensor, such "
        "as 100MiB; 1B sends each tensor by itself. Default: one message per sender", parse_bytes, _BYTES)
    sharded: bool | None = _size("each trainer sends its part only to the rollout of the same number")
    makers: int | None = _size("actors of --flow detached-ppo that make experience", int, _FEW)
    items: str | None = _size("form of the samples of an experience: views of the batch, as ColossalAI sends them, "
        "clones, or the whole batch", str, choices=ITEMS)
    lora_rank: int | None = _size("send adapters of this rank for the matrices of the layers instead of all weights",
        int, Meta(ge=1, le=4096))
    changed: float | None = _size("share of the weights that change from one update to the next", float,
        Meta(gt=0, le=1))
    stages: int | None = _size("stages of --flow pipeline, each an actor", int, Meta(ge=1, le=64))
    micro_batches: int | None = _size("micro-batches per step of --flow pipeline", int, Meta(ge=1, le=1024))
    schedule: str | None = _size("order of the tasks of --flow pipeline: all forward, then all backward (afab), one "
        "forward and one backward (1f1b), with two chunks per stage (interleaved), or with gradients of the weights "
        "that fill the gaps (zb-h1, and zb-h2 with more memory)", str, choices=tuple(SCHEDULES))
    task_seconds: str | None = _size("time of the forward pass of a micro-batch in a stage, and of each half of the "
        "backward pass, such as 20ms; several times, separated by commas, are those of successive micro-batches", str,
        metavar="TIME")
    sequence_length: int | None = _size("tokens per sample of --flow pipeline", int, _COUNT)
    hidden_size: int | None = _size("numbers per token that stages of --flow pipeline send", int, _COUNT)
    stage: int | None = _size("stage of --flow zero: 1, 2 or 3", int, Meta(ge=1, le=3))
    payload: int | None = _size("scale all flat messages to this number of bytes per iteration, such as 64MiB",
        parse_bytes, _BYTES)
    fields: int | None = _size("cut each tensor of a message into this many tensors", int, Meta(ge=1, le=10_000))
    transport: str | None = _transport(None, "how messages are sent (--help lists the transports of a script)", str)
    device: str = _transport("auto", "device of the tensors; auto: GPUs if there are any and the transport uses them",
        str, choices=("auto", "cpu", "cuda"))
    zero_copy: bool = _transport(False, "object store: readers map tensors and do not copy them", configuration=True)
    copy_in: bool = _transport(False, "mapped transports and torch multiprocessing: producers write into memory of "
        "their own, and copy each message into shared memory inside the clock", configuration=True)
    copy_out: bool = _transport(False, "readers copy the view that they get into warm memory", configuration=True)
    retain_memory: bool = _transport(False, "processes keep memory that they have freed, so there are fewer page "
        "faults (four MALLOC_ variables of glibc: docs/page-faults.md)", configuration=True)
    preallocate_store: bool = _transport(False, "a private cluster takes all memory of the object store at its start, "
        "so there are no page faults in new store memory. The store is then twice as large as the messages need, "
        "unless --object-store-bytes is given", configuration=True)
    huge_pages: bool = _transport(False, "torch uses pages of 2 MiB, so there are fewer page faults "
        "(THP_MEM_ALLOC_ENABLE=1)", configuration=True)
    reuse_buffers: bool = _transport(False, "graph shm: readers receive into the same memory again, without "
        "page faults", configuration=True)
    overlap_communication: bool = _transport(False, "graph nccl: Ray receives a message of a GPU while the task before "
        "its reader computes (_overlap_gpu_communication)", configuration=True)
    address: str | None = _transport(None, "use the Ray cluster at ip:port (or auto) instead of a private one", str)
    placement: str | None = _transport(None, "start all actors on the driver's node (pack), or one per node "
        "round-robin (spread; a private cluster then has two nodes). Default: pack; with --address: spread", str,
        choices=("pack", "spread"))
    place: str | None = _transport(None, "node of each actor, as a number: policy=0,reference=1,reward=1. The driver's "
        "node is 0, and so is that of other actors; a private cluster has as many nodes as are named", str,
        metavar="ACTOR=NODE,...")
    link: str | None = _transport(None, "name of the network between the nodes, which records and tables show, such as "
        "'10 Gbit/s'", str, metavar="NAME")
    object_store_bytes: int | None = _transport(None, "object store of a private Ray cluster, such as 4GiB. Default: "
        "30 %% of the free memory, as in Ray", parse_bytes, Meta(ge=MIN_STORE_BYTES, le=10**15))
    runs: int = _measurement(1, "number of runs; each run starts new processes", int, Meta(ge=1, le=1000))
    iterations: int = _measurement(100, "timed iterations", int, Meta(ge=1, le=10**7))
    duration: float | None = _measurement(None, "measure for this time instead of --iterations, such as 10s; "
        "verification is included", parse_seconds, _TIME, metavar="TIME")
    warmup: int | None = _measurement(None, "untimed iterations after the first one: a number, or steady, which goes "
        "on until neither the times nor the page faults change (10 to 60 iterations, or 30 s; at least 10 times "
        "--in-flight). "
        "Default: steady; 3 with --sweep and without --iterations", parse_warmup,
        metavar="N|steady")
    check_every: int | None = _measurement(None, "iterations between two full verifications. All bytes of the last "
        "--in-flight iterations and the sequence numbers of the others are verified. Default: the value of "
        "--in-flight, so that all bytes of every iteration are verified", int, _COUNT, configuration=True)
    allow_disturbed: bool = _measurement(False, "count disturbed runs too: those during which other programs used "
        "more than 0.3 cores, or the hypervisor took more than 0.1. Without this flag, benchmark.py measures a "
        "disturbed run again, at most twice, and its times are in the record but not in tables. Scripts count them")
    in_flight: int = _measurement(1, "largest number of iterations that run at the same time",
        int, Meta(ge=1, le=64), configuration=True)
    timeout: float = _measurement(120.0, "end the run with an error if its start or an iteration takes longer (in s)",
        parse_seconds, _TIME, metavar="TIME")
    resources: bool = _measurement(False, "record the memory, file descriptors and shared memory of all processes 21 "
        "times during the iterations, outside the clock")
    sweep: str | None = _measurement(None, "measure at several values of payload, batch-size, fields, in-flight or "
        "actors, with one record each, and for 1 s each without --duration or --iterations: payload=1KiB:1GiB:4x, "
        "in-flight=1:4:+1 or fields=1,8,64", str, metavar="NAME=POINTS")
    model_seconds: str | None = _actors(None, "time that actors sleep per message instead of computing, trainer (of "
        "--sink trainer) included: policy=200ms,trainer=50ms", str, metavar="ACTOR=TIME,...", configuration=True)
    sink: str = _actors("driver", "reader of the results: the driver, or a trainer that cuts them into micro-batches",
        str, choices=("driver", "trainer"), configuration=True)
    trainers: int | None = _actors(None, "models that --sink trainer of ref-queue trains (default: 2 for the flow ppo, "
        "otherwise 1), or trainers of --flow detached-ppo (default: 1)", int, _FEW, configuration=True)
    ranks: str | None = _actors(None, "ref-queue: ranks per replica of a model (tensor times pipeline parallel): "
        "policy=4. All ranks receive each message, and the last one sends the result. With --flow zero: the number of "
        "ranks (default: 4)", str, metavar="MODEL=N,...", configuration=True)
    train_micro_batch: int = _actors(8, "samples per micro-batch of --sink trainer", int, _COUNT, configuration=True)
    threads: int = _actors(1, "torch threads per actor, for copies", int, _COUNT, configuration=True)
    trace: Path | None = _output(None, "write a Chrome trace to this new file; tracing itself costs time", Path,
        metavar="FILE")
    output: Path | None = _output(None, "write the record to this new file, or with --sweep the records to this folder "
        "(default: a new name in results/)", Path, metavar="PATH")
    inject: str | None = _output(None, "", str, configuration=True)  # for tests: endpoints/fault_injection.py
    # fmt: on

    def __post_init__(self) -> None:
        if self.duration:
            object.__setattr__(self, "iterations", MAX_TIMED_ITERATIONS)
        if self.as_sent and self.message is None:
            object.__setattr__(self, "message", "fields")
        is_spread = self.address or self.place
        object.__setattr__(self, "placement", self.placement or ("spread" if is_spread else "pack"))

    @property
    def sizes(self) -> dict[str, Any]:
        sizes = {field.name: getattr(self, field.name) for field in FLAGS if field.metadata["group"] == _SIZES}
        if self.flow in FLOWS_OF_MODELS:  # --scale is also for presets
            sizes["scale"] = self.scale if self.scale < 1 else None
        if self.flow == DETACHED_PPO:  # --trainers is also for --sink trainer
            sizes["trainers"] = self.trainers
        if self.flow == ZERO:  # --ranks is also for models of ChatLearn
            if self.ranks and not self.ranks.isdigit():
                raise ValueError(f"--ranks {self.ranks}: --flow zero has one model: give a number")
            sizes["ranks"] = int(self.ranks) if self.ranks else None
        return sizes

    @property
    def group_size(self) -> int:
        """Return the number of iterations between two full verifications."""
        return self.episode or self.check_every or self.in_flight

    @property
    def trainer_count(self) -> int:
        return self.trainers or (2 if self.flow == "ppo" else 1)

    @property
    def model_times(self) -> dict[str, float]:
        return parse_assignments("--model-seconds", self.model_seconds, parse_seconds)

    @property
    def nodes_of_actors(self) -> dict[str, int]:
        return parse_assignments("--place", self.place, int)

    @property
    def node_count(self) -> int:
        """Return the nodes of a private cluster."""
        return 1 + max(self.nodes_of_actors.values(), default=1 if self.placement == "spread" else 0)

    @property
    def table(self) -> str:
        """Return the table of a record that no suite asked for."""
        if not self.sweep:
            tables = {WEIGHTS: "weights", DETACHED_PPO: "detached-ppo", PIPELINE: "pipeline", ZERO: "zero"}
            return "stages" if self.trace else tables.get(self.flow, "configurations")
        name = self.sweep.partition("=")[0]
        return name if name == "in-flight" else f"sweep-{name}"

    def process_counts(self, actor: str) -> tuple[int, int]:
        """Return the number of replicas of an actor, and of ranks per replica."""
        if self.flow == ZERO:
            return 1, 1
        replicas, ranks = (parse_assignments(f"--{name}", getattr(self, name), int) for name in ("replicas", "ranks"))
        return replicas.get(actor, 1), ranks.get(actor, 1)

    @property
    def configuration_flags(self) -> dict[str, Any]:
        """Return the given flags that make another configuration."""
        sizes = self.sizes
        flags = [field for field in FLAGS if field.metadata["configuration"] and field.name not in sizes]
        return {field.name: value for field in flags if (value := getattr(self, field.name)) != field.default}

    @property
    def arguments(self) -> dict[str, Any]:
        """Return every flag as a value for JSON, without anything private: no folder and no address."""
        values = {field.name: getattr(self, field.name) for field in FLAGS}
        for name, value in values.items():
            if isinstance(value, Path) or ".py:" in str(value):
                values[name] = Path(value).name  # of my_flow.py:make too, because others have the file elsewhere
        return values | {"iterations": None if self.duration else self.iterations, "address": bool(self.address)}


# Those of one transport come last.
FLAGS = sorted(dataclasses.fields(Options), key=lambda field: field.metadata["group"] == REF_QUEUE_FLAGS)
