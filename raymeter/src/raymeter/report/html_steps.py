# SPDX-License-Identifier: Apache-2.0
"""Draw some steps of a program for the page: their timelines, graphs and critical paths."""

from html import escape

from raymeter.advice import Profile
from raymeter.profile.steps import Steps
from raymeter.report.chart import Chart, draw
from raymeter.report.critical import Link, PathFinder
from raymeter.report.step_charts import chart_graph, chart_timeline, describe_link
from raymeter.report.timeline import make_timeline
from raymeter.report.words import relative
from raymeter.simulate.graph import build
from raymeter.units import format_milliseconds

MAX_STEPS = 3  # a typical one, the slowest and the fastest one
MAX_LINKS = 12  # of a critical path that are listed
MIN_LISTED_SHARE = 0.01  # of the path
MAX_ZOOM = 20
KINDS = {
    "task": "task",
    "phase": "reads arguments, stores results",
    "call": "call of Ray",
    "wait": "waits",
    "send": "serialises",
    "read": "deserialises",
}
LEGEND = "".join(f'<span><i class="{kind}"></i>{text}</span>' for kind, text in KINDS.items())
ZOOM = (
    f'<label class="zoom">Zoom <input type="range" min="1" max="{MAX_ZOOM}" value="1" step="0.5">'
    "</label>"
)


def selectors() -> str:
    """Return the selectors of page.css that show the panel whose button is checked."""
    parts = []
    for number in range(MAX_STEPS):
        parts.append(f"#step-{number}:checked ~ #panel-{number}")
    return ", ".join(parts)


def draw_steps(profile: Profile) -> str:
    """Return buttons that choose a step, and the charts of each: the typical one, and the fastest and the slowest one.

    If there are one or two steps, only one is shown. There is at least one.
    """
    timeline = make_timeline(profile.program)
    graph = build(profile.program)
    finder = PathFinder(graph, profile.steps, timeline)
    buttons = ""
    panels = ""
    for number, (label, step) in enumerate(choose_steps(profile.steps)):
        start, end = profile.steps.times[step]
        path = finder.find(step)
        work = chart_graph(graph, path, timeline.names, Chart("Graph", start, end, []))
        checked = "" if number else " checked"
        buttons += f'<input type="radio" name="step" id="step-{number}"{checked}>'
        buttons += f'<label for="step-{number}">{label}</label>'
        panels += (
            f'<div class="panel" id="panel-{number}">{ZOOM}'
            f'<div class="legend">{LEGEND}</div>'
            f"<h3>What each process did; arrows are messages</h3>"
            f"{draw(chart_timeline(timeline, start, end))}"
            f"<h3>What waited for what; the critical path is red</h3>{draw(work)}"
            f"{draw_path(path, timeline.names, start)}</div>"
        )
    return f'<div class="steps">{buttons}{panels}</div>'


def choose_steps(steps: Steps) -> list[tuple[str, int]]:
    """Return the text and the number of a step as long as the median, the slowest and the fastest one."""
    seconds = [end - start for start, end in steps.times]
    numbers = sorted(range(steps.count), key=lambda number: seconds[number])
    chosen = [("Typical step", find_typical(numbers))]
    if steps.count > 2:
        chosen.append(("Slowest step", numbers[-1]))
        chosen.append(("Fastest step", numbers[0]))
    labels = []
    for name, number in chosen[:MAX_STEPS]:
        time = format_milliseconds(seconds[number])
        labels.append((f"{name} ({number + 1} of {steps.count}): {time}", number))
    return labels


def find_typical(numbers: list[int]) -> int:
    """Return the middle one of steps in the order of their length. Of two, it is the later one: starts are long."""
    lower = numbers[(len(numbers) - 1) // 2]
    upper = numbers[len(numbers) // 2]
    return max(lower, upper)


def draw_path(path: list[Link], names: dict[str, str], start: float) -> str:
    """Return the longest parts of the critical path as a table, in their order."""
    if not path:
        return '<p class="note">The recording does not say what this step waited for.</p>'
    by_length = sorted(path, key=lambda link: link.seconds, reverse=True)
    smallest = MIN_LISTED_SHARE * sum(link.seconds for link in path)
    longest = [link for link in by_length[:MAX_LINKS] if link.seconds >= smallest]
    longest.sort(key=lambda link: link.start)
    rows = "".join(draw_link(link, names, start) for link in longest)
    header = (
        '<tr><th class="number">at ms</th><th class="number">takes</th><th>process</th>'
        "<th>what</th><th>line</th></tr>"
    )
    title = f"<h3>The longest parts of the critical path ({len(path)} parts)</h3>"
    return f'{title}<div class="wide"><table>{header}{rows}</table></div>'


def draw_link(link: Link, names: dict[str, str], start: float) -> str:
    milliseconds = 1e3 * (link.start - start)
    line = relative(link.span.line) if link.span else ""
    return (
        f'<tr><td class="number">{milliseconds:,.1f}</td>'
        f'<td class="number">{format_milliseconds(link.seconds)}</td>'
        f"<td>{escape(names.get(link.process, link.process))}</td>"
        f"<td>{escape(describe_link(link))}</td><td>{escape(line)}</td></tr>"
    )
