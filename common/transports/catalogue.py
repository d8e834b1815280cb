"""List every runtime, transport and configuration that can be measured, as data.

Scripts, --help, suites, charts, tables and tests read this module. To add a transport, add a Transport to TRANSPORTS,
a Variant to VARIANTS where its row belongs in the tables, and its function to the script of its runtime. Speed-ups are
measured, not stored here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# Ray keeps smaller results in its messages, not in shared memory (max_direct_call_object_size).
INLINED_BYTES = 100 * 1024


@dataclass(frozen=True)
class Runtime:
    """A script and the processes that it starts.

    Args:
        name: the first word of every configuration of this runtime.
        script: the file that holds the transports.
        worker_group: module and class of common/runtimes that start its workers.
        default_transport: without --transport; None: nccl with a GPU per actor, else shm.
        single_host: all processes share one machine.
        busy_waits: readers use a CPU core while they wait.
    """

    name: str
    script: str
    worker_group: str = "ray_workers.RayWorkers"
    default_transport: str | None = None
    uses_ray: bool = True
    single_host: bool = False
    busy_waits: bool = False


@dataclass(frozen=True)
class Requirements:
    """What a transport needs. If a requirement is missing, the configuration is skipped with the reason.

    Args:
        gpus: this many for all actors together.
        gpu_per_actor: one for each actor.
        modules: names that must be importable.
        store: what lies in the object store: "messages" (and once more for every reader that gets them by value), or
            the "channels" of a compiled graph.
        shared_memory: payloads lie in /dev/shm, one pool per sender.
        single_host: all actors share memory.
        host_memory_only: it moves host memory, also on a machine with GPUs.
        proxy_actor: the driver can neither send nor receive, so an actor does it in its place.
        single_process: all actors run in the driver's process.
        single_buffer_channels: a channel holds one message, so a path holds a fixed number of iterations.
    """

    gpus: int = 0
    gpu_per_actor: bool = False
    modules: tuple[str, ...] = ()
    store: str = ""
    shared_memory: bool = False
    single_host: bool = False
    host_memory_only: bool = False
    proxy_actor: bool = False
    single_process: bool = False
    single_buffer_channels: bool = False


@dataclass(frozen=True)
class Transport:
    """A way to move messages between actors; one function of a script.

    Args:
        summary: one line for --help.
        gives_views: readers get a view of memory that they do not own; otherwise they own a copy.
        separate_buffers: Ray writes each tensor as a buffer of its own, not inside a pickle.
        max_in_flight: iterations that can be in flight; None: as many as memory holds.
        options: module and class of flags that only this transport has.
    """

    runtime: Runtime
    name: str
    summary: str
    gives_views: bool = False
    requirements: Requirements = Requirements()
    separate_buffers: bool = False
    max_in_flight: int | None = None
    options: str = ""

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
    """A transport with flags: one configuration of the published tables.

    Args:
        compared_with: the name of the configuration that this one extends.
        explanation: the difference between the two.
    """

    transport: Transport
    flags: Mapping[str, Any] = field(default_factory=dict)
    compared_with: str = ""
    explanation: str = ""
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
_RING = Requirements(shared_memory=True, single_host=True)

_TRANSPORTS = (
    Transport(STORE, "payload-queue", "anti-pattern: the payload itself goes through the queue actor",
              requirements=_MESSAGES),
    Transport(STORE, "driver-queue", "the demo's baseline: the driver reads and sends every payload",
              requirements=_MESSAGES, max_in_flight=1),
    Transport(STORE, "ref-queue", "as ChatLearn does: queue actors carry references", requirements=_MESSAGES,
              options="chatlearn.options.ChatLearnOptions"),
    Transport(STORE, "refs", "references in actor calls, no queue", requirements=_MESSAGES),
    Transport(STORE, "bytes", "references to Python bytes, which Ray does not pickle", requirements=_MESSAGES),
    Transport(STORE, "numpy", "references to numpy arrays, which readers map", gives_views=True,
              requirements=_MESSAGES, separate_buffers=True),
    Transport(RDT, "nixl", "one-sided reads by NIXL over UCX", requirements=Requirements(modules=("nixl",))),
    Transport(RDT, "gloo", "torch.distributed between CPU actors; a proxy actor acts for the driver",
              requirements=Requirements(host_memory_only=True, proxy_actor=True)),
    Transport(RDT, "nccl", "GPU to GPU; a proxy actor acts for the driver, with a GPU per actor",
              requirements=Requirements(gpu_per_actor=True, modules=("cupy",), proxy_actor=True)),
    Transport(RDT, "cuda-ipc", "readers map the sender's memory on the same GPU; a proxy actor acts for the driver",
              gives_views=True, requirements=Requirements(gpus=1, single_host=True, proxy_actor=True)),
    Transport(RDT, "mapped", "readers map the sender's shared memory, through Ray's extension point", gives_views=True,
              requirements=_RING),
    Transport(TORCH, "gloo", "torch.distributed send and recv over loopback",
              requirements=Requirements(host_memory_only=True)),
    Transport(TORCH, "nccl-one-gpu", "torch.distributed with all ranks on one GPU; the record has NCCL's data path",
              requirements=Requirements(gpus=1)),
    Transport(TORCH, "nccl", "torch.distributed between GPUs; the driver's own edges use gloo",
              requirements=Requirements(gpu_per_actor=True)),
    Transport(TORCH, "multiprocessing", "torch.multiprocessing queues with tensors in shared memory", gives_views=True,
              requirements=Requirements(shared_memory=True, host_memory_only=True)),
    Transport(TORCH, "mapped", "readers map the sender's shared memory; pipes carry the sequence numbers",
              gives_views=True, requirements=_RING),
    Transport(TORCH, "memcpy", "one process and one warm copy per edge: a reference, not a transport",
              requirements=Requirements(host_memory_only=True, single_process=True), max_in_flight=1),
    Transport(GRAPH, "pickle", "a shared-memory channel without a type hint: tensors are pickled",
              requirements=_CHANNELS),
    Transport(GRAPH, "bytes", "a shared-memory channel with Python bytes, which Ray does not pickle",
              requirements=_CHANNELS),
    Transport(GRAPH, "shm", "TorchTensorType over a shared-memory channel; the default without GPUs",
              requirements=replace(_CHANNELS, single_buffer_channels=True), separate_buffers=True),
    Transport(GRAPH, "nccl", "GPU to GPU; the default if every actor can have a GPU of its own",
              requirements=Requirements(gpu_per_actor=True, modules=("cupy",), store="channels",
                                        single_buffer_channels=True)),
    Transport(GRAPH, "zero-copy", "a shared-memory channel with numpy arrays, which readers map as tensors",
              gives_views=True, requirements=_CHANNELS, separate_buffers=True),
    Transport(GRAPH, "mapped", "readers map the sender's shared memory; the graph carries handles", gives_views=True,
              requirements=_RING),
)  # fmt: skip
TRANSPORTS = {transport.label: transport for transport in _TRANSPORTS}


def transports_of(runtime: str) -> dict[str, Transport]:
    """Return the values of --transport of a runtime's script."""
    return {t.name: t for t in _TRANSPORTS if t.runtime.name == runtime}


