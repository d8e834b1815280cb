"""Define the workers of a run as a transport sees them, and the connection that a transport makes between them."""

from collections import ChainMap
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any

from dataflow.endpoints.actor import Actor, Endpoint
from dataflow.endpoints.codecs import Codec
from dataflow.errors import SuiteError
from dataflow.flows.flow import DRIVER
from dataflow.plan.plan import Plan


@dataclass(frozen=True)
class Connection:
    """A transport that is ready."""

    submit: Callable[[Any], Any]  # sends a query and does not wait; its result is the argument of `collect`
    collect: Callable[[Any], Sequence[Any]]  # waits for the results, and returns them in the order of `Flow.returns`
    data_paths: dict[str, str]  # edge -> how its bytes travel, read from the running system if possible
    setup_seconds: dict[str, float] = field(default_factory=dict)  # what was done once, such as registering memory
    # Returns the wrong samples of the transport's own readers. It is called between groups of iterations.
    check: Callable[[], dict[str, int]] = dict
    facts: Callable[[], dict[str, Any]] = dict  # returns fields of the Run that only the transport knows, at the end
    spans: Callable[[], dict[str, Any]] = dict  # --trace: returns the spans of processes that are not workers, by name


class WorkerGroup:
    """The workers of a run. A transport function gets it, and starts the workers with classes of its choice."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.sent_flow = plan, plan.sent_flow
        self.actors: dict[str, Any] = {}  # worker name -> Ray actor handle, process, or endpoint in this process
        self.driver: Any = None  # the driver's endpoint
        self.nodes: Any = None  # of a Ray cluster
        self.worker_nodes = dict.fromkeys(plan.worker_names, 0)  # the driver's node is 0
        self.first_iteration = 0  # of the current group
        self.first_timed = 0  # iteration; 0 during the warm-up
        self.closing = ExitStack()  # is closed after the last iteration, while the actors are still there

    def start(
        self, actor_class: type = Actor, driver_class: type = Endpoint, *extra: Any, codec: Codec | None = None
    ) -> None:
        """Start actor_class(plan, name, *extra) per actor, with the codec as last argument, and driver_class."""
        self._start_actors(actor_class, (*extra, codec) if codec else extra)
        self.driver = driver_class(self.plan, DRIVER, *extra)
        self.call("learn_digests", dict(ChainMap(*self.call("payload_digests").values())))

    def call(self, method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of every worker, of all actors at once; return the results by worker name."""
        return self.run_in_all(methodcaller(method, *arguments))

    def run_in_all(self, function: Callable[[Any], Any]) -> dict[str, Any]:
        """Call a function with the endpoint of each worker, in the worker's process; return the results by name."""
        # The driver's own call comes last, so that the actors have been idle for a while at the next iteration.
        return self._run_in_actors(function) | {DRIVER: function(self.driver)}

    def driver_seconds(self, worker: str, seconds: float) -> float:
        """Return a time of a worker's clock on the driver's clock, after the last iteration."""
        return self.nodes.driver_seconds(worker, seconds) if self.nodes else seconds

    def stop(self) -> None:
        """End the actors, so that none of them busy-waits while something else is timed."""
        raise NotImplementedError

    def rendezvous(self) -> str:
        """Return the URL at which torch.distributed forms a group of all workers."""
        return f"file://{self.plan.run_folder}/rendezvous"

    def counters(self) -> dict[str, int]:
        """Return what the processes of Ray have counted since they started: see RayWorkers."""
        return dict.fromkeys(("stored_bytes", "spilled_bytes", "raylet_faults"), 0)

    def explain(self, error: Exception) -> SuiteError | None:
        """Return an error with one line that names the actor; None if the error is a defect of the suite itself."""
        raise NotImplementedError

    def _start_actors(self, actor_class: type, extra: tuple) -> None:
        raise NotImplementedError

    def _run_in_actors(self, function: Callable[[Any], Any]) -> dict[str, Any]:
        raise NotImplementedError
