# SPDX-License-Identifier: Apache-2.0
"""Write a profile for a terminal: first the answer, then the largest messages, then what to change."""

import textwrap
from dataclasses import dataclass

from raymeter.advice import MAX_MESSAGES, NO_PROBLEM_SHARE, Profile
from raymeter.findings import Advice, Finding, Prediction
from raymeter.profile.events import RecorderCost
from raymeter.profile.lost import count_cut_workers, find_errors, say_cut, say_errors
from raymeter.profile.steps import Steps
from raymeter.profile.unrecorded import find_unrecorded, say_unrecorded
from raymeter.report.messages import list_messages
from raymeter.report.unmeasured import say_why
from raymeter.report.waiting import say_alone, say_waiting
from raymeter.report.words import (
    kind_of,
    name_route,
    name_step,
    percent,
    relative,
    wrap_words,
)
from raymeter.simulate.predict import MAX_ADVICE
from raymeter.simulate.without_data import without_data
from raymeter.units import format_bytes, format_milliseconds

MIN_WIDTH = 60
MAX_WIDTH = 120
MAX_LINES = 40
INDENT = 3  # of the lines below the number of a piece of advice


@dataclass(frozen=True)
class Layout:
    """How much is shown: the first one whose text has at most 40 lines is used."""

    messages: int
    advice: int
    other_lines: bool
    paragraph_lines: int  # of a title or a change; a price is never cut


LAYOUTS = (
    Layout(MAX_MESSAGES, MAX_ADVICE, True, 6),
    Layout(MAX_MESSAGES, MAX_ADVICE, False, 4),
    Layout(MAX_MESSAGES, MAX_ADVICE, False, 2),
    Layout(3, MAX_ADVICE, False, 2),
    Layout(2, 2, False, 2),
    Layout(1, 1, False, 2),
)


def render(profile: Profile, width: int = 80) -> str:
    """Return the text of a profile, with the first of LAYOUTS that has at most MAX_LINES lines, or else the last one.

    `width` counts between MIN_WIDTH and MAX_WIDTH. A line is longer only if one path is.
    """
    width = max(MIN_WIDTH, min(width, MAX_WIDTH))
    moving = without_data(profile.program, profile.steps)
    if is_no_problem(profile, moving):
        lines = [say_no_problem(profile, moving), *describe_recording(profile)]
        return join_lines(wrap_all(lines, width))
    lines = []
    for layout in LAYOUTS:
        lines = wrap_all(say_answer(profile, moving), width)
        lines += ["", *list_messages(profile, layout.messages, width)]
        lines += list_advice(profile, layout, width)
        lines += ["", *wrap_all(describe_recording(profile), width)]
        if len(lines) <= MAX_LINES:
            break
    return join_lines(lines)


def is_no_problem(profile: Profile, moving: Prediction) -> bool:
    """Return whether neither moving data nor what can be saved is 5 % of a step."""
    return profile.is_no_problem and share_of(moving) < NO_PROBLEM_SHARE


def share_of(moving: Prediction) -> float:
    """Return the share of a step that would not be there if messages took no time."""
    return moving.saved_seconds / max(1e-9, moving.before_seconds)


def say_share(moving: Prediction) -> str:
    """Return how much of a step data is."""
    limit = "up to " if moving.is_upper_limit else ""
    return f"Moving data is {limit}{percent(share_of(moving))} of a step"


def say_no_problem(profile: Profile, moving: Prediction) -> str:
    """Return that data is no problem; if not all of the program was recorded, that this is not known."""
    steps = profile.steps
    recording = profile.program.recording
    if recording.was_killed and steps.is_whole_program:
        return f"No step of this program is known: {say_cut(recording)}."
    step = f"{format_milliseconds(steps.seconds)}, {name_step(steps)}"
    waiting = say_waiting(profile.program, steps)
    share = f"{say_share(moving)} ({step}){waiting}"
    if recording.was_killed:
        return f"{share}. This is no all-clear: {say_cut(recording)}."
    if recording.damaged:
        return f"{share}. This is no all-clear: files of the profile are damaged."
    if find_errors(recording):
        return f"{share}. This is no all-clear: recording ended by an error."
    if find_unrecorded(profile.program):
        return f"{share}. This is no all-clear: not all processes were recorded."
    alone = say_alone(profile)
    return f"{share}: data is not your problem. {alone}" if alone else f"{share}: not your problem."


