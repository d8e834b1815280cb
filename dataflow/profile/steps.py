"""Find the steps of a profiled program, by the calls of one method, and how long one takes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean, median

from dataflow.errors import UsageError
from dataflow.profile.events import Event

MIN_STEPS = 3  # of a method that is taken as the end of a step
BURST_SHARE = (
    0.5  # of the mean time between calls; if the median is below it, several calls come at once
)


@dataclass(frozen=True)
class Steps:
    """The steps of a program, as calls of one method count them."""

    place: str  # "" if the whole program is one step
    count: int
    seconds: float  # of the median step


@dataclass
class Calls:
    """The calls of a method or task that have sent, or that have received, a large message."""

    place: str
    first: float  # when the first one began
    last: float
    starts: dict[str, dict[str, float]] = field(default_factory=dict)  # by process and task

    def add(self, process: str, task: str, start: float) -> None:
        """Add a message. Events come in the order of their starts."""
        self.starts.setdefault(process, {}).setdefault(task, start)
        self.last = start

    @property
    def is_task(self) -> bool:
        return "." not in self.place

    @property
    def span(self) -> float:
        return self.last - self.first

    @property
    def count(self) -> int:
        """Return the calls of one actor of a class, or of a task."""
        total = sum(map(len, self.starts.values()))
        return total // len(self.starts)

    @property
    def step_seconds(self) -> float:
        """Return the time of the median step of the actor with the most calls."""
        busiest = max(self.starts.values(), key=len)
        return measure_step(sorted(busiest.values()))


def find_steps(events: Sequence[Event], name: str | None) -> Steps:
    """Return the steps that a method ends: this one, or the rarest in half of the program.

    Raise UsageError if the name has no large message.
    """
    found = find_calls(events)
    chosen = choose_calls(found, name)
    whole = measure_seconds(events)
    if not chosen:
        return Steps("", 1, whole)
    rarest = min(chosen, key=lambda calls: (calls.count, calls.span))
    seconds = rarest.step_seconds or whole
    if rarest.is_task and rarest.span < whole / 2:  # they run at the same time
        seconds = whole / rarest.count
    return Steps(rarest.place, rarest.count, seconds)


def choose_calls(found: Sequence[Calls], name: str | None) -> list[Calls]:
    """Return the calls of this name, or else those that are repeated over half of the program."""
    if name:
        chosen = [calls for calls in found if calls.place == name]
        if not chosen:
            known = ", ".join(sorted({calls.place for calls in found}))
            raise UsageError(f"--step {name}: it has no large message: give {known}")
        return chosen
    longest = max((calls.span for calls in found), default=0.0)
    repeated = [calls for calls in found if calls.count >= MIN_STEPS]
    return [calls for calls in repeated if calls.span > longest / 2]


def measure_seconds(events: Sequence[Event]) -> float:
    """Return the time from the first message to the end of the last one."""
    first = events[0]
    last = events[-1]
    return last.start + last.seconds - first.start


def find_calls(events: Sequence[Event]) -> list[Calls]:
    """Return the calls of each method and task, those with results apart from those with arguments."""
    found: dict[tuple[str, str], Calls] = {}
    for event in events:
        is_result = event.how in ("result", "RDT")
        is_of_call = is_result or event.side == "received"
        if event.is_driver or not is_of_call:
            continue
        is_actor = "." in event.place
        process = event.process if is_actor else ""  # tasks run in any process
        task = event.task or event.id[1:]
        new = Calls(event.place, event.start, event.start)
        calls = found.setdefault((event.place, event.side), new)
        calls.add(process, task, event.start)
    return list(found.values())


def measure_step(starts: Sequence[float]) -> float:
    """Return the seconds of the median step, because the first one contains the start of the program; 0 for one call.

    If several calls come at once, most times between two calls are short. Then it is the mean of the second half.
    """
    if len(starts) < 2:
        return 0.0
    gaps = [later - start for start, later in pairwise(starts)]
    usual = median(gaps)
    second_half = gaps[len(gaps) // 2 :]
    average = mean(second_half)
    is_burst = usual < BURST_SHARE * average
    return average if is_burst else usual
