# SPDX-License-Identifier: Apache-2.0
"""List every runtime, transport, configuration and suite. The TOML files in this folder have the data."""

import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from dataflow.study import STUDIES_FOLDER

# Ray keeps smaller results in its messages, not in shared memory (max_direct_call_object_size).
INLINED_BYTES = 100 * 1024


def read_files(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what a TOML file has, and the files of the same name in the folders of studies."""
    for file in (path, *sorted(STUDIES_FOLDER.glob(f"*/{path.name}"))):
        yield tomllib.loads(file.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Runtime:
    """A module with transports, and the processes that it starts."""

    name: str  # the first word of every configuration of this runtime
    # Of dataflow, which has its transports; those of a study may have modules of their own.
    module: str
    uses_ray: bool = True


@dataclass(frozen=True)
class Requirements:
    """What a transport needs. If a requirement is missing, the configuration is skipped with the reason."""

    gpus: int = 0  # for all actors together
    gpu_per_actor: bool = False
    modules: Sequence[str] = ()  # names that must be importable
    install: str = ""  # the command that installs them; default: pip install
    shared_memory: bool = False  # payloads lie in /dev/shm, one pool per sender
    single_host: bool = False  # all actors share memory
    edge_between_actors: bool = False  # it moves no message from or to the driver
    host_memory_only: bool = False  # it moves host memory, also on a machine with GPUs
    processor: str = ""  # as platform.machine() names it; "": any
    # The driver can neither send nor receive, so an actor does it in its place.
    proxy_actor: bool = False
    single_process: bool = False  # all actors run in the driver's process
    # Each task reads one message: readers of a broadcast that wait for each other block.
    one_input: bool = False
    # CPUs that a private Ray cluster says it has; None: those of the machine.
    ray_cpus: int | None = None
    # Without Ray on one machine; with --address, its processes are Ray actors.
    ray_actors: bool = False
    # A channel holds one message, so a path holds a fixed number of iterations.
    single_buffer_channels: bool = False
    senders_wait: bool = False  # between actors, a sender waits until the reader has its copy


@dataclass(frozen=True)
class Transport:
    """A method to move messages between actors; one function of a runtime."""

    runtime: Runtime
    name: str
    summary: str  # one line for --help
    module: str  # of dataflow
    function: str  # its name in TRANSPORTS of the module; default: that of the transport
    requirements: Requirements = Requirements()
    # What the object store takes in per iteration: each message once ("messages"), also once per reader as an argument
    # of a call ("arguments"), only once per reader ("calls"), or also twice per reader, into and out of a queue actor
    # ("buffers"). "channels": nothing: the channels of a compiled graph are made once.
    stores: Literal["", "messages", "arguments", "calls", "buffers", "channels"] = ""
    # A message can have another size than the one before it.
    carries_changing_sizes: bool = False
    # Any Python object that can be pickled, also one that is no dict of tensors.
    carries_objects: bool = False
    # Payloads pass through a network interface: on one machine, the loopback.
    uses_sockets: bool = False
    # A message crosses once to a node, however many of its readers are there.
    once_per_node: bool = False
    # RDMA, NVLink, CUDA IPC or NCCL may carry payloads, which no interface counts.
    bypasses_kernel: bool = False
    # Readers get a view of memory that they do not own; otherwise they own a copy.
    gives_views: bool = False
    # Messages arrive in fixed memory of the reader, so a later one overwrites what it has; otherwise in new memory.
    reuses_buffers: bool = False
    # With --zero-copy, readers map tensors of the object store and do not copy them.
    can_map_tensors: bool = False
    # A reader fetches its messages, and can say where they arrive.
    can_receive_in_place: bool = False
    registers_memory: bool = False  # for example for RDMA, before it is sent
    # It carries contiguous tensors and nothing else: no strings, no lists of numbers, and no views of larger tensors.
    carries_contiguous_only: bool = False
    # It reuses buffers, but with --keep, a message never arrives in memory that its reader still uses.
    can_keep: bool = False
    # It sends only memory that was registered before the clock starts, so producers make their messages there.
    sends_registered_only: bool = False
    max_in_flight: int | None = None  # iterations in flight; None: as many as memory holds

    @property
    def label(self) -> str:
        return f"{self.runtime.name} {self.name}"

    @property
    def can_cross_nodes(self) -> bool:
        return (
            self.runtime.uses_ray or self.requirements.ray_actors
        ) and not self.requirements.single_host


@dataclass(frozen=True)
class Variant:
    """A transport with flags: one configuration of the published tables."""

    transport: Transport
    iterations: int  # timed iterations per run of the full suite
    flags: Mapping[str, Any] = field(default_factory=dict)
    explanation: str = ""  # the difference from a simpler configuration
    # Its keys: use_when, needs, copies (per edge), breaks.
    advice: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return configuration_name(self.transport.runtime.name, self.transport.name, self.flags)


@dataclass(frozen=True)
class SuitePart:
    """A part of a suite, as in suites.toml. The suite "benchmark" has variants in place of texts."""

    table: str  # the name that their records store; dataflow/report/sections.py defines how it is shown
    configurations: list[str] = field(default_factory=list)  # texts: names with flags of their own
    flags: str = ""  # added to each of them
    traced: bool = False  # each is measured with --trace
    # Old and new, for a sentence at the end of a measurement.
    compare: list[list[str]] = field(default_factory=list)
    variants: Sequence[Variant] = ()

    @property
    def texts(self) -> list[str]:
        """Return the configurations that are texts, without those of a study that is not installed."""
        return [text for text in self.configurations if " ".join(text.split()[:2]) in TRANSPORTS]

    @property
    def names(self) -> list[str]:
        """Return all configurations as the suite names them."""
        return [*self.texts, *(variant.name for variant in self.variants)]


def configuration_name(runtime: str, transport: str, flags: Mapping[str, Any]) -> str:
    words = [runtime, transport]
    for name, value in flags.items():
        dashed = name.replace("_", "-")
        words.append(f"--{dashed}")
        if value is not True:
            words.append(shlex.quote(str(value)))
    return " ".join(words)


def readers_get_views(transport: Transport, flags: Mapping[str, Any]) -> bool:
    return (transport.gives_views or bool(flags.get("zero_copy"))) and not flags.get("copy_out")


def later_messages_overwrite(transport: Transport, flags: Mapping[str, Any]) -> bool:
    """Return whether the copy that a reader has lies in memory that it gets again for a later message.

    This is the next message; with --in-flight K, it is the one K later. Otherwise each message arrives in memory of its
    own, which the reader may keep. It does not matter for views.
    """
    if flags.get("keep"):
        return False
    is_asked_for = flags.get("reuse_buffers") or flags.get("copy_out")
    return transport.reuses_buffers or bool(is_asked_for)


def producer_writes_in_place(transport: Transport, flags: Mapping[str, Any]) -> bool:
    """Return whether messages lie where the transport sends them from before the clock starts.

    Then no time has the copy of a producer whose tensors lie in memory of its own. False for `rdt nixl`, which sends
    any tensor with --registration none: docs/method.md says what is known about --registration once.
    """
    in_place = transport.requirements.shared_memory or transport.sends_registered_only
    return in_place and not flags.get("copy_in")


def flags_of_name(name: str) -> dict[str, Any]:
    """Return the flags that are in the name of a configuration. Those without a value are True."""
    flags: dict[str, Any] = {}
    flag = ""
    for word in shlex.split(name):
        if word.startswith("--"):
            flag = word.removeprefix("--").replace("-", "_")
            flags[flag] = True
        elif flag:
            flags[flag] = word
    return flags


BASELINE = "store driver-queue"  # the demo's own transport
SIMPLEST = "store refs"  # what users of Ray begin with
REFERENCE = "torch memcpy"  # a reference and not a transport


def _read_entries(kind: str) -> Iterator[dict[str, Any]]:
    """Yield the runtimes, transports or variants of this project and of the studies."""
    for data in read_files(Path(__file__).with_name(f"{kind}.toml")):
        yield from data[kind]


def _read_transports() -> Iterator[Transport]:
    for fields in _read_entries("transports"):
        requirements = Requirements(**fields.pop("requirements", {}))
        runtime = RUNTIMES[fields.pop("runtime")]
        defaults = {"module": runtime.module, "function": fields["name"]}
        yield Transport(runtime, requirements=requirements, **defaults | fields)


RUNTIMES = {fields["name"]: Runtime(**fields) for fields in _read_entries("runtimes")}
TRANSPORTS = {transport.label: transport for transport in _read_transports()}
VARIANTS = tuple(  # in the order of the published tables
    Variant(TRANSPORTS[fields.pop("transport")], **fields)
    for fields in _read_entries("variants")
    if fields["transport"] in TRANSPORTS  # its study may be missing
)
CONFIGURATIONS = {variant.name: variant for variant in VARIANTS}


@cache
def suites() -> dict[str, list[SuitePart]]:
    """Return the suites of suites.toml and of the studies, and those that follow from the configurations."""
    files = read_files(Path(__file__).with_name("suites.toml"))
    core, *of_studies = [_make_suites(file) for file in files]
    core["benchmark"] = [SuitePart("configurations", variants=VARIANTS)]
    # Everything in results/published, so that one call measures all of it, interleaved.
    published = ["benchmark", "stages", "hops", "sweeps", "retained-memory", "rdt"]
    for suite in of_studies:
        for name, parts in suite.items():
            if name not in core:
                published.append(name)
            core[name] = [*core.get(name, []), *parts]
    parts_of_published = [core[name] for name in published]
    core["published"] = [*chain.from_iterable(parts_of_published)]
    return core


def _make_suites(file: Mapping[str, Any]) -> dict[str, list[SuitePart]]:
    """Return the suites of a file."""
    made = {}
    for name, parts in file.items():
        made[name] = [SuitePart(**part) for part in parts]
    return made