def say_answer(profile: Profile, moving: Prediction) -> list[str]:
    """Return what a user needs who reads only one line, and what a step is."""
    text = f"{say_share(moving)}. "
    if share_of(moving) < NO_PROBLEM_SHARE:  # something else costs more
        text = text.replace("Moving data is", "Moving data itself is", 1)
    if profile.is_no_problem:
        text += say_unmeasured(profile)
    else:
        text += say_cause(profile.advice[0], profile.steps)
    return [text, describe_steps(profile.steps)]


def say_largest(profile: Profile) -> str:
    """Return the message that takes most work, where it is sent, and how much it takes; "" without messages."""
    if not profile.groups:
        return ""
    group = profile.groups[0]
    steps = profile.steps
    taken = format_milliseconds(group.seconds() / steps.count)
    step = format_milliseconds(steps.seconds).removesuffix(" ms")
    place = f", line {relative(group.line)}" if group.line else ""
    return (
        f"Most of it: {format_bytes(group.bytes)}, {name_route(group)}{place}: {taken} of {step}. "
    )


def say_unmeasured(profile: Profile) -> str:
    """Return the largest cause for which no change was measured, without a number; or that none is known."""
    least = NO_PROBLEM_SHARE * profile.steps.seconds
    unmeasured = [finding for finding in profile.findings if not finding.savings]
    large = [finding for finding in unmeasured if finding.seconds >= least]
    if not large:
        return (
            f"{say_largest(profile)}raymeter knows no change that would make this step 5 % shorter."
        )
    finding = max(large, key=lambda finding: finding.seconds)
    text = f"The largest cause: {name_cause(finding)}: {finding.change}"
    return f"{text} {say_why(profile, finding)}"


def say_cause(advice: Advice, steps: Steps) -> str:
    """Return the cause that takes most of a step, where it is, and how much it takes."""
    finding = advice.finding
    saved = format_milliseconds(advice.prediction.saved_seconds)
    step = format_milliseconds(steps.seconds).removesuffix(" ms")
    limit = "up to " if advice.prediction.is_upper_limit else ""
    if advice.prediction.is_least:
        limit = "at least "
    return f"The largest cause: {name_cause(finding)}: {limit}{saved} of {step}."


def name_cause(finding: Finding) -> str:
    """Return a cause and its line, if that is known."""
    return f"{finding.cause}, line {relative(finding.line)}" if finding.line else finding.cause


def describe_steps(steps: Steps) -> str:
    """Return what a step is, how long it takes, and which ones do not count."""
    seconds = format_milliseconds(steps.seconds)
    if steps.is_whole_program:
        return f"No loop of steps was found, so the whole program is one step: {seconds}."
    text = f"A step is {name_step(steps)}: {seconds}, the median of {steps.count}"
    if steps.skipped == 1:
        text += " (without the first one, in which workers start)"
    elif steps.skipped:
        text += f" (without the first {steps.skipped}, in which workers start)"
    return f"{text}."


def list_advice(profile: Profile, layout: Layout, width: int) -> list[str]:
    """Return what to change, with the best first; nothing if no change saves 5 % of a step."""
    if profile.is_no_problem:
        return []
    lines = [""]
    for number, advice in enumerate(profile.advice[: layout.advice], 1):
        lines += describe_advice(number, advice, layout, width)
    return lines


