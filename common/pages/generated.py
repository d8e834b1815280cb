"""README.md and docs/: what stands there between marks, written from records and from the flags themselves."""

import contextlib
import io
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from common.analysis.false_alarms import Judged
from common.analysis.ladder import baseline_of
from common.analysis.results import Result
from common.analysis.statistics import ratio
from common.charts import in_flight, stage_chart
from common.cost.choice import Checked
from common.cost.costs import costs_of
from common.errors import RecordError
from common.flow.catalogue import FLOWS, sizes_of
from common.pages import markdown
from common.pages.parts import Parts
from common.plan.command_line import describe_flags
from common.plan.options import Options
from common.record.environment import machine_line
from common.record.rows import BASELINE, CEILING, RUNTIMES
from common.text import answer, false_alarms, small_messages, sweep_table
from common.text import episodes as episode_table
from common.text.screen import print_end, print_start
from common.text.tables import Column, markdown_table, milliseconds, three_digits
from common.units import format_bytes

# The six of the README: a row for each kind of need.
CHOICE = (
    "rdt gloo", "graph shm", "graph nccl", "graph mapped --copy-out", "store refs --zero-copy",
    "graph mapped",
)  # fmt: skip
WIDTH = 100  # characters, of what a terminal is shown to print
Rows = Sequence[Result]


def fastest(ladder: Rows, copied: bool) -> Result | None:
    """Of the rows that leave readers bytes of their own, or views; trip by trip, and a transport."""
    done = [result for result in ladder if result.status == "ok" and result.payload_copied is copied
            and result.rung != CEILING and result.episode == 1]  # fmt: skip
    return min(done, key=lambda result: result.summary.median, default=None)


def numbers(ladder: Rows) -> str:
    """The demo's baseline, the fastest row that copies and the fastest that maps, with the limit and the machine."""
    found = [(next((r for r in ladder if r.name == BASELINE and r.status == "ok"), None), "the demo's own way"),
             (fastest(ladder, True), "the fastest that leaves readers bytes of their own"),
             (fastest(ladder, False), "the fastest whose readers map another's memory")]  # fmt: skip
    lines = []
    for result, words in found:
        if result:
            median, baseline = result.summary.median, baseline_of(result, ladder)
            compared = baseline and baseline is not result
            factor = ratio(baseline.seconds_by_run, result.seconds_by_run).value if compared and baseline else None
            more = f", {three_digits(factor)} times as fast" if factor else ""
            lines.append(f"* **{milliseconds(median)} ms** over `{result.name}`, {words}{more}")
    one = next(result for result in ladder if result.status == "ok")
    limit = f"one warm copy of each edge takes {milliseconds(one.ceiling_seconds)} ms; " if one.ceiling_seconds else ""
    moved = f"{format_bytes(one.record.bytes_per_trip)} over {len(one.flow.edges)} edges"
    trip = f"One trip of {one.record.row.flow}, {moved}"
    return "\n".join([f"{trip}:", "", *lines, "", f"({limit}{machine_line(one.record.environments.get('0', {}))})"])


def printed(ladder: Rows) -> str | None:
    """The command of the fastest row that copies, and what it prints of the last run that its record has."""
    result = fastest(ladder, True)
    if result is None:
        return None
    text, run = io.StringIO(), result.shown[-1]
    record = msgspec.structs.replace(result.record, runs=[run])
    row = record.row
    with contextlib.redirect_stdout(text):
        print_start(result.flow, row.flags.get("threads", 1), run)
        print_end(record, Path("results") / f"{row.runtime}-{row.transport}-<time>.json", WIDTH)
    return "\n".join(["```", f"$ {_command(result)}", text.getvalue().rstrip(), "```"])


def _command(result: Result) -> str:
    """That makes such a record: what differs from the defaults."""
    row = result.record.row
    asked: dict[str, int | str | bool] = {}
    if row.flow != Options.default("flow"):
        asked["flow"] = row.flow
    usual = sizes_of(row.flow, row.message) if row.flow in FLOWS else {}
    asked |= {name: value for name, value in row.sizes.items() if usual.get(name) != value}
    if (count := result.record.arguments.get("iterations")) not in (None, Options.default("iterations")):
        asked["iterations"] = count
    words = [word for name, value in asked.items() for word in ("--" + name.replace("_", "-"), str(value))]
    transport = result.rung.split()[1:]
    return shlex.join([".venv/bin/python", RUNTIMES[row.runtime], "--transport", *transport, *words])


def flags() -> str:
    """Every flag that the scripts share, as --help has it."""
    columns = [
        Column("flag", lambda flag: f"`{flag[0].replace(', ', '`, `')}`"),
        Column("what it does", lambda flag: flag[1].replace("|", "\\|"), words=True),
    ]
    return markdown_table(list(describe_flags().items()), columns)


def sections(
    parts: Parts, swept: Rows = (), pairs: Sequence[Judged] = (), held_out: Sequence[Checked] = ()
) -> dict[str, str | None]:
    """Each section's text; None without such rows. pairs, held_out: the evidence on verdicts and on choices."""
    ladder, traced, episodes = parts.ladder, parts.traced, parts.episodes
    done = [result for result in parts.hops if result.status == "ok"]
    measured = any(result.status == "ok" for result in ladder)
    return {
        "numbers": numbers(ladder) if measured else None,
        "printed": printed(ladder),
        "choice": markdown.advice(ladder, CHOICE) if measured else None,
        "results": markdown.ladder(ladder) if measured else None,
        "advice": markdown.advice(ladder) if measured else None,
        "stages": stage_chart.markdown(traced, ladder) if traced else None,
        "chatlearn-stages": stage_chart.stages_markdown(parts.fields) if parts.fields else None,
        "microbenchmarks": small_messages.markdown(done) if done else None,
        "episodes": episode_table.markdown(episodes, parts.flat) if episodes else None,
        "fits": sweep_table.markdown(costs_of(swept)) if swept else None,
        "in-flight": in_flight.markdown([r for r in swept if "in_flight" in r.runs[0].at]),
        "verdicts": false_alarms.markdown(pairs) if pairs else None,
        "held-out": answer.checked_markdown(held_out) if held_out else None,
        "flags": flags(),
    }


def markers(section: str) -> tuple[str, str]:
    """Where a section of a page begins and ends."""
    return f"<!-- {section}: written by plot_results.py --publish -->", f"<!-- end of {section} -->"


def rewrite(folder: Path, texts: Mapping[str, str | None]) -> None:
    """Put each section's text between its two markers, in README.md and docs/ of a folder; None leaves what is there.

    Raises:
        RecordError: a marker without its other, or of a section that there is not.
    """
    for page in [*folder.glob("README.md"), *sorted(folder.glob("docs/*.md"))]:
        text = page.read_text()
        for section in re.findall(r"<!-- (?:end of )?([\w-]+)(?:: written by plot_results.py --publish)? -->", text):
            begin, end = markers(section)
            if section not in texts or (text.count(begin), text.count(end)) != (1, 1):
                raise RecordError(f"{page} must hold each of two markers once, of a known section: {begin} and {end}")
            if (body := texts[section]) is not None:
                before, rest = text.split(begin)
                text = f"{before}{begin}\n{body}\n{end}{rest.split(end)[1]}"
        page.write_text(text)
