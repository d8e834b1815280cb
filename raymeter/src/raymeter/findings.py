# SPDX-License-Identifier: Apache-2.0
"""What raymeter has found in a program: a cause, where it is, what to change, and the time that this removes."""

import re
from dataclasses import dataclass, field


def name_section(cause: str) -> str:
    """Return the name of a cause as one word, which is also how GitHub links to its heading."""
    words = re.sub(r"[^\w -]", "", cause.lower())
    return words.replace(" ", "-")


@dataclass(frozen=True)
class Saving:
    """Seconds that a change removes from one event. The simulation decides what a step gains from it.

    The event is the one of `process` and `thread` that runs at the time `start`. `part` is what gets shorter:
    "serialise", "write" (the copy into the store), "deserialise", "store" (of a task's result), "call" (the rest of
    a call of Ray), "execute" (inside of the user's function), "restore" (of an argument from disk), "dispatch" (of a
    task that was waiting for its worker), "start" (of a worker or an actor for a task), or "wait": then the wait ends
    at once, because the value is not needed there any more. "work" is all that the thread does from this time on, for
    calls of which only some were recorded, "answer" is the same for waiting for their results, and "send" is "work"
    without reading, for messages that were put.
    """

    process: str
    thread: int
    start: float
    seconds: float
    part: str
    is_spread: bool = False  # over later events, too, most of which were not written


@dataclass(frozen=True)
class Reorder:
    """A wait (process and number of a Call) that would be for another object than in the recording."""

    process: str
    number: int
    object: str


@dataclass(frozen=True)
class Overlap:
    """A call of an actor that begins while the one before it still runs.

    It begins `seconds` after the start of the earlier one, in which that one has the actor for itself, and not before
    the tasks of `after` have ended.
    """

    task: str
    earlier: str
    seconds: float
    after: tuple[str, ...] = ()


@dataclass
class Finding:
    """One cause of lost time or memory, and the change that removes it."""

    cause: str  # one of the names in raymeter.causes
    title: str  # what happens, with its numbers: "The same 96 MiB are serialised 4 times per step"
    line: str  # "file:line" of the user's code
    change: str  # what to do, in one or two sentences
    seconds: float  # of work per step that is lost to it, summed over processes
    savings: list[Saving] = field(default_factory=list)
    reorders: list[Reorder] = field(default_factory=list)
    overlaps: list[Overlap] = field(default_factory=list)
    fewer_tasks: dict[str, float] = field(
        default_factory=dict
    )  # task -> share of its start that is saved
    messages: list[tuple[str, int]] = field(default_factory=list)  # process and number of Sent
    settings: dict[str, str] = field(default_factory=dict)  # variables, if the change needs no code
    price: str = ""  # what the change costs, such as memory
    other_lines: list[str] = field(default_factory=list)
    is_limit: bool = False  # the savings are the most that the change can save
    is_least: bool = False  # the change also removes work that was not measured
    # What a step gains at most if its thread waits for a thread of a library, which no call of Ray shows.
    unseen_seconds: float = 0.0

    @property
    def section(self) -> str:
        """Return the name with which `raymeter explain` shows the change before and after."""
        return name_section(self.cause)


@dataclass(frozen=True)
class Prediction:
    """What a change does to the median step. `is_measured` after `raymeter try`; else it was simulated."""

    before_seconds: float
    after_seconds: float
    is_measured: bool = False
    is_upper_limit: bool = (
        False  # the simulation of the recorded step does not fit, so the saving is at most this
    )
    is_least: bool = False  # the change also removes work that is not in the simulation

    @property
    def saved_seconds(self) -> float:
        return self.before_seconds - self.after_seconds


@dataclass
class Advice:
    """A finding with what it would gain, on top of the advice before it."""

    finding: Finding
    prediction: Prediction
