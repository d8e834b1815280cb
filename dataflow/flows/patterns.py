"""Build the flows that are patterns of communication, with the same number of bytes on every edge."""

from collections import defaultdict
from collections.abc import Callable, Sequence
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


# Actors that send when the driver begins, by the number of all: the sender, and the readers of its message.
SENDS: dict[str, Callable[[int], list[tuple[int, Sequence[int]]]]] = {
    "ring": lambda count: [(sender, [sender % count + 1]) for sender in range(1, count + 1)],
    "all-to-all": lambda count: [(sender, [reader]) for sender, reader in permutations(range(1, count + 1), 2)],
    "fan-in": lambda count: [(sender, [count]) for sender in range(1, count)],
    "fan-out": lambda count: [(1, range(2, count + 1))],
}


def pattern(name: str) -> Callable[[int, int], Flow]:
    """Return the function that builds the flow of a name in SENDS."""

    def build(message_bytes: int = 1024, actors: int = 4) -> Flow:
        if actors < 2:
            raise ValueError(f"--actors {actors}: {name} has at least 2")
        reads, tasks = defaultdict[int, list[str]](list), list[Task]()
        for sender, readers in SENDS[name](actors):
            tasks.append(Task(f"send-{len(tasks) + 1}", (DRIVER,), flat_message(message_bytes), f"actor-{sender}"))
            for reader in readers:
                reads[reader].append(tasks[-1].name)
        tasks += [Task(f"receive-{n}", tuple(reads[n]), ACKNOWLEDGEMENT, f"actor-{n}") for n in sorted(reads)]
        returns = tuple(f"receive-{number}" for number in sorted(reads))
        return Flow(f"{name}-{actors}", f"{name} of {actors}", ACKNOWLEDGEMENT, tuple(tasks), returns)

    return build
