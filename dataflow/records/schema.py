# SPDX-License-Identifier: Apache-2.0
"""Define the record: one JSON file per configuration, with its identity, its environment and every sample of its runs.

No derived number is stored. SCHEMA_VERSION grows with each change that makes earlier records unreadable.
"""

from typing import Annotated, Any, Literal

import msgspec

from common import record
from common.record import SCHEMA_VERSION, Seconds
from dataflow.catalogue.catalogue import configuration_name
from dataflow.flows.flow import Flow

AS_REQUESTED = " (as requested)"  # at the end of a data path that nothing has shown

Count = Annotated[int, msgspec.Meta(ge=0)]


class RecordedEdge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message of the workload from one actor to another."""

    source: str = msgspec.field(name="from")
    reader: str = msgspec.field(name="to")
    bytes: Count

    def __str__(self) -> str:
        return f"{self.source} -> {self.reader}"


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is moved. Times are compared only between equal workloads."""

    flow: str
    # One tensor; a dict of fields; a dict packed into one buffer; a dict whose lists of tensors are values and offsets;
    # a TensorDict; the changed values of parameters with their indices.
    message: Literal["flat", "fields", "packed", "jagged", "tensordict", "indices"]
    sizes: dict[str, int | float | str | bool]  # of the flow
    edges: tuple[RecordedEdge, ...]  # of the flow as its user draws it

    def __hash__(self) -> int:  # equal workloads have equal edges; a dict has no hash
        return hash((self.flow, self.message, self.edges))

    @property
    def changing_sizes(self) -> float:
        """Return how much the sizes change from iteration to iteration; 0 if they do not. Edges have their means."""
        return float(self.sizes.get("changing_sizes") or 0)

    @property
    def messages(self) -> tuple[tuple[RecordedEdge, ...], float]:
        """Return what is equal for workloads that send the same bytes."""
        return self.edges, self.changing_sizes

    @property
    def bytes_per_iteration(self) -> int:
        return sum(edge.bytes for edge in self.edges)


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    placement: Literal["pack", "spread"] = "pack"
    existing_cluster: bool = False  # --address
    place: str = ""  # the node numbers of --placement
    link: str = ""  # the name of the network between the nodes


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it is moved. Records with equal workload and configuration hold runs of the same measurement."""

    runtime: str
    transport: str
    flags: dict[str, Any] = {}  # option name -> value, for the options that change what is measured
    device: Literal["cpu", "cuda"] = "cpu"
    layout: Layout = Layout()

    def __hash__(self) -> int:
        return hash((self.runtime, self.transport, self.device, self.layout))

    @property
    def name(self) -> str:
        return configuration_name(self.runtime, self.transport, self.flags)


class ProcessCost(msgspec.Struct, forbid_unknown_fields=True):
    """What one process used, counted once however many workers share it."""

    # Largest resident set; shared pages count in each process.
    peak_memory_bytes: Count | None = None
    minor_faults: Count | None = None  # page faults during the timed iterations
    # After the last iteration: its own memory, and its share of what other processes map, too.
    private_bytes: Count | None = None
    shared_bytes: Count | None = None


# Process, thread, stage, iteration, start and end in µs, and page faults outside of inner spans.
Span = tuple[str, int, str, int, float, float, Count]


class Link(msgspec.Struct, forbid_unknown_fields=True):
    """How long the bytes that cross a link per iteration took without Ray, before the iterations."""

    source: int  # node
    reader: int
    connections: int  # of TCP, at the same time
    bytes: Count  # per iteration
    seconds: list[Seconds]  # one sample per pass


class NodeCosts(msgspec.Struct):
    """What a node did from the first timed iteration to the last.

    Older records also have the copies and the clock offset of each node, which are passed over.
    """

    clock_error_seconds: float = 0.0  # the largest error of the comparison with the driver's clock
    received_bytes: Count | None = None  # by the interface of its address; None: it is not known
    busy_cores: float = 0.0  # of all processes; nodes on one machine count each other's too
    steal_cores: float = 0.0


class Run(record.ScriptRun, msgspec.Struct, forbid_unknown_fields=True):
    """One process that measured the configuration. memcpy_before_seconds are of --threads threads."""

    order: Count = 0  # its position among the runs of its suite, to see drift
    pair: str = ""  # shared by two runs of a paired measurement
    memcpy_all_cores_seconds: list[Seconds] = []  # as memcpy_before_seconds, by all cores
    # One copy per edge into fresh memory, by --threads threads.
    cold_copy_before_seconds: list[Seconds] = []
    cold_copy_after_seconds: list[Seconds] = []
    cold_copy_faults: Count = 0  # page faults of one pass
    # The benchmark's own work for one iteration, one sample per pass.
    null_transport_seconds: list[Seconds] = []
    # What was done once before the first iteration -> its time. What it contains depends on the transport: torch and
    # peers start their processes in it, rdt does not. So it is not compared between transports.
    setup_seconds: dict[str, float] = {}
    store_bytes: Count = 0  # size of the object store of a private Ray cluster
    nodes: dict[str, int] = {}  # worker -> node on which it ran; the driver's node is 0
    node_costs: dict[str, NodeCosts] = {}  # node -> costs, if there are several
    links: list[Link] = []  # that edges cross
    data_paths: dict[str, str] = {}  # edge -> how its bytes travelled, as found at run time
    readers_own_a_copy: bool | None = None  # as found at run time; None: not seen
    # Per --check-every iterations: from the first query to the last result.
    group_seconds: list[Seconds] = []
    # As group_seconds, but also for each iteration that is verified alone: page faults of all processes and the raylet.
    group_faults: list[Count] = []
    # Of all processes, Ray's own included, during the timed iterations.
    cpu_seconds: float | None = None
    wrong_bytes: Count = 0  # of all iterations, the untimed ones included
    # "policy -> reward" or "policy -> reward, logprobs" -> bytes.
    wrong_bytes_by_field: dict[str, int] = {}
    # Edge -> those that its readers found in memory before anything was sent.
    unsent_wrong_bytes: dict[str, int] = {}
    # Written to the object store during the timed iterations; channels bypass it.
    stored_bytes: Count = 0
    spilled_bytes: Count = 0  # written to disk by the object store, from the first iteration on
    # --beside: iterations of the other flow that ended during the timed ones.
    beside_iterations: Count = 0
    # From the first timed iteration to the last, with the verification between them.
    beside_seconds: float = 0.0
    # Received by the loopback interface during the timed iterations.
    loopback_bytes: Count | None = None
    measured: dict[str, Any] = {}  # study -> what it measures besides
    # Names of the workers in the process, joined by "+", or raylet -> cost.
    processes: dict[str, ProcessCost] = {}
    iterations_us: list[tuple[float, float]] = []  # --trace: start and end of each timed iteration
    spans: list[Span] = []  # --trace

    @property
    def max_steal_cores(self) -> float:
        """Return the largest number of cores that a hypervisor took from a machine of this run."""
        return max([self.steal_cores, *(costs.steal_cores for costs in self.node_costs.values())])


class Record(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    schema_version: Literal[10] = SCHEMA_VERSION
    suite: str = ""  # of `dataflow run`; "" if the user chose the configuration
    table: str = "configurations"  # the table that the record belongs to
    workload: Workload
    configuration: Configuration
    traced: bool = False
    arguments: dict[str, Any] = {}  # every flag by its option name
    environments: dict[str, dict[str, Any]] = {}  # node -> machine and versions
    runs: list[Run] = []


def record_edges(flow: Flow) -> tuple[RecordedEdge, ...]:
    return tuple(
        RecordedEdge(source=edge.source, reader=edge.reader, bytes=edge.bytes)
        for edge in flow.edges
    )
