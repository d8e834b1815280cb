"""List every runtime, transport and configuration that can be measured, as data.

Scripts, --help, suites, charts, tables and tests read this module. To add a transport, add a Transport to TRANSPORTS,
a Variant to VARIANTS at its position in the tables, and its function to the script of its runtime. Speed-ups are
measured, not stored here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

# Ray keeps smaller results in its messages, not in shared memory (max_direct_call_object_size).
INLINED_BYTES = 100 * 1024


@dataclass(frozen=True)
class Runtime:
    """A script and the processes that it starts."""

    name: str  # the first word of every configuration of this runtime
    script: str  # the file that holds the transports
    worker_group: str = "ray_workers.RayWorkers"  # module and class of common/runtimes that start its workers
    default_transport: str | None = None  # None: nccl with a GPU per actor, otherwise shm
    uses_ray: bool = True
    single_host: bool = False  # all processes share one machine
    busy_waits: bool = False  # readers use a CPU core while they wait


@dataclass(frozen=True)
class Requirements:
    """What a transport needs. If a requirement is missing, the configuration is skipped with the reason."""

    gpus: int = 0  # for all actors together
    gpu_per_actor: bool = False
    modules: tuple[str, ...] = ()  # names that must be importable
    # The object store holds "messages" (and once more for each reader that gets them by value), or the "channels" of a
    # compiled graph.
    store: str = ""
    shared_memory: bool = False  # payloads lie in /dev/shm, one pool per sender
    single_host: bool = False  # all actors share memory
    host_memory_only: bool = False  # it moves host memory, also on a machine with GPUs
    proxy_actor: bool = False  # the driver can neither send nor receive, so an actor does it in its place
    single_process: bool = False  # all actors run in the driver's process
    single_buffer_channels: bool = False  # a channel holds one message, so a path holds a fixed number of iterations


@dataclass(frozen=True)
class Transport:
    """A method to move messages between actors; one function of a script."""

    runtime: Runtime
    name: str
    summary: str  # one line for --help
    requirements: Requirements = Requirements()
    gives_views: bool = False  # readers get a view of memory that they do not own; otherwise they own a copy
    max_in_flight: int | None = None  # iterations in flight; None: as many as memory holds
    options: str = ""  # module and class of the flags that only this transport has

    @property
    def label(self) -> str:
        return f"{self.runtime.name} {self.name}"


@dataclass(frozen=True)
class Advice:
    """When to use a configuration, what it needs, the copies per edge, and what breaks it."""

    use_when: str
    needs: str
    copies: str
    breaks: str


@dataclass(frozen=True)
class Variant:
    """A transport with flags: one configuration of the published tables."""

    transport: Transport
    flags: Mapping[str, Any]
    iterations: int  # timed iterations per run of the full suite; 0: the suite does not have the configuration
    compared_with: str  # the name of the configuration that this one extends
    explanation: str  # the difference between the two
    advice: Advice | None = None

    @property
    def name(self) -> str:
        return configuration_name(self.transport.runtime.name, self.transport.name, self.flags)

    @property
    def gives_views(self) -> bool:
        return readers_get_views(self.transport, self.flags)


def configuration_name(runtime: str, transport: str, flags: Mapping[str, Any]) -> str:
    """Return runtime, transport and flags as they are given on the command line."""
    words = [f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in flags.items()]
    return " ".join([runtime, transport, *words])


def readers_get_views(transport: Transport, flags: Mapping[str, Any]) -> bool:
    """Whether readers end with a view of memory that they do not own, with these flags."""
    return (transport.gives_views or bool(flags.get("zero_copy"))) and not flags.get("copy_out")


STORE = Runtime("store", "simulate_chat_learn_data_flow.py", default_transport="ref-queue")
GRAPH = Runtime("graph", "ray_cg_simulate_chat_learn_data_flow.py", busy_waits=True)
RDT = Runtime("rdt", "ray_rdt_simulate_chat_learn_data_flow.py", default_transport="gloo")
TORCH = Runtime("torch", "torch_simulate_chat_learn_data_flow.py", "process_workers.ProcessWorkers", "gloo",
                uses_ray=False, single_host=True)  # fmt: skip
RUNTIMES = {runtime.name: runtime for runtime in (STORE, GRAPH, RDT, TORCH)}
BASELINE = "store driver-queue"  # the demo's own transport
REFERENCE = "torch memcpy"  # a reference and not a transport
CHATLEARN = "store ref-queue"  # ChatLearn's own transport

_MESSAGES, _CHANNELS = Requirements(store="messages"), Requirements(store="channels")
_RING, _HOST = Requirements(shared_memory=True, single_host=True), Requirements(host_memory_only=True)

_TRANSPORTS = (
    Transport(STORE, "payload-queue", "anti-pattern: the payload itself goes through the queue actor", _MESSAGES),
    Transport(STORE, "driver-queue", "the demo's baseline: the driver reads and sends every payload", _MESSAGES,
              max_in_flight=1),
    Transport(STORE, "ref-queue", "as ChatLearn does: queue actors carry references", _MESSAGES,
              options="chatlearn.options.ChatLearnOptions"),
    Transport(STORE, "refs", "references in actor calls, no queue", _MESSAGES),
    Transport(STORE, "bytes", "references to Python bytes, which Ray does not pickle", _MESSAGES),
    Transport(STORE, "numpy", "references to numpy arrays, which readers map", _MESSAGES, gives_views=True),
    Transport(RDT, "nixl", "one-sided reads by NIXL over UCX", Requirements(modules=("nixl",))),
    Transport(RDT, "gloo", "torch.distributed between CPU actors; a proxy actor acts for the driver",
              replace(_HOST, proxy_actor=True)),
    Transport(RDT, "nccl", "GPU to GPU; a proxy actor acts for the driver, with a GPU per actor",
              Requirements(gpu_per_actor=True, modules=("cupy",), proxy_actor=True)),
    Transport(RDT, "cuda-ipc", "readers map the sender's memory on the same GPU; a proxy actor acts for the driver",
              Requirements(gpus=1, single_host=True, proxy_actor=True), gives_views=True),
    Transport(RDT, "mapped", "readers map the sender's shared memory, through Ray's extension point", _RING,
              gives_views=True),
    Transport(TORCH, "gloo", "torch.distributed send and recv over loopback", _HOST),
    Transport(TORCH, "nccl-one-gpu", "torch.distributed with all ranks on one GPU; the record has NCCL's data path",
              Requirements(gpus=1)),
    Transport(TORCH, "nccl", "torch.distributed between GPUs; the driver's own edges use gloo",
              Requirements(gpu_per_actor=True)),
    Transport(TORCH, "multiprocessing", "torch.multiprocessing queues with tensors in shared memory",
              replace(_HOST, shared_memory=True), gives_views=True),
    Transport(TORCH, "mapped", "readers map the sender's shared memory; pipes carry the sequence numbers", _RING,
              gives_views=True),
    Transport(TORCH, "memcpy", "one process and one warm copy per edge: a reference, not a transport",
              replace(_HOST, single_process=True), max_in_flight=1),
    Transport(GRAPH, "pickle", "a shared-memory channel without a type hint: tensors are pickled", _CHANNELS),
    Transport(GRAPH, "bytes", "a shared-memory channel with Python bytes, which Ray does not pickle", _CHANNELS),
    Transport(GRAPH, "shm", "TorchTensorType over a shared-memory channel; the default without GPUs",
              replace(_CHANNELS, single_buffer_channels=True)),
    Transport(GRAPH, "nccl", "GPU to GPU; the default if every actor can have a GPU of its own",
              replace(_CHANNELS, gpu_per_actor=True, modules=("cupy",), single_buffer_channels=True)),
    Transport(GRAPH, "zero-copy", "a shared-memory channel with numpy arrays, which readers map as tensors", _CHANNELS,
              gives_views=True),
    Transport(GRAPH, "mapped", "readers map the sender's shared memory; the graph carries handles", _RING,
              gives_views=True),
)  # fmt: skip
TRANSPORTS = {transport.label: transport for transport in _TRANSPORTS}


def transports_of(runtime: str) -> dict[str, Transport]:
    """Return the values of --transport of a runtime's script."""
    return {t.name: t for t in _TRANSPORTS if t.runtime.name == runtime}


