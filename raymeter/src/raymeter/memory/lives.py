# SPDX-License-Identifier: Apache-2.0
"""How long messages are needed in the object store, as far as a profile shows it."""

from collections.abc import Iterable
from dataclasses import dataclass

from raymeter.profile.events import Received
from raymeter.profile.program import Message, Program


@dataclass(frozen=True)
class Life:
    """A message, and the time during which its bytes were needed. `line` is where the user's code asks for it."""

    message: Message
    line: str
    start: float
    end: float
    period: float = 0.0  # until the next message of its line that was written; 0 for the last one

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def at_once(self) -> float:
        """Return how many messages were needed at the same time: of those that were left out after it, some were.

        They were sent one after the other, so those that are needed for a short time do not meet.
        """
        weight = self.message.sent.weight
        if not self.period:
            return 1.0
        overlapping = weight * self.seconds / self.period
        return max(1.0, min(weight, overlapping))

    @property
    def bytes(self) -> int:
        """Return the bytes of all that were needed at the same time."""
        return round(self.at_once * self.message.sent.bytes)


@dataclass(frozen=True)
class Peak:
    """The time at which most bytes were needed, and the messages that were."""

    time: float
    lives: list[Life]

    @property
    def bytes(self) -> int:
        return sum(life.bytes for life in self.lives)

    @property
    def count(self) -> float:
        """Return how many messages were needed then, with those that were left out."""
        return sum(life.at_once for life in self.lives)


def find_lives(program: Program) -> list[Life]:
    """Return the life of each message."""
    lives = []
    next_starts: dict[tuple[str, str], float] = {}  # by process and line
    for message in reversed(program.messages):
        line = line_of(program, message)
        start = message.sent.start
        end = last_use(program, message)
        place = message.sent.process, line
        next_start = next_starts.get(place, start)
        lives.append(Life(message, line, start, end, next_start - start))
        next_starts[place] = start
    lives.reverse()
    return lives


def line_of(program: Program, message: Message) -> str:
    """Return the line that sends a message; for a result, the line that submits its task."""
    if message.call is not None:
        return message.call.line
    submission = program.submissions.get(message.sent.by)
    return submission.line if submission is not None else message.sent.line


def last_use(program: Program, message: Message) -> float:
    """Return when the last reader has done its work. A message that nobody has read ends when it is sent."""
    ends = [message.sent.end]
    ends += [end_of_reader(program, received) for received in message.received]
    if message.how == "argument" and message.call is not None:
        ends.append(end_of_task(program, message.call.task, message.sent.end))
    return max(ends)


def end_of_reader(program: Program, received: Received) -> float:
    """Return the end of the task that has read a message; a driver may drop it at once."""
    task = program.tasks.get(received.by)
    if task is None or task.type == "DRIVER_TASK":
        return received.end
    return end_of_task(program, received.by, received.end)


def end_of_task(program: Program, task_id: str, default: float) -> float:
    task = program.tasks.get(task_id)
    if task is None:
        return default
    return task.finished or task.failed or default


def find_peak(lives: Iterable[Life]) -> Peak:
    """Return the time with most bytes, the first of several; an empty peak without messages."""
    lives = list(lives)
    changes = [(life.start, life.bytes) for life in lives]
    changes += [(life.end, -life.bytes) for life in lives]
    changes.sort()  # at one time, what ends comes before what starts
    now = most = 0
    time_of_most = 0.0
    for moment, size in changes:
        now += size
        if now > most:
            most = now
            time_of_most = moment
    return Peak(time_of_most, [life for life in lives if life.start <= time_of_most < life.end])


def by_line(lives: Iterable[Life]) -> dict[str, list[Life]]:
    """Return the messages of each line."""
    lines: dict[str, list[Life]] = {}
    for life in lives:
        lines.setdefault(life.line, []).append(life)
    return lines
