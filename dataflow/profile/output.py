"""Print a profile: what its messages cost, why, and what to change."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dataflow.profile.messages import Message, Profile
from dataflow.profile.terminal import Column, format_table, shorten_path, wrap
from dataflow.units import format_bytes

MAX_ROWS = 12  # messages
MAX_LINES = 4  # of code per advice
MIN_SHARE = 0.05  # of a step, from which on moving data can be a problem
MIN_COPIED_BYTES = 2**20  # per step, from which on copies that Ray makes itself are named
INDENT = 3  # of the text of an advice
ADVICE = tomllib.loads(Path(__file__).with_name("advice.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Advice:
    """A change for all messages with one cause."""

    cause: str  # the beginning of its name, a key of ADVICE
    seconds: float  # of work per step that it removes at most
    messages: list[Message]

    def format(self, step_seconds: float, width: int) -> str:
        """Return its lines. A change cannot remove more than the step, although processes work at the same time."""
        rule = ADVICE[self.cause]
        lines = [self.find_line(message) for message in self.messages]
        different = list(dict.fromkeys(lines))
        where = ", ".join(different[:MAX_LINES])
        removed = format_ms(min(self.seconds, step_seconds))
        of_messages = f"{len(self.messages)} of the messages, for example {self.messages[0].route}"
        sentences = [
            f"{self.cause}: {of_messages}",
            rule["change"],
            f"Where: {where}",
            f"Work that it removes: at most {removed} ms per step. Example: {rule['example']}",
        ]
        space = width - INDENT
        margin = "\n" + " " * INDENT
        return margin.join(wrap(text, space, INDENT) for text in sentences)

    def find_line(self, message: Message) -> str:
        """Return the line to change, or the method if it is not known."""
        line = message.line
        if self.cause == "through the driver":
            line = message.get_line or line
        return shorten_path(line) or message.place


def format_ms(seconds: float) -> str:
    """Return the milliseconds with three digits, without an exponent."""
    milliseconds = seconds * 1e3
    if milliseconds >= 100:
        return f"{milliseconds:,.0f}"
    return f"{milliseconds:.3g}"


def print_profile(profile: Profile, width: int) -> None:
    """Print at most `width` characters per line, except for names of files."""
    step_seconds = max(profile.step_seconds, 1e-9)
    moving = sum(message.seconds_per_step for message in profile.messages)
    share = moving / step_seconds
    print(wrap(describe_steps(profile), width))
    if share < MIN_SHARE:
        print(
            f"Moving data is {format_ms(moving)} of {format_ms(step_seconds)} ms per step "
            f"({share * 100:.2g} %): not your problem."
        )
        print_copies(profile, width)
        print_counts(profile, width)
        return
    for line in describe_work(profile, moving):
        print(wrap(line, width))
    print_copies(profile, width)
    print()
    print(format_messages(profile.messages[:MAX_ROWS], width))
    print_counts(profile, width)
    print_advice(profile, width)


def describe_steps(profile: Profile) -> str:
    """Return what a step is, and how long it takes."""
    seconds = f"{profile.step_seconds:.3g} s"
    if not profile.step:
        return (
            f"The whole program is one step of {seconds}, from its first message to its last one."
        )
    return f"{profile.steps} steps of {seconds}, counted by the messages of {profile.step}."


def describe_work(profile: Profile, moving: float) -> list[str]:
    """Return how much work it is to move the data, and which processes do it."""
    shares = {}
    for part in ("serialise", "deserialise", "write"):
        seconds = sum(message.seconds[part] for message in profile.messages)
        shares[part] = f"{seconds / max(moving, 1e-9):.0%}"
    total = max(profile.seconds, 1e-9)
    busy = []
    for name in sorted(profile.places, key=lambda name: (name != "driver", name)):
        busy.append(f"{name} {profile.places[name] / total:.1%}")
    return [
        f"Moving data is {format_ms(moving)} ms of work per step, summed over all processes: "
        f"serialisation {shares['serialise']}, deserialisation {shares['deserialise']}, "
        f"the rest of ray.put and .remote() {shares['write']}.",
        f"Share of the whole time that the busiest process of each class spends on it: "
        f"{', '.join(busy)}.",
    ]


def print_copies(profile: Profile, width: int) -> None:
    """Print how much Ray copies into the store by itself, because this time cannot be seen from Python."""
    results = [message for message in profile.messages if message.how == "result"]
    total = sum(message.stored_bytes * message.count for message in results)
    per_step = total / profile.steps
    if per_step >= MIN_COPIED_BYTES:
        size = format_bytes(per_step)
        print(
            wrap(
                f"Not in these times: Ray's own copy of {size} of results per step into its store.",
                width,
            )
        )


def print_counts(profile: Profile, width: int) -> None:
    """Print how many messages there are."""
    count = len(profile.messages)
    text = f"profile.json: all {count} messages. {profile.small_messages} smaller ones were sent."
    print(wrap(text, width))


def format_messages(messages: Sequence[Message], width: int) -> str:
    """Return the messages as a table."""
    times = [format_ms(message.seconds_per_step) for message in messages]
    sizes = [format_bytes(message.stored_bytes) for message in messages]
    causes = ["\n".join(message.causes) or "-" for message in messages]
    columns = [
        Column("ms/step", times),
        Column("message", [message.route for message in messages], is_text=True),
        Column("how", [message.how for message in messages], is_text=True, rank=2),
        Column("count", [str(message.count) for message in messages], rank=1),
        Column("stored", sizes),
        Column("causes", causes, is_text=True),
    ]
    return format_table(columns, width)


def print_advice(profile: Profile, width: int) -> None:
    """Print what to change."""
    advice = advise(profile)
    if not advice:
        print("There is no advice for it.")
        return
    print(f"What to change, per step of {profile.step_seconds:.3g} s:")
    for number, change in enumerate(advice, 1):
        print(f"{number}. {change.format(profile.step_seconds, width)}")


def advise(profile: Profile) -> list[Advice]:
    """Return an advice for each cause that has one; those that can remove most work are first."""
    advice = []
    for cause in ADVICE:
        messages = []
        removed = 0.0
        for message in profile.messages:
            names = [name for name in message.causes if name.startswith(cause)]
            removed += sum(message.causes[name] for name in names)
            if names:
                messages.append(message)
        is_done = cause == "page faults" and profile.retained
        if messages and not is_done:
            advice.append(Advice(cause, removed, messages))
    return sorted(advice, key=lambda change: -change.seconds)
