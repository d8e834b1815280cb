"""The running participants of a run, and a transport that is ready between them."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from common.flow.flow import DRIVER, Flow
from common.payload.participant import Participant
from common.plan.plan import Plan


@dataclass(frozen=True)
class Wiring:
    """A transport that is ready.

    submit: hands a trip's query over and does not wait; what it gives, `collect` takes.
    collect: waits until this trip's results are held: what returns to the driver, in the flow's order.
    check: asked after each episode, outside the clock, for wrong ones among what the transport's own readers got.
    spans: with --trace, of processes that are no participants, by what a picture calls them.
    facts: asked when the trips are over: fields of the record that only the transport knows.
    path: for each edge ("source -> reader"), how its bytes travel, read from the running system where that can be.
    setup_seconds: what it cost once, before the first trip: groups, registration of memory.
    """

    submit: Callable[[Any], Any]
    collect: Callable[[Any], Sequence[Any]]
    path: dict[str, str]
    setup_seconds: dict[str, float] = field(default_factory=dict)
    check: Callable[[], dict[str, int]] = dict
    facts: Callable[[], dict[str, Any]] = dict
    spans: Callable[[], dict[str, Any]] = dict


class Crew:
    """What a transport function is given: the plan, and participants that it starts with classes of its choice.

    actors: by name, handles of Ray actors, processes, or participants in this process.
    driver: the driver's ends.
    episode: the number of its first message; it changes as an episode begins.
    closing: what a transport enters here is left when the trips are over, while the actors are still there.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan, self.closing = plan, ExitStack()
        self.actors: dict[str, Any] = {}
        self.driver: Any = None
        self.episode = 0

    @property
    def flow(self) -> Flow:
        """The flow whose messages travel."""
        return self.plan.wire

    def start(self, model_class: type, driver_class: type = Participant, *extra: Any) -> None:
        """Start every actor with model_class(plan, name, *extra), and the driver's end with driver_class."""
        self.launch(model_class, *extra)
        self.driver = driver_class(self.plan, DRIVER, *extra)
        digests = {task: found for own in self.ask("own_digests").values() for task, found in own.items()}
        self.ask("learn", digests)

    def launch(self, model_class: type, *extra: Any) -> None:
        raise NotImplementedError

    def ask(self, method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of every participant, of all actors at once; the answers by name.

        The driver's own turn comes last: what follows, a trip perhaps, begins when the actors have been quiet a while.
        """
        answers = self.ask_actors(method, *arguments)
        return answers | {DRIVER: getattr(self.driver, method)(*arguments)}

    def ask_actors(self, method: str, *arguments: Any) -> dict[str, Any]:
        """Ask every actor at once."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the actors, so that nobody spins while something else is timed."""
        raise NotImplementedError

    def placement(self) -> dict[str, int]:
        """On which node each participant runs: its index, the driver's first (the ids mean nothing)."""
        return dict.fromkeys(self.plan.participants, 0)

    def store_counters(self) -> tuple[int, int]:
        """Bytes that the object stores of all nodes have taken in, and spilled to disk, since they started."""
        return 0, 0

    def explain(self, error: Exception) -> str | None:
        """Who of the actors is behind this error of a trip, in one line; None: nobody, it is the suite's own."""
        raise NotImplementedError
