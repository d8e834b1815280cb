"""The catalogue: every row that can be measured, as data. Scripts, --help, suites, chart, tables and tests read it.

To add a transport: its Row here, in the place where it stands in the ladder, and its function `by_<transport>` in the
script of its runtime. What a step is worth is measured, not written here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# How rows call the runtime of a script.
RUNTIMES = {
    "store": "simulate_chat_learn_data_flow.py",
    "graph": "ray_cg_simulate_chat_learn_data_flow.py",
    "rdt": "ray_rdt_simulate_chat_learn_data_flow.py",
    "torch": "torch_simulate_chat_learn_data_flow.py",
}
# Without --transport; None: the fastest that this machine has GPUs for.
DEFAULTS: dict[str, str | None] = {"store": "ref-queue", "graph": None, "rdt": "gloo", "torch": "gloo"}
BASELINE = "store driver-queue"
CEILING = "torch memcpy"  # which is no transport
# Ray keeps smaller results in its messages, not in shared memory (max_direct_call_object_size).
INLINED_BYTES = 100 * 1024
# Ray has a larger buffer copied by six threads, begun anew each time (serialization.pxi: kMemcopyDefaultThreshold and
# MEMCOPY_THREADS).
THREADED_BYTES = 2**20


@dataclass(frozen=True)
class Needs:
    """What a row cannot do without.

    gpus: this many, for all actors together; gpu_each: one for each actor.
    modules: importable; what is missing waives the row.
    store: what lies in the object store: "messages", each once more for every reader that gets it by value, or a
        graph's "channels".
    segments: payloads lie in /dev/shm, one pool a sender.
    one_machine: all participants share memory. host_only: it moves host memory, on a machine with GPUs too.
    trainer: the driver can neither send nor read, so an actor stands in for it.
    one_process: all participants share one.
    single_buffers: a channel holds one message, so that no more trips can be under way than a path has places.
    """

    gpus: int = 0
    gpu_each: bool = False
    modules: tuple[str, ...] = ()
    store: str = ""
    segments: bool = False
    one_machine: bool = False
    host_only: bool = False
    trainer: bool = False
    one_process: bool = False
    single_buffers: bool = False


@dataclass(frozen=True)
class Advice:
    """When to take a row, what it needs, copies that an edge costs, what breaks it."""

    when: str
    needs: str
    copies: str
    breaks: str


@dataclass(frozen=True)
class Row:
    """One row.

    says: one line, for --help; of rows without flags.
    flags: with which it is a row of its own, by the names of the options.
    views: readers end with views of another's memory, not with bytes of their own.
    buffers: Ray writes each tensor as a buffer of its own, not within a pickle; so it does with --zero-copy.
    above, because: the row that it is compared with, and what it does that that one does not.
    depth: trips that can be under way; None: as many as memory holds.
    suites: in which of benchmark.py's it is, with how many timed trips.
    """

    runtime: str
    transport: str
    says: str = ""
    flags: Mapping[str, Any] = field(default_factory=dict)
    views: bool = False
    buffers: bool = False
    above: str = ""
    because: str = ""
    depth: int | None = None
    needs: Needs = Needs()
    take: Advice | None = None
    suites: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return row_name(self.runtime, self.transport, self.flags)

    @property
    def is_chatlearns(self) -> bool:
        """Whether it is ChatLearn's own way, with its episodes, replicas and trainers."""
        return (self.runtime, self.transport) == ("store", "ref-queue")


def row_name(runtime: str, transport: str, flags: Mapping[str, Any]) -> str:
    """Runtime, transport, and the flags that make it another row."""
    words = [f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in flags.items()]
    return " ".join([runtime, transport, *words])


_STORE, _CHANNELS = Needs(store="messages"), Needs(store="channels")
_RING = Needs(segments=True, one_machine=True)
_NIXL = ("nixl", "nixl_cu12")
_BREAKS_RING = "a reader that keeps a view holds up the producer three messages later"
_HUGE, _HUGE_WHY = {"huge_pages": True}, "fresh memory in pages of 2 MiB: fewer page faults"
_COPY, _ZERO = {"copy_out": True}, {"zero_copy": True}
_BOTH = {"copy_out": True, "threads": 2}
# As many as the article's microbenchmarks have between two checks, which leave the caches cold for the first ten.
_BACK_TO_BACK = {"episode": 100}

