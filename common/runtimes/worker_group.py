"""Define the workers of a run as a transport sees them, and the connection that a transport makes between them."""

from collections import ChainMap
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from common.channels.codecs import Codec
from common.endpoints.actor import Actor, Endpoint
from common.flows.flow import DRIVER
from common.plan.plan import Plan


@dataclass(frozen=True)
class Connection:
    """A transport that is ready.

    Args:
        submit: sends the query of an iteration and does not wait. Its result is the argument of `collect`.
        collect: waits for the results of this iteration and returns them in the order of the flow's `returns`.
        data_paths: for each edge ("source -> reader"), how its bytes travel, read from the running system if possible.
        setup_seconds: what was done once before the first iteration (such as memory registration) -> its time.
        check: returns wrong samples that the transport's own readers received; called after each group of iterations,
            outside the timed section.
        facts: returns fields of the record's Run that only the transport knows; called after the last iteration.
        spans: with --trace, returns the spans of processes that are not workers, by process name.
    """

    submit: Callable[[Any], Any]
    collect: Callable[[Any], Sequence[Any]]
    data_paths: dict[str, str]
    setup_seconds: dict[str, float] = field(default_factory=dict)
    check: Callable[[], dict[str, int]] = dict
    facts: Callable[[], dict[str, Any]] = dict
    spans: Callable[[], dict[str, Any]] = dict


class WorkerGroup:
    """The workers of a run. A transport function gets it, and starts the workers with classes of its choice.

    Attributes:
        actors: worker name -> Ray actor handle, process, or endpoint in this process.
        driver: the driver's endpoint.
        wire_flow: the flow with the messages as they are sent.
        first_iteration: the number of the first message of the current group of iterations.
        closing: its callbacks are called after the last iteration, while the actors are still there.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.wire_flow, self.closing = plan, plan.wire_flow, ExitStack()
        self.actors: dict[str, Any] = {}
        self.driver: Any = None
        self.first_iteration = 0

    def start(
        self, actor_class: type = Actor, driver_class: type = Endpoint, *extra: Any, codec: Codec | None = None
    ) -> None:
        """Start actor_class(plan, name, *extra) per actor, with codec=codec if one is given, and driver_class."""
        self._start_actors(actor_class, extra, {"codec": codec} if codec else {})
        self.driver = driver_class(self.plan, DRIVER, *extra)
        self.call("learn_digests", dict(ChainMap(*self.call("payload_digests").values())))

    def call(self, method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of every worker, of all actors at once; return the results by worker name."""
        # The driver's own call comes last, so that the actors have been idle for a while at the next iteration.
        results = self.call_actors(method, *arguments)
        return results | {DRIVER: getattr(self.driver, method)(*arguments)}

    def call_actors(self, method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of every actor at once, and not of the driver; return the results by worker name."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the actors, so that none of them busy-waits while something else is timed."""
        raise NotImplementedError

    def node_indices(self) -> dict[str, int]:
        """Return the node of each worker as an index; the driver's node is 0."""
        return dict.fromkeys(self.plan.worker_names, 0)

    def store_counters(self) -> tuple[int, int]:
        """Return the bytes that all object stores have taken in, and spilled to disk, since they started."""
        return 0, 0

    def explain(self, error: Exception) -> str | None:
        """Return in one line which actor caused an error; None if the error is a defect of the suite itself."""
        raise NotImplementedError

    def _start_actors(self, actor_class: type, extra: tuple, named: dict[str, Any]) -> None:
        raise NotImplementedError