def describe_advice(number: int, advice: Advice, layout: Layout, width: int) -> list[str]:
    """Return the lines of a piece of advice: its gain, where, what happens, and what to do."""
    finding = advice.finding
    lines = wrap_words(describe_gain(number, advice.prediction), width)
    if finding.line:
        lines.append(" " * INDENT + relative(finding.line))
    for text in (f"{finding.title}.", finding.change):
        lines += wrap_paragraph(text, width, layout.paragraph_lines)
    if finding.price:
        lines += wrap_paragraph(f"Price: {finding.price}", width)
    others = [relative(line) for line in finding.other_lines if line and line != finding.line]
    if others and layout.other_lines:
        lines += wrap_paragraph(f"Also: {', '.join(others[:3])}", width, 3)
    lines += wrap_paragraph(f"Before and after: raymeter explain {finding.section}", width, 2)
    return lines


def describe_gain(number: int, prediction: Prediction) -> str:
    """Return the first line of a piece of advice. Each gain comes on top of those of the advice before."""
    saved = format_milliseconds(prediction.saved_seconds)
    before = format_milliseconds(prediction.before_seconds)
    after = format_milliseconds(prediction.after_seconds)
    text = f"{number}. saves {saved} per step ({kind_of(prediction)}): "
    text += f"{before} -> {after}"
    if number > 1:
        text += ", on top of the advice above"
    return text


def describe_recording(profile: Profile) -> list[str]:
    """Return what recording took, what is missing in it, and where it is."""
    recording = profile.program.recording
    costs = [process.recorder for process in recording.processes if process.recorder]
    periods = [cost.period for cost in costs]
    period = max(periods, default=1)
    at_end = max((cost.end_seconds for cost in costs), default=0.0)
    text = say_cost(profile.recorder_share)
    if at_end:
        text += f", and {format_milliseconds(at_end)} after its end"
    text += "."
    if period > 1:
        text += f" It counted all short calls, and timed one in {period}."
    if recording.was_killed:
        cut = say_cut(recording)
        text += f" {cut[0].upper()}{cut[1:]}: its last calls and the times of tasks are missing."
    errors = say_errors(recording)
    if not recording.was_killed and not profile.program.tasks:
        guess = "" if errors else " (was the driver killed?)"
        text += f" It has no times of tasks{guess}, so waiting is not explained."
    if errors:
        text += f" {errors[0].upper()}{errors[1:]}: what it did later is missing."
    text += say_cut_workers(count_cut_workers(recording))
    unrecorded = say_unrecorded(profile.program)
    if unrecorded:
        text += f" {unrecorded}"
    text += say_left_out(profile, costs)
    return [f"{text} Profile: {recording.folder}"]


def say_cost(share: float | None) -> str:
    """Return which share of the CPU time recording took, without a point at the end."""
    if share is None:
        return "Recording took an unknown share of the CPU time (not recorded)"
    return f"Recording took {percent(share)} of the CPU time"


def say_cut_workers(count: int) -> str:
    """Return that workers have not written their last lines, and what may be the cause; "" if all have."""
    if not count:
        return ""
    if count == 1:
        return " The last calls of 1 worker are missing: Ray ended it at once, or recording ended by an error."
    return f" The last calls of {count} workers are missing: Ray ended them at once, or recording ended by an error."


def say_left_out(profile: Profile, costs: list[RecorderCost]) -> str:
    """Return which part of a long program this is about; "" if it is about all of it."""
    text = ""
    if any(cost.left_out_messages for cost in costs):
        text += " Of very many large messages, only some were recorded; they stand for the others."
    if profile.steps.count < profile.all_steps:
        text += f" This is about {profile.steps.count:,} of {profile.all_steps:,} steps."
    events = sum(cost.left_out_events for cost in costs)
    if events:
        text += f" {events:,} later events are left out."
    tasks = sum(cost.left_out_tasks for cost in costs)
    if tasks:
        text += f" The times of {tasks:,} tasks are left out."
    return text


def wrap_all(lines: list[str], width: int) -> list[str]:
    """Return these lines, each broken between words."""
    wrapped: list[str] = []
    for line in lines:
        wrapped += wrap_words(line, width)
    return wrapped


def wrap_paragraph(text: str, width: int, max_lines: int | None = None) -> list[str]:
    """Return the indented lines of a text, which ends with dots if it has more than `max_lines`; None: all of it."""
    indent = " " * INDENT
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        max_lines=max_lines,
        placeholder=" ...",
    )


def join_lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