_BREAKS_RING = "a reader that keeps a view blocks its producer after three more messages"
_ZERO_COPY_BREAKS = ("a reader's write is seen by all readers; messages up to 100 KiB are copied; iterations are slow "
                     "while the store's memory is new")  # fmt: skip


def _variant(name: str, compared_with: str, explanation: str, advice: Advice | None = None, **flags: Any) -> Variant:
    return Variant(TRANSPORTS[name], flags, compared_with, explanation, advice)


# In the order of the published tables.
VARIANTS = (
    _variant("store payload-queue", "", ""),
    _variant("store driver-queue", "store payload-queue", "the driver holds the payload, and no queue actor",
             Advice("never: it is the demo's baseline", "nothing", "two through the driver, pickled",
                    "a driver without enough memory")),
    _variant("store ref-queue", "store driver-queue", "the driver passes references on, and no payloads",
             Advice("many producers and consumers, any number of nodes", "a queue actor per edge",
                    "pickled when written and when read, into fresh pages",
                    "a store that fills up spills to disk without an error")),
    _variant("store refs", "store ref-queue", "no queue actors between the actors"),
    _variant("store bytes", "store refs", "Python bytes: no pickling"),
    _variant("rdt nixl", "store refs", "tensors stay with their producer; readers fetch them by NIXL",
             Advice("one-sided reads, RDMA between nodes", "nixl; memory that is registered once",
                    "one, into fresh pages", "a producer that changes the tensor; the API is alpha")),
    _variant("rdt nixl", "rdt nixl", "fresh memory in pages of 2 MiB: fewer page faults", huge_pages=True),
    _variant("rdt gloo", "store refs", "tensors stay with their producer; gloo sends them",
             Advice("CPU tensors between actors, any number of nodes", "a group of all actors, without the driver",
                    "one, through a socket", "one dead actor ends its peers; a producer that changes the tensor")),
    _variant("rdt gloo", "rdt gloo", "fresh memory in pages of 2 MiB: fewer page faults", huge_pages=True),
    _variant("torch gloo", "rdt gloo", "gloo without Ray, received into the same memory every time",
             Advice("no Ray in the data path", "a process group of your own", "one, through a socket",
                    "one lost rank stops all")),
    _variant("graph pickle", "store refs", "one compiled graph: no task calls, buffers are reused"),
    _variant("graph bytes", "graph pickle", "Python bytes: no pickling, but one more copy on either side"),
    _variant("graph shm", "graph pickle", "the type hint: tensors are written once and not pickled",
             Advice("a fixed graph on one node, readers own a copy", "a compiled graph; buffers sized in advance",
                    "one in, one out into fresh pages",
                    "Ray is winding compiled graphs down; after a resize, teardown hangs")),
    _variant("graph shm", "graph shm", "fresh memory in pages of 2 MiB: fewer page faults", huge_pages=True),
    _variant("graph shm", "graph shm", "readers copy into memory that they have used before: no page faults",
             Advice("the same, faster", "one private method of Ray replaced in each reader", "one in, one out",
                    "another version of Ray"), reuse_buffers=True),
    _variant("rdt nccl", "", ""),
    _variant("torch nccl-one-gpu", "", ""),
    _variant("torch nccl", "rdt nccl", "NCCL without Ray"),
    _variant("graph nccl", "graph shm", "GPU to GPU, not through host memory",
             Advice("a GPU per actor", "the cupy that matches torch's CUDA", "one, GPU to GPU",
                    "one GPU per rank; joins need extra methods")),
    _variant("graph zero-copy", "graph shm", "readers copy into warm memory of their own", copy_out=True),
    _variant("rdt mapped", "rdt gloo", "handles instead of payloads; one warm copy in each reader", copy_out=True),
    _variant("torch multiprocessing", "torch gloo", "shared tensors, mapped anew each time; one copy in each reader",
             copy_out=True),
    _variant("graph mapped", "graph zero-copy --copy-out", "no payload is written into a channel: one copy per edge",
             Advice("the lowest latency on Ray if readers own a copy, one node",
                    "producers that write into shared memory; a buffer in each reader", "one", _BREAKS_RING),
             copy_out=True),
    _variant("torch mapped", "graph mapped --copy-out", "no Ray: pipes carry the sequence numbers",
             Advice("the same without Ray", "producers that write into shared memory; a buffer in each reader", "one",
                    _BREAKS_RING), copy_out=True),
    _variant("graph mapped", "graph mapped --copy-out", "two threads per copy", copy_out=True, threads=2),
    _variant("torch mapped", "torch mapped --copy-out", "two threads per copy", copy_out=True, threads=2),
    _variant("torch memcpy", "graph mapped --copy-out", "one process: no messages and no other process to wake"),
    _variant("store payload-queue", "store payload-queue", "readers map tensors", zero_copy=True),
    _variant("store driver-queue", "store driver-queue", "readers map tensors", zero_copy=True),
    _variant("store ref-queue", "store ref-queue", "readers map tensors", zero_copy=True),
    _variant("store refs", "store refs", "readers map the object: no copy into fresh pages",
             Advice("the simplest zero-copy on one node, readers only read", "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS=1",
                    "one in, none out", _ZERO_COPY_BREAKS), zero_copy=True),
    _variant("store numpy", "store refs", "arrays lie in the store as they are, and readers map them",
             Advice("messages are numpy arrays already, any number of nodes, readers only read", "tensors as arrays",
                    "one in, none out on the same node", _ZERO_COPY_BREAKS)),
    _variant("graph zero-copy", "store refs --zero-copy", "warm channel buffers instead of new store objects",
             Advice("a fixed graph on one node, readers only read", "arrays instead of tensors", "one in, none out",
                    "a reader that keeps a view blocks the channel after two more messages")),
    _variant("rdt cuda-ipc", "rdt nccl", "readers map the producer's GPU memory",
             Advice("actors that share one GPU", "the same GPU for all actors; no expandable segments", "none",
                    "any other GPU or node")),
    _variant("rdt mapped", "graph zero-copy", "no payload is written: Ray Direct Transport carries handles",
             Advice("actor calls stay as they are, one node", "this suite's transport (common/channels/rdt_ring.py)",
                    "none", _BREAKS_RING)),
    _variant("torch multiprocessing", "graph zero-copy", "no payload is written: queues carry file descriptors",
             Advice("one program on one node", "no Ray", "none", "a producer that changes the tensor")),
    _variant("graph mapped", "torch multiprocessing", "channels carry handles, and mapped memory stays mapped",
             Advice("the lowest latency on Ray, one node", "producers that write into shared memory", "none",
                    _BREAKS_RING)),
    _variant("torch mapped", "graph mapped", "no Ray: only 8 bytes through a pipe move",
             Advice("the lowest latency without Ray, one node", "producers that write into shared memory", "none",
                    _BREAKS_RING)),
    _variant("torch multiprocessing", "torch multiprocessing", "100 iterations between two full verifications: caches "
             "stay warm", check_every=100),
    _variant("graph mapped", "graph mapped", "100 iterations between two full verifications: caches stay warm",
             check_every=100),
    _variant("torch mapped", "torch mapped", "100 iterations between two full verifications: caches stay warm",
             check_every=100),
)  # fmt: skip
CONFIGURATIONS = {variant.name: variant for variant in VARIANTS}