ROWS = (
    Row("store", "payload-queue", "what people write by mistake: the payload itself goes through the queue actor",
        needs=_STORE, suites={"benchmark": 10}),
    Row("store", "driver-queue", "the demo's own baseline: the driver materialises and re-sends every payload",
        above="store payload-queue", because="no queue actor that holds the payload; the driver does",
        depth=1, needs=_STORE, suites={"benchmark": 100, "quick": 3, "stages": 10},
        take=Advice("never: it is the demo's baseline", "nothing", "two through the driver, pickled",
                    "a driver short of memory")),
    Row("store", "ref-queue", "what ChatLearn does: queue actors carry references",
        above="store driver-queue", because="the driver passes references on, not payloads",
        needs=_STORE, suites={"benchmark": 20, "quick": 3, "stages": 10},
        take=Advice("many producers and consumers, any nodes", "a queue actor an edge",
                    "pickled in, pickled out, into fresh pages",
                    "a store that fills up spills to disk without an error")),
    Row("store", "refs", "references alone, no queue", above="store ref-queue",
        because="no queue actors between the roles", needs=_STORE,
        suites={"benchmark": 20, "stages": 10, "hops": 1000}),
    Row("store", "bytes", "the same with plain Python bytes, which Ray does not pickle", above="store refs",
        because="plain bytes: no pickle", needs=_STORE, suites={"benchmark": 20, "hops": 1000}),
    Row("rdt", "nixl", "one-sided reads by NIXL over UCX", above="store refs",
        because="tensors stay with their producer; readers fetch them by NIXL", needs=Needs(modules=_NIXL),
        suites={"benchmark": 20, "stages": 10},
        take=Advice("one-sided reads, RDMA between nodes", "nixl, memory registered once", "one, into fresh pages",
                    "the producer must not change the tensor; alpha")),
    Row("rdt", "nixl", flags=_HUGE, above="rdt nixl", because=_HUGE_WHY, suites={"benchmark": 20}),
    Row("rdt", "gloo", "two-sided, torch.distributed between CPU actors; an actor stands in for the driver",
        above="store refs", because="tensors stay with their producer; sent by gloo",
        needs=Needs(host_only=True, trainer=True), suites={"benchmark": 20, "quick": 3, "stages": 10, "hops": 1000},
        take=Advice("CPU tensors between actors, any nodes", "a group of all actors; no driver in it",
                    "one, through a socket", "a dead actor takes its peers along; the producer must not change the "
                    "tensor")),
    Row("rdt", "gloo", flags=_HUGE, above="rdt gloo", because=_HUGE_WHY, suites={"benchmark": 20}),
    Row("torch", "gloo", "torch.distributed send and recv over loopback", above="rdt gloo",
        because="the same gloo without Ray, received into the same memory every time", needs=Needs(host_only=True),
        suites={"benchmark": 30, "stages": 10, "hops": 1000},
        take=Advice("no Ray in the data path", "a process group of your own", "one, through a socket",
                    "a lost rank stops all")),
    Row("graph", "pickle", "a shared-memory channel without the type hint: what the hint is worth", above="store refs",
        because="one compiled graph: no task calls, buffers reused", needs=_CHANNELS,
        suites={"benchmark": 20, "stages": 10, "hops": 1000}),
    Row("graph", "bytes", "plain Python bytes, which Ray does not pickle: what its own benchmarks send",
        above="graph pickle", because="plain bytes: no pickle, one copy more on either side", needs=_CHANNELS,
        suites={"benchmark": 20, "hops": 1000}),
    Row("graph", "shm", "TorchTensorType over a shared-memory channel; the default without GPUs", above="graph pickle",
        because="the type hint: tensors written once, not pickled in band",
        needs=replace(_CHANNELS, single_buffers=True), buffers=True,
        suites={"benchmark": 30, "quick": 3, "stages": 10},
        take=Advice("a fixed graph on one node, readers own their bytes", "a compiled graph, buffers sized beforehand",
                    "one in, one out into fresh pages",
                    "Ray is winding compiled graphs down; a resize makes teardown hang")),
    Row("graph", "shm", flags=_HUGE, above="graph shm", because=_HUGE_WHY, suites={"benchmark": 30}),
    Row("graph", "shm", flags={"reuse_buffers": True}, above="graph shm",
        because="readers copy into memory that they used before: no page faults",
        suites={"benchmark": 30, "stages": 10},
        take=Advice("the same, faster", "one method of Ray's replaced in each reader", "one in, one out",
                    "another version of Ray")),
    Row("rdt", "nccl", "two-sided, GPU to GPU; an actor stands in for the driver, with a GPU for each",
        needs=Needs(gpu_each=True, modules=("cupy",), trainer=True), suites={"benchmark": 100}),
    Row("torch", "nccl-one-gpu", "the same with all ranks on one GPU; the record says which way the bytes take",
        needs=Needs(gpus=1), suites={"benchmark": 100}),
    Row("torch", "nccl", "torch.distributed between GPUs; the driver's own edges by gloo, as in Ray's graph",
        above="rdt nccl", because="the same NCCL without Ray", needs=Needs(gpu_each=True), suites={"benchmark": 100}),
    Row("graph", "nccl", "GPU to GPU; the default where every role can have a GPU of its own", above="graph shm",
        because="GPU to GPU, not through host memory",
        needs=Needs(gpu_each=True, modules=("cupy",), store="channels", single_buffers=True), suites={"benchmark": 100},
        take=Advice("a GPU for each role", "cupy of torch's CUDA", "one, GPU to GPU",
                    "one GPU a rank; joins need extra methods")),
    Row("graph", "zero-copy", flags=_COPY, above="graph shm", because="readers copy into warm memory of their own",
        suites={"benchmark": 30}),
    Row("rdt", "mapped", flags=_COPY, above="rdt gloo",
        because="handles instead of payloads; one warm copy in each reader", suites={"benchmark": 30}),
    Row("torch", "multiprocessing", flags=_COPY, above="torch gloo",
        because="shared tensors, mapped anew each time; one copy in each reader", suites={"benchmark": 50}),
    Row("graph", "mapped", flags=_COPY, above="graph zero-copy --copy-out",
        because="nothing is written into a channel: one copy an edge", suites={"benchmark": 100, "stages": 10},
        take=Advice("the lowest latency on Ray where readers own their bytes, one node",
                    "producers that write into shared memory, a buffer in each reader", "one", _BREAKS_RING)),
    Row("torch", "mapped", flags=_COPY, above="graph mapped --copy-out", because="no Ray: numbers through pipes",
        suites={"benchmark": 100},
        take=Advice("the same without Ray", "producers that write into shared memory, a buffer in each reader", "one",
                    _BREAKS_RING)),
    Row("graph", "mapped", flags=_BOTH, above="graph mapped --copy-out", because="each copy by two cores",
        suites={"benchmark": 100}),
    Row("torch", "mapped", flags=_BOTH, above="torch mapped --copy-out", because="each copy by two cores",
        suites={"benchmark": 100}),
    Row("torch", "memcpy", "one process and one warm copy an edge: the ceiling itself, on the clock",
        above="graph mapped --copy-out", because="one process: no message, no other process to wake", depth=1,
        needs=Needs(host_only=True, one_process=True), suites={"benchmark": 100, "quick": 3, "stages": 10}),
    Row("store", "payload-queue", flags=_ZERO, views=True, above="store payload-queue", because="readers map tensors"),
    Row("store", "driver-queue", flags=_ZERO, views=True, above="store driver-queue", because="readers map tensors"),
    Row("store", "ref-queue", flags=_ZERO, views=True, above="store ref-queue", because="readers map tensors"),
    Row("store", "refs", flags=_ZERO, views=True, above="store refs",
        because="readers map the object; no copy into fresh pages", suites={"benchmark": 30, "stages": 10},
        take=Advice("the simple way on one node, readers only read", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS=1",
                    "one in, none out", "a reader's write is seen by all; under 100 KiB they are copied; slow trips "
                    "while the store's memory is new")),
    Row("store", "numpy", "numpy arrays by reference, mapped on reading: what most RLHF code is closest to", views=True,
        above="store refs", because="arrays lie in the store as they are, and readers map them", needs=_STORE,
        buffers=True,
        suites={"benchmark": 30, "stages": 10},
        take=Advice("messages are numpy arrays already, any nodes, readers only read", "tensors as arrays",
                    "one in, none out on the same node", "a reader must not write; under 100 KiB they are copied; slow "
                    "trips while the store's memory is new")),
    Row("graph", "zero-copy", "arrays out, mapped as tensors by the readers: nothing is copied on reading", views=True,
        above="store refs --zero-copy", because="warm channel buffers instead of new store objects", needs=_CHANNELS,
        buffers=True,
        suites={"benchmark": 100, "stages": 10},
        take=Advice("a fixed graph on one node, readers only read", "arrays instead of tensors", "one in, none out",
                    "a view that is kept blocks the channel two messages later")),
    Row("rdt", "cuda-ipc", "one-sided, readers map the producer's memory on the same GPU; an actor stands in for the "
        "driver", views=True,
        above="rdt nccl", because="readers map the producer's GPU memory",
        needs=Needs(gpus=1, one_machine=True, trainer=True), suites={"benchmark": 100},
        take=Advice("roles that share one GPU", "the same GPU for all, no expandable segments", "none",
                    "any other GPU or node")),
    Row("rdt", "mapped", "one-sided, readers map the producer's shared memory: the suite's own, by Ray's extension "
        "point", views=True, above="graph zero-copy", because="nothing is written: Ray Direct Transport carries "
        "handles", needs=_RING, suites={"benchmark": 50, "stages": 10, "hops": 1000},
        take=Advice("actor calls stay as they are, one node", "this suite's transport (common/transport/ring_rdt.py)",
                    "none", _BREAKS_RING)),
    Row("torch", "multiprocessing", "torch.multiprocessing queues with tensors in shared memory: mapped, not copied",
        views=True, above="graph zero-copy", because="nothing is written: queues carry file descriptors",
        needs=Needs(segments=True, host_only=True), suites={"benchmark": 100, "stages": 10, "hops": 1000},
        take=Advice("one program on one node", "no Ray", "none", "the producer must not change the tensor")),
    Row("graph", "mapped", "payloads stay where their producer wrote them; the graph carries handles", views=True,
        above="torch multiprocessing", because="the graph's channels carry handles, and what is mapped stays mapped",
        needs=_RING, suites={"benchmark": 100, "quick": 3, "stages": 10, "hops": 1000},
        take=Advice("the lowest latency on Ray, one node", "producers that write into shared memory", "none",
                    _BREAKS_RING)),
    Row("torch", "mapped", "the same shared memory without Ray: processes pass on the messages' numbers through pipes",
        views=True, above="graph mapped", because="no Ray: a number of 8 bytes through a pipe is all that moves",
        needs=_RING, suites={"benchmark": 100, "quick": 3, "stages": 10, "hops": 1000},
        take=Advice("the lowest latency without Ray, one node", "producers that write into shared memory", "none",
                    _BREAKS_RING)),
    Row("torch", "multiprocessing", flags=_BACK_TO_BACK, views=True, above="torch multiprocessing",
        because="trips in a row: processors' caches stay warm", suites={"benchmark": 500}),
    Row("graph", "mapped", flags=_BACK_TO_BACK, views=True, above="graph mapped",
        because="trips in a row: processors' caches stay warm", suites={"benchmark": 500, "stages": 100}),
    Row("torch", "mapped", flags=_BACK_TO_BACK, views=True, above="torch mapped",
        because="trips in a row: processors' caches stay warm", suites={"benchmark": 500, "stages": 100}),
)  # fmt: skip
LADDER = {row.name: row for row in ROWS}


def transports(runtime: str) -> dict[str, Row]:
    """What --transport may be, and what is said and needed there: the runtime's rows that have a line for --help."""
    return {row.transport: row for row in ROWS if row.runtime == runtime and row.says}


def readers_hold_views(row: Row, flags: Mapping[str, Any]) -> bool:
    """Whether what a reader ends with is another's memory, with these flags."""
    return (row.views or bool(flags.get("zero_copy"))) and not flags.get("copy_out")


def place(name: str) -> tuple[int, str]:
    """Where a row stands in the ladder; one with flags that are no rung follows the rung without them."""
    order = list(LADDER)
    known = name if name in LADDER else name.partition(" --")[0]
    return (order.index(known) if known in LADDER else len(order), name)