_NEEDS_RING = "producers that write into shared memory"
_COPIED_RING = f"{_NEEDS_RING}; a buffer in each reader"
_BREAKS_RING = "a reader that keeps a view blocks its producer after three more messages"
_ZERO_COPY_BREAKS = ("a reader's write is seen by all readers; messages up to 100 KiB are copied; iterations are slow "
                     "while the store's memory is new")  # fmt: skip
_HUGE_PAGES, _TWO_THREADS = "fresh memory in pages of 2 MiB: fewer page faults", "two threads per copy"
_WARM_CACHES = "100 iterations between two full verifications: caches stay warm"


def _variant(
    name: str, iterations: int, compared_with: str, explanation: str, advice: Advice | None = None, **flags: Any
) -> Variant:
    return Variant(TRANSPORTS[name], flags, iterations, compared_with, explanation, advice)


# In the order of the published tables.
VARIANTS = (
    _variant("store payload-queue", 5, "", ""),
    _variant("store driver-queue", 20, "store payload-queue", "the driver holds the payload, and no queue actor",
             Advice("never: it is the demo's baseline", "nothing", "two through the driver, pickled",
                    "a driver without enough memory")),
    _variant("store ref-queue", 5, "store driver-queue", "the driver passes references on, and no payloads",
             Advice("many producers and consumers, any number of nodes", "a queue actor per edge",
                    "pickled when written and when read, into fresh pages",
                    "a store that fills up spills to disk without an error")),
    _variant("store refs", 5, "store ref-queue", "no queue actors between the actors"),
    _variant("store bytes", 5, "store refs", "Python bytes: no pickling"),
    _variant("rdt nixl", 5, "store refs", "tensors stay with their producer; readers fetch them by NIXL",
             Advice("one-sided reads, RDMA between nodes", "nixl; memory that is registered once",
                    "one, into fresh pages", "a producer that changes the tensor; the API is alpha")),
    _variant("rdt nixl", 5, "rdt nixl", _HUGE_PAGES, huge_pages=True),
    _variant("rdt gloo", 5, "store refs", "tensors stay with their producer; gloo sends them",
             Advice("CPU tensors between actors, any number of nodes", "a group of all actors, without the driver",
                    "one, through a socket", "one dead actor ends its peers; a producer that changes the tensor")),
    _variant("rdt gloo", 5, "rdt gloo", _HUGE_PAGES, huge_pages=True),
    _variant("torch gloo", 6, "rdt gloo", "gloo without Ray, received into the same memory every time",
             Advice("no Ray in the data path", "a process group of your own", "one, through a socket",
                    "one lost rank stops all")),
    _variant("graph pickle", 5, "store refs", "one compiled graph: no task calls, buffers are reused"),
    _variant("graph bytes", 5, "graph pickle", "Python bytes: no pickling, but one more copy on either side"),
    _variant("graph shm", 6, "graph pickle", "the type hint: tensors are written once and not pickled",
             Advice("a fixed graph on one node, readers own a copy", "a compiled graph; buffers sized in advance",
                    "one in, one out into fresh pages",
                    "Ray is winding compiled graphs down; after a resize, teardown hangs")),
    _variant("graph shm", 6, "graph shm", _HUGE_PAGES, huge_pages=True),
    _variant("graph shm", 6, "graph shm", "readers copy into memory that they have used before: no page faults",
             Advice("the same, faster", "one private method of Ray replaced in each reader", "one in, one out",
                    "another version of Ray"), reuse_buffers=True),
    _variant("rdt nccl", 20, "", ""),
    _variant("torch nccl-one-gpu", 20, "", ""),
    _variant("torch nccl", 20, "rdt nccl", "NCCL without Ray"),
    _variant("graph nccl", 20, "graph shm", "GPU to GPU, not through host memory",
             Advice("a GPU per actor", "the cupy that matches torch's CUDA", "one, GPU to GPU",
                    "one GPU per rank; joins need extra methods")),
    _variant("graph zero-copy", 6, "graph shm", "readers copy into warm memory of their own", copy_out=True),
    _variant("rdt mapped", 6, "rdt gloo", "handles instead of payloads; one warm copy in each reader", copy_out=True),
    _variant("torch multiprocessing", 10, "torch gloo",
             "shared tensors, mapped anew each time; one copy in each reader", copy_out=True),
    _variant("graph mapped", 20, "graph zero-copy --copy-out",
             "no payload is written into a channel: one copy per edge",
             Advice("the lowest latency on Ray if readers own a copy, one node", _COPIED_RING, "one", _BREAKS_RING),
             copy_out=True),
    _variant("torch mapped", 20, "graph mapped --copy-out", "no Ray: pipes carry the sequence numbers",
             Advice("the same without Ray", _COPIED_RING, "one", _BREAKS_RING), copy_out=True),
    _variant("graph mapped", 20, "graph mapped --copy-out", _TWO_THREADS, copy_out=True, threads=2),
    _variant("torch mapped", 20, "torch mapped --copy-out", _TWO_THREADS, copy_out=True, threads=2),
    _variant("torch memcpy", 20, "graph mapped --copy-out", "one process: no messages and no other process to wake"),
    *(_variant(name, 0, name, "readers map tensors", zero_copy=True)
      for name in ("store payload-queue", "store driver-queue", "store ref-queue")),
    _variant("store refs", 6, "store refs", "readers map the object: no copy into fresh pages",
             Advice("the simplest zero-copy on one node, readers only read", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS=1",
                    "one in, none out", _ZERO_COPY_BREAKS), zero_copy=True),
    _variant("store numpy", 6, "store refs", "arrays lie in the store as they are, and readers map them",
             Advice("messages are numpy arrays already, any number of nodes, readers only read", "tensors as arrays",
                    "one in, none out on the same node", _ZERO_COPY_BREAKS)),
    _variant("graph zero-copy", 20, "store refs --zero-copy", "warm channel buffers instead of new store objects",
             Advice("a fixed graph on one node, readers only read", "arrays instead of tensors", "one in, none out",
                    "a reader that keeps a view blocks the channel after two more messages")),
    _variant("rdt cuda-ipc", 20, "rdt nccl", "readers map the producer's GPU memory",
             Advice("actors that share one GPU", "the same GPU for all actors; no expandable segments", "none",
                    "any other GPU or node")),
    _variant("rdt mapped", 10, "graph zero-copy", "no payload is written: Ray Direct Transport carries handles",
             Advice("actor calls stay as they are, one node", "this suite's transport (common/channels/rdt_ring.py)",
                    "none", _BREAKS_RING)),
    _variant("torch multiprocessing", 20, "graph zero-copy", "no payload is written: queues carry file descriptors",
             Advice("one program on one node", "no Ray", "none", "a producer that changes the tensor")),
    _variant("graph mapped", 20, "torch multiprocessing", "channels carry handles, and mapped memory stays mapped",
             Advice("the lowest latency on Ray, one node", _NEEDS_RING, "none", _BREAKS_RING)),
    _variant("torch mapped", 20, "graph mapped", "no Ray: only 8 bytes through a pipe move",
             Advice("the lowest latency without Ray, one node", _NEEDS_RING, "none", _BREAKS_RING)),
    *(_variant(name, 100, name, _WARM_CACHES, check_every=100)
      for name in ("torch multiprocessing", "graph mapped", "torch mapped")),
)  # fmt: skip
CONFIGURATIONS = {variant.name: variant for variant in VARIANTS}
