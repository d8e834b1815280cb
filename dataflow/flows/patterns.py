"""Build the flows that are patterns of communication, with the same number of bytes on every edge."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise, permutations

from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, flat_message


def round_trip(message_bytes: int = 1024) -> Flow:
    return chain(message_bytes, 1)


def chain(message_bytes: int = 1024, actors: int = 4) -> Flow:
    """Driver -> actor-1 -> actor-2 -> ... -> driver, the same number of bytes on every edge."""
    names = [DRIVER, *(f"actor-{index}" for index in range(1, actors + 1))]
    links = tuple(Task(name, (before,), flat_message(message_bytes)) for before, name in pairwise(names))
    name, title = (f"chain-{actors}", f"chain of {actors}") if actors > 1 else ("round-trip", "round trip")
    return Flow(name, title, flat_message(message_bytes), links, returns=(names[-1],))


def scatter_gather(message_bytes: int = 1024, actors: int = 4) -> Flow:
    """The driver sends one message to every actor at once and waits for all answers."""
    names = tuple(f"actor-{index}" for index in range(1, actors + 1))
    message = flat_message(message_bytes)
    answers = tuple(Task(name, (DRIVER,), message) for name in names)
    return Flow(f"scatter-gather-{actors}", f"scatter-gather of {actors}", message, answers, returns=names)


def ring(message_bytes: int = 1024, actors: int = 4) -> Flow:
    """Each actor sends to the next one, all at the same time."""
    return at_once("ring", message_bytes, [(sender, [sender % actors + 1]) for sender in range(1, actors + 1)])


def all_to_all(message_bytes: int = 1024, actors: int = 4) -> Flow:
    """Each actor sends another message to each other one."""
    pairs = permutations(range(1, actors + 1), 2)
    return at_once("all-to-all", message_bytes, [(sender, [reader]) for sender, reader in pairs])


def fan_in(message_bytes: int = 1024, actors: int = 4) -> Flow:
    """All actors but the last one send a message to the last one."""
    return at_once("fan-in", message_bytes, [(sender, [actors]) for sender in range(1, actors)])


def fan_out(message_bytes: int = 1024, actors: int = 4) -> Flow:
    """The first actor sends one message to all others."""
    return at_once("fan-out", message_bytes, [(1, range(2, actors + 1))])


def at_once(name: str, message_bytes: int, sends: Sequence[tuple[int, Sequence[int]]]) -> Flow:
    """Return a flow of actors that send when the driver begins: number of the sender, and those of its readers."""
    reads: dict[int, list[str]] = defaultdict(list)
    tasks: list[Task] = []
    for sender, readers in sends:
        tasks.append(Task(f"send-{len(tasks) + 1}", (DRIVER,), flat_message(message_bytes), f"actor-{sender}"))
        for reader in readers:
            reads[reader].append(tasks[-1].name)
    tasks += [Task(f"receive-{n}", tuple(reads[n]), ACKNOWLEDGEMENT, f"actor-{n}") for n in sorted(reads)]
    returns = tuple(f"receive-{number}" for number in sorted(reads))
    actors = len({task.actor for task in tasks})
    if actors < 2:
        raise ValueError(f"--actors 1: {name} has at least 2")
    return Flow(f"{name}-{actors}", f"{name} of {actors}", ACKNOWLEDGEMENT, tuple(tasks), returns)
