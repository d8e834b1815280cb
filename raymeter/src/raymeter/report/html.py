# SPDX-License-Identifier: Apache-2.0
"""Write a profile as one HTML file, which needs no network."""

import re
from collections.abc import Iterable
from html import escape
from pathlib import Path
from string import Template

from raymeter.advice import Profile
from raymeter.findings import Advice
from raymeter.memory.processes import read_samples
from raymeter.profile.groups import Group
from raymeter.report.before_and_after import read_parts
from raymeter.report.html_memory import draw_memory
from raymeter.report.html_steps import draw_steps, selectors
from raymeter.report.terminal import (
    describe_gain,
    is_no_problem,
    say_answer,
    say_cost,
    say_no_problem,
)
from raymeter.report.words import name_route, name_way, relative, say_count
from raymeter.simulate.without_data import without_data
from raymeter.units import format_bytes

FOLDER = Path(__file__).parent
MAX_MESSAGES = 20


def write(profile: Profile, path: Path) -> None:
    """Write the page of a profile."""
    path.write_text(render(profile), encoding="utf-8")


def render(profile: Profile) -> str:
    """Return the page of a profile. All texts of the program are escaped."""
    recording = profile.program.recording
    style = Template(read_part("page.css")).substitute(selectors=selectors())
    cost = say_cost(profile.recorder_share)
    return Template(read_part("page.html")).substitute(
        title=escape(f"raymeter: {recording.folder.name}"),
        style=style,
        script=read_part("page.js"),
        answer=draw_answer(profile),
        advice=draw_advice(profile),
        messages=draw_messages(profile),
        steps=draw_steps(profile),
        memory=draw_memory(recording, read_samples(recording.folder)),
        footer=escape(f"{cost}. {recording.folder}"),
    )


def read_part(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def draw_answer(profile: Profile) -> str:
    """Return the answer, and what a step is."""
    moving = without_data(profile.program, profile.steps)
    if is_no_problem(profile, moving):
        return paragraph(say_no_problem(profile, moving), "answer")
    answer, steps = say_answer(profile, moving)
    return paragraph(answer, "answer") + paragraph(steps, "note")


def draw_advice(profile: Profile) -> str:
    """Return what to change; "" if no change saves 5 % of a step."""
    if profile.is_no_problem:
        return ""
    items = ""
    for number, advice in enumerate(profile.advice, 1):
        items += draw_item(number, advice)
    return f'<section><h2>What to change</h2><ol class="advice">{items}</ol></section>'


def draw_item(number: int, advice: Advice) -> str:
    """Return a piece of advice: its gain as text and as bars, the place, and the change."""
    finding = advice.finding
    prediction = advice.prediction
    after = 100 * prediction.after_seconds / max(1e-9, prediction.before_seconds)
    bar = f'<div class="before"><div class="after" style="width:{after:.1f}%"></div></div>'
    lines = [finding.line, *finding.other_lines]
    places = ", ".join(relative(line) for line in dict.fromkeys(lines) if line)
    text = paragraph(describe_gain(number, prediction), "gain") + bar
    text += f"<p><code>{escape(places)}</code></p>"
    text += paragraph(f"{finding.title}.") + paragraph(finding.change)
    if finding.price:
        text += paragraph(f"Price: {finding.price}")
    text += draw_explanation(finding.cause)
    return f"<li>{text}</li>"


def draw_explanation(cause: str) -> str:
    """Return what opens to the program before and after the change; "" for an unknown cause."""
    text = ""
    for block in read_parts().get(cause, ()):
        content = escape(block.text)
        text += f"<pre>{content}</pre>" if block.is_code else f"<p>{mark_code(content)}</p>"
    return f"<details><summary>Before and after</summary>{text}</details>" if text else ""


def mark_code(content: str) -> str:
    """Return escaped text in which what is in backquotes is code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", content)


def draw_messages(profile: Profile) -> str:
    """Return the table of messages; "" if there are none."""
    if not profile.groups:
        return ""
    rows = ""
    for group in profile.groups[:MAX_MESSAGES]:
        rows += draw_row(group, profile.steps.count)
    header = (
        '<tr><th class="number">ms per step</th><th class="number">per step</th>'
        '<th class="number">size</th><th>sent as</th><th>type</th><th>message</th><th>line</th></tr>'
    )
    note = paragraph("The time is work, in all processes together.", "note")
    table = f'<div class="wide"><table>{header}{rows}</table></div>'
    return f"<section><h2>Messages</h2>{note}{table}</section>"


def draw_row(group: Group, steps: int) -> str:
    milliseconds = 1e3 * group.seconds() / steps
    count = say_count(group.count / steps, group.reads / steps)
    numbers = [f"{milliseconds:,.1f}", count, format_bytes(group.bytes)]
    texts = [name_way(group), group.type, name_route(group), relative(group.line)]
    return f"<tr>{cells(numbers, 'number')}{cells(texts, 'text')}</tr>"


def cells(texts: Iterable[str], kind: str) -> str:
    return "".join(f'<td class="{kind}">{escape(text)}</td>' for text in texts)


def paragraph(text: str, kind: str = "text") -> str:
    return f'<p class="{kind}">{escape(text)}</p>'
