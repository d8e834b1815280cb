"""Write a profile for a terminal: first the answer, then the largest messages, then what to change."""

import os
import textwrap
from pathlib import Path

from raymeter.advice import MAX_MESSAGES, Profile
from raymeter.findings import Advice, Prediction
from raymeter.profile.groups import Group
from raymeter.units import format_bytes, format_milliseconds, significant

MIN_WIDTH = 60
MAX_WIDTH = 120
MIN_LISTED_SHARE = 0.01  # of a step; smaller messages are not listed
PAGE = "docs/profile.md"


def render(profile: Profile, width: int = 80) -> str:
    """Return the text of a profile, whose lines are at most `width` characters long, but for a longer path."""
    width = max(MIN_WIDTH, min(width, MAX_WIDTH))
    lines = [describe_steps(profile), answer(profile)]
    if not profile.is_no_problem:
        lines += ["", *list_messages(profile, width), "", "What to change:"]
        for number, advice in enumerate(profile.advice, 1):
            lines += describe_advice(number, advice)
    lines += ["", describe_recorder(profile)]
    return "\n".join(wrap(line, width) for line in lines) + "\n"


def wrap(line: str, width: int) -> str:
    """Return a line broken between words; continued lines are indented as the first one."""
    indent = " " * (len(line) - len(line.lstrip()))
    if len(line) <= width:
        return line
    parts = textwrap.wrap(
        line.strip(),
        width - len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(indent + part for part in parts)


def describe_steps(profile: Profile) -> str:
    steps = profile.steps
    seconds = format_milliseconds(steps.seconds)
    if steps.is_whole_program:
        return (
            f"No loop calls Ray three times or more, so the whole program is one step of {seconds}."
        )
    name = steps.name.replace(steps.line, relative(steps.line))
    text = f"{steps.count} steps of {seconds} (median); a step is {name}."
    if steps.skipped:
        text += (
            f" The first {steps.skipped} had the start of the workers in them, and are left out."
        )
    return text


def answer(profile: Profile) -> str:
    """Return the sentence that a user needs, if he reads only one."""
    step = profile.steps.seconds
    share = 100 * profile.moving_seconds / step
    moving = f"Moving data takes {format_milliseconds(profile.moving_seconds)} of work per step of "
    moving += f"{format_milliseconds(step)} ({significant(share, 2)} %)"
    if profile.is_no_problem:
        saved = f"at most {format_milliseconds(profile.saved_seconds)} of it can be saved by what raymeter knows"
        return f"{moving}, and {saved}: not your problem."
    first = profile.advice[0]
    saved = format_milliseconds(first.prediction.saved_seconds)
    cause = f"The largest cause: {first.finding.cause}, {relative(first.finding.line)}: {saved} of "
    return f"{moving}. {cause}{format_milliseconds(step)}."


def list_messages(profile: Profile, width: int) -> list[str]:
    """Return a table of the messages that took most work."""
    step = profile.steps
    rows = []
    for group in profile.groups[:MAX_MESSAGES]:
        seconds = group.seconds() / step.count
        if seconds < MIN_LISTED_SHARE * step.seconds:
            continue
        count = significant(len(group.messages) / step.count, 2)
        rows.append(
            [
                f"{1e3 * seconds:,.1f}",
                count,
                format_bytes(group.bytes),
                group.how,
                describe_route(group),
            ]
        )
    if not rows:
        return ["No large message took 1 % of a step."]
    header = ["ms/step", "per step", "size", "sent as", "message"]
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(4)]
    lines = []
    for row in [header, *rows]:
        cells = [cell.rjust(size) for cell, size in zip(row, widths, strict=False)]
        lines.append(shorten(f"{'  '.join(cells)}  {row[4]}", width))
    return lines


def describe_route(group: Group) -> str:
    readers = ", ".join(group.readers) or "nobody"
    return f"{group.sender} -> {readers}  {relative(group.line)}"


def shorten(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 3] + "..."


def describe_advice(number: int, advice: Advice) -> list[str]:
    """Return the lines of a piece of advice: its gain, where, what happens, and what to do."""
    finding = advice.finding
    lines = [
        f"{number}. saves {format_milliseconds(advice.prediction.saved_seconds)} per step "
        f"({kind_of(advice.prediction)}): {format_milliseconds(advice.prediction.before_seconds)} -> "
        f"{format_milliseconds(advice.prediction.after_seconds)}",
        f"   {relative(finding.line)}  {finding.title}.",
        f"   {finding.change}",
    ]
    others = [relative(line) for line in finding.other_lines if line and line != finding.line]
    if others:
        lines.append(f"   Also: {', '.join(others[:3])}.")
    if finding.price:
        lines.append(f"   Price: {finding.price}")
    lines.append(f"   Before and after: {PAGE}#{finding.section}")
    return lines


def kind_of(prediction: Prediction) -> str:
    if prediction.is_measured:
        return "measured"
    return "upper limit" if prediction.is_upper_limit else "predicted"


def relative(line: str) -> str:
    """Return "file:line" from the current folder, if the file lies in it or near it."""
    file, _, number = line.rpartition(":")
    if not file:
        return line
    short = os.path.relpath(file)
    if short.startswith(os.pardir + os.sep + os.pardir):
        short = str(Path(*Path(file).parts[-3:]))
    return f"{short}:{number}"


def describe_recorder(profile: Profile) -> str:
    share = significant(100 * profile.recorder_share, 2)
    periods = [
        process.recorder.period
        for process in profile.program.recording.processes
        if process.recorder
    ]
    text = f"Recording took {share} % of the driver's time."
    if max(periods, default=1) > 1:
        text += f" Of short calls, one in {max(periods)} was recorded, and all were counted."
    return text
