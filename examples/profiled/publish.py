# SPDX-License-Identifier: Apache-2.0
"""Write the records of raymeter between their marks in README.md, docs/profile.md and raymeter/README.md.

    python3 -m examples.profiled.publish

What raymeter explains about each cause gets into docs/profile.md, too. Records are in results/evidence/raymeter: what
`make cases`, `make profile-examples`, `make profile-cost` and `make profile-versions` wrote. A record that does not
exist leaves its part of the page as it is.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

from dataflow.analysis.statistics import MIN_RUNS, UNRANKED, Ratio, ratio, typical_seconds
from dataflow.report.provenance import describe_commits
from dataflow.report.render import rewrite_pages
from dataflow.report.tables import Column, Section, TextTable, make_table
from examples.profiled.measure import PARTS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "raymeter"
CAUSES = PACKAGE / "src" / "raymeter" / "report" / "causes.md"
RECORDS = Path("results") / "evidence" / "raymeter"
CASES = PACKAGE / "tests" / "cases"
Row = tuple[str, ...]
Origin = dict[str, Any]
MAX_FACTOR = 1.5  # between the predicted and the measured saving, if the prediction has come true
SHOWN = ("verl_controller", "pool_map", "data_embeddings")  # whose printed text is on the page
NOTHING = "-"
EXPLANATION = "raymeter explain"  # in the last line of an advice


@dataclass(frozen=True)
class Saving:
    """What a change saves per step of a program; negative if the step takes longer."""

    seconds: float
    interval: tuple[float, float] | None  # of 95 %, in seconds; None: fewer than MIN_RUNS pairs

    def is_possible(self, seconds: float) -> bool:
        """Return whether a saving is in the interval."""
        if self.interval is None:
            return False
        low, high = self.interval
        return low <= seconds <= high


def load(folder: Path, name: str) -> Any:
    """Return a record; None if it does not exist."""
    path = folder / RECORDS / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def to_table(headers: Row, rows: Sequence[Row]) -> TextTable:
    """Return a table of texts."""
    columns = []
    for index, header in enumerate(headers):
        columns.append(Column(header, itemgetter(index), is_text=True))
    return make_table(rows, columns)


def make_sections(folder: Path) -> Iterator[Section]:
    """Yield the parts of the page for which there are records."""
    example = load(folder, "example.json")
    if example:
        notes = [describe_origins([example["origin"]])]
        yield Section("raymeter-example", "", quote(example["printed"]), notes=notes)
        # Its machine is on the other pages, beside all of the output.
        yield Section("raymeter-advice", "", quote(find_first_advice(example["printed"])))
    yield Section("raymeter-causes", "", CAUSES.read_text(encoding="utf-8").rstrip("\n"))
    scores = load(folder, "scoreboard.json")
    if scores:
        yield describe_cases(scores)
    costs = load(folder, "cost.json")
    if costs:
        yield describe_costs(costs)
    programs = load_programs(folder)
    if programs:
        yield describe_programs(programs)
        yield from quote_programs(programs)
    versions = load(folder, "versions.json")
    if versions:
        yield describe_versions(versions)


def describe_cases(scores: dict[str, Any]) -> Section:
    """Return the counts of the scoreboard, and a line per program."""
    rows = [describe_case(case) for case in scores["cases"]]
    headers = (
        "program",
        "ms per step",
        "with its fix",
        "saved",
        "predicted",
        "what raymeter says first",
    )
    sentence = ", ".join(scores["summary"])
    skipped = scores["skipped"]
    others = count_programs() - len(scores["cases"]) - len(skipped)
    if others:
        verb = "program was" if others == 1 else "programs were"
        sentence += f". {others} other {verb} not run this time"
    if skipped:
        sentence += f". Not run, because packages were missing: {', '.join(skipped)}"
    notes = [describe_origins([scores.get("origin")])]
    sentence = f"In one run of each: {sentence}."
    return Section("raymeter-cases", "", sentence, to_table(headers, rows), notes=notes)


def count_programs() -> int:
    """Return how many programs with a known cause, and controls, there are."""
    return len(list(CASES.glob("*.py"))) - 1  # without the module that measures their steps


def describe_origins(origins: Sequence[Origin | None]) -> str:
    """Return the days, commits and machines of records, and that some do not name them."""
    known = [origin for origin in origins if origin]
    texts = []
    if known:
        days = sorted({origin["day"] for origin in known})
        machines = sorted({describe_place(origin) for origin in known})
        commits = describe_commits(known)
        texts.append(f"Measured on {' and '.join(days)}, {'; '.join(machines)}, {commits}.")
    if len(known) < len(origins):
        subject = "Some records" if known else "The records"
        texts.append(
            f"{subject} name no day, commit or machine, so the age of their code is not known."
        )
    return " ".join(texts)


def describe_place(origin: Origin) -> str:
    """Return the machine, and which start of it."""
    cores = origin["logical_cpus"]
    return f"{cores} cores of {origin['cpu_model']}, boot {origin['boot']}"


def describe_case(case: dict[str, Any]) -> Row:
    fixed = "-" if case["is_control"] else format_ms(case["fixed_ms"])
    saved = "-" if case["is_control"] else format_ms(case["saved_ms"])
    predicted = "-" if case["predicted_ms"] is None else format_ms(case["predicted_ms"])
    return (
        case["name"],
        format_ms(case["before_ms"]),
        fixed,
        saved,
        predicted,
        describe_verdict(case),
    )


def describe_verdict(case: dict[str, Any]) -> str:
    """Return what was said first, and what of it was wrong."""
    wrong = []
    if case["is_control"]:
        if not case["is_silent"]:
            wrong.append("should be silent")
    elif not case["is_cause_first"]:
        wrong.append("another cause")
    elif not case["is_line_right"]:
        wrong.append("another line")
    if case["harmful"]:
        wrong.append("harmful")
    if len(set(case["exit_codes"])) > 1:  # without and with raymeter
        wrong.append("another exit code")
    text = str(case["said"])
    return f"{text} (wrong: {', '.join(wrong)})" if wrong else text


def format_ms(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if abs(milliseconds) >= 10 else f"{milliseconds:.1f}"


def describe_costs(costs: dict[str, Any]) -> Section:
    """Return what recording costs programs that do as much as they can."""
    rows = [describe_cost(cost) for cost in costs["programs"]]
    headers = (
        "program",
        "per second",
        "CPU time, ms per round",
        "with raymeter (95 %)",
        "goal",
        "by its own clocks",
        "start and end, s",
        "what raymeter says of the whole run",
    )
    pairs = max(len(cost["plain_ms"]) for cost in costs["programs"])
    runs = "one run" if costs["runs"] == 1 else f"{costs['runs']} runs"
    sentence = (
        f"CPU time of all processes of a program on {costs['cores']} cores, in {pairs} pairs of windows of "
        f"{costs['window_seconds']:g} s with recording switched on and off, in {runs} of each program, "
        f"after the first {costs['first_seconds']:g} s, in which recording takes about 0.7 s more per process, and "
        "up to 4 s for slow messages of several kinds. While it is off, a function that raymeter has wrapped takes "
        f"{1e6 * costs['wrapper_seconds']:.2g} µs longer than without raymeter, which is not in these numbers. "
        "Start and end happen once, and contain the analysis."
    )
    notes = [describe_origins([costs.get("origin")])]
    return Section("raymeter-cost", "", sentence, to_table(headers, rows), notes=notes)


def describe_cost(cost: dict[str, Any]) -> Row:
    """Return the line of a program."""
    plain = cost["plain_ms"]
    recorded = cost["recorded_ms"]
    once = median(cost["once_recorded_seconds"])
    once_plain = median(cost["once_plain_seconds"])
    return (
        cost["what"],
        f"{cost['per_second']:,.0f} {cost['unit']}",
        f"{typical_seconds(plain):.3g}",
        format_cost(recorded, plain),
        judge_cost(recorded, plain, cost["goal"]),
        f"{median(cost['own_shares']):.1%}",
        f"{once_plain:.1f} -> {once:.1f}",
        cost["said"],
    )


def format_cost(recorded: Sequence[float], plain: Sequence[float]) -> str:
    """Return by how much the CPU time grows, with its interval."""
    quotient = ratio(recorded, plain, paired=True)
    text = f"{quotient.value - 1:+.1%}"
    if quotient.interval is None:
        return text
    low, high = quotient.interval
    return f"{text} ({low - 1:+.1%} to {high - 1:+.1%})"


def judge_cost(recorded: Sequence[float], plain: Sequence[float], goal: float) -> str:
    """Return the largest share that recording may take, and whether the interval is below or above it."""
    text = f"at most {goal:.0%}"
    quotient = ratio(recorded, plain, paired=True)
    if quotient.interval is None:
        return f"{text}: not known"
    low, high = quotient.interval
    if high <= 1 + goal:
        return f"{text}: reached"
    return f"{text}: missed" if low > 1 + goal else f"{text}: not shown"


def load_programs(folder: Path) -> list[dict[str, Any]]:
    """Return the records of the programs of others, in the order of their names."""
    paths = sorted((folder / RECORDS / "programs").glob("*.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def describe_programs(programs: Sequence[dict[str, Any]]) -> Section:
    """Return a line per program and change: what raymeter says, and what the change saves."""
    rows: list[Row] = []
    for program in programs:
        if program["changes"]:
            rows += [describe_change(program, change) for change in program["changes"]]
        else:
            rows.append((*describe_answer(program), NOTHING, NOTHING, NOTHING, NOTHING))
    headers = (
        "program",
        "ms per step",
        "moving data",
        "what raymeter says first",
        "what was tried",
        "predicted to save, ms",
        "saves, ms (95 %)",
        "verdict",
    )
    changes: list[dict[str, Any]] = []
    for program in programs:
        changes += program["changes"]
    pairs = max((len(change["before"]) for change in changes), default=0)
    sentence = (
        f"What a change saves was measured in {pairs} pairs of runs without raymeter. A prediction has come true if it "
        f"is within a factor of {MAX_FACTOR} of that, or in its interval. `up to` marks a limit: less may be saved, "
        "and not more. Verdicts follow [method.md](method.md#statistics-of-one-measurement)."
    )
    notes = [
        f"{program['title']}: {program['remark']}" for program in programs if program["remark"]
    ]
    origins = []
    for program in programs:
        of_parts = program.get("origins", {})
        origins += [of_parts.get(part) for part in PARTS]
    notes += [describe_packages(programs), describe_origins(origins)]
    table = to_table(headers, rows)
    return Section("raymeter-programs", "", sentence, table, notes=notes)


def describe_answer(program: dict[str, Any]) -> Row:
    """Return the first cells of a program."""
    step_ms = format_ms(1e3 * program["step"]["seconds"])
    return program["title"], step_ms, describe_share(program), describe_first(program)


def describe_share(program: dict[str, Any]) -> str:
    """Return the share of a step that would not be there if messages took no time."""
    moving = program["moving"]
    share = moving["saved_seconds"] / program["step"]["seconds"]
    limit = "up to " if moving["is_upper_limit"] else ""
    return f"{limit}{share:.0%}"


def describe_first(program: dict[str, Any]) -> str:
    """Return the first cause with its line, or that there is none."""
    if "not your problem" in " ".join(program["printed"].split()):
        return "not your problem"
    if program["is_no_problem"]:
        return "no change that it knows"
    first = program["advice"][0]
    return f"{first['cause']}, `{Path(first['line']).name}`"


def describe_change(program: dict[str, Any], change: dict[str, Any]) -> Row:
    """Return the cells of a change that was tried."""
    cause = change["change"]["cause"]
    predicted = predicted_seconds(program, cause)
    is_limit = is_upper_limit(program, cause)
    predicted_ms = format_prediction(predicted, is_limit)
    measured = format_saving(measure_saving(change))
    text = change["change"]["text"]
    verdict = judge(change, predicted, is_limit)
    return (*describe_answer(program), text, predicted_ms, measured, verdict)


def format_saving(saving: Saving) -> str:
    """Return milliseconds, with the interval in brackets if it is known."""
    text = format_ms(1e3 * saving.seconds)
    if saving.interval is None:
        return text
    low, high = [format_ms(1e3 * end) for end in saving.interval]
    return f"{text} ({low} to {high})"


def predicted_seconds(program: dict[str, Any], cause: str) -> float | None:
    """Return what the printed advice about a cause saves per step of the program; None if there is none.

    If raymeter has found no steps, its number is that of the whole program.
    """
    if program["is_no_problem"]:
        return None
    savings = [advice["saved_seconds"] for advice in program["advice"] if advice["cause"] == cause]
    if not savings:
        return None
    step = program["step"]
    steps = 1 if step["line"] else program["steps"]
    return sum(savings) / steps


def is_upper_limit(program: dict[str, Any], cause: str) -> bool:
    """Return whether raymeter calls what the advice about a cause saves a limit."""
    kinds = [advice.get("kind") for advice in program["advice"] if advice["cause"] == cause]
    return "upper limit" in kinds


def format_prediction(seconds: float | None, is_limit: bool) -> str:
    """Return what is predicted to be saved, in milliseconds."""
    if seconds is None:
        return NOTHING
    text = format_ms(1e3 * seconds)
    return f"up to {text}" if is_limit else text


def time_ratio(tried: dict[str, Any]) -> Ratio:
    """Return the time with a change divided by the time without it, by its pairs of runs."""
    return ratio(tried["after"], tried["before"], paired=True)


def measure_saving(tried: dict[str, Any]) -> Saving:
    """Return what a change saves. Its interval is that of the ratio of the times, for the typical time before."""
    before = typical_seconds(tried["before"])
    quotient = time_ratio(tried)
    seconds = before * (1 - quotient.value)
    if quotient.interval is None:
        return Saving(seconds, None)
    low, high = quotient.interval
    # The larger the ratio, the smaller the saving.
    return Saving(seconds, (before * (1 - high), before * (1 - low)))


def judge(tried: dict[str, Any], predicted: float | None, is_limit: bool = False) -> str:
    """Return whether raymeter was right about a change.

    `predicted`: the seconds per step that its advice says; None: it advised nothing. `is_limit`: at most so many.
    """
    pairs = len(tried["before"])
    if pairs < MIN_RUNS:
        return "one pair: no verdict" if pairs == 1 else f"{pairs} pairs: no verdict"
    effect = time_ratio(tried).verdict
    if predicted is None:
        is_for_try = tried["change"].get("is_tried", False)
        return judge_trial(effect) if is_for_try else judge_silence(effect)
    if effect in UNRANKED:
        return effect
    return judge_advice(measure_saving(tried), predicted, is_limit)


def judge_advice(saving: Saving, predicted: float, is_limit: bool) -> str:
    """Return whether advice came true that predicts so many seconds per step, of a change with a known effect."""
    saved = saving.seconds
    if saved < 0:
        return "wrong: it is slower"
    is_close = saved / MAX_FACTOR <= predicted <= saved * MAX_FACTOR
    if is_close or saving.is_possible(predicted):
        return "came true"
    is_less = saved < predicted
    if is_limit:
        return "faster, and below the limit" if is_less else "wrong limit: it saves more"
    return "faster, by less than predicted" if is_less else "faster, by more than predicted"


def judge_silence(effect: str) -> str:
    """Return whether it was right to advise nothing about a change with this effect."""
    if effect == "faster":
        return "not said, and it would have helped"
    if effect == "slower":
        return "rightly not said"
    return f"not said, and {effect}"


def judge_trial(effect: str) -> str:
    """Return what `raymeter try` can find about a change that a plain profile does not advise."""
    return effect if effect in UNRANKED else f"{effect}, for `raymeter try` to find"


def describe_packages(programs: Sequence[dict[str, Any]]) -> str:
    """Return the versions of all packages."""
    packages: dict[str, str] = {}
    for program in programs:
        packages |= program["packages"]
    versions = [f"{name} {version}" for name, version in sorted(packages.items())]
    text = ", ".join(versions)
    return f"Packages: {text}."


def quote_programs(programs: Sequence[dict[str, Any]]) -> Iterator[Section]:
    """Yield what raymeter has printed about some of the programs."""
    by_name = {program["program"]: program for program in programs}
    for name in SHOWN:
        if name in by_name:
            program = by_name[name]
            title = program["title"]
            printed = program["printed"]
            yield Section("raymeter-programs", "", f"{title}:\n\n{quote(printed)}")


def find_first_advice(printed: str) -> str:
    """Return the first advice in an output, without the line that names its explanation; "" if there is no advice."""
    for paragraph in printed.split("\n\n"):
        if paragraph.startswith("1. "):
            kept = [line for line in paragraph.splitlines() if EXPLANATION not in line]
            return "\n".join(kept) + "\n"
    return ""


def quote(printed: str) -> str:
    """Return a text as it was printed."""
    return f"```\n{printed}```"


def describe_versions(versions: Sequence[dict[str, Any]]) -> Section:
    """Return what was found of a program with known messages with several versions of Ray."""
    rows = []
    for version in versions:
        found = f"{version['found']} of {version['known']}"
        timed = f"{version['timed_tasks']} of {version['known_tasks']}"
        errors = ", ".join(version["errors"]) or "-"
        missing = ", ".join(version["missing"]) or "-"
        rows.append((version["ray"], found, timed, errors, missing))
    headers = (
        "Ray",
        "known messages that were found",
        "known tasks with times",
        "errors that ended recording",
        "functions that it does not have",
    )
    notes = [describe_origins([version.get("origin") for version in versions])]
    return Section("raymeter-versions", "", table=to_table(headers, rows), notes=notes)


if __name__ == "__main__":
    sections = list(make_sections(ROOT))
    for folder in (ROOT, PACKAGE):
        rewrite_pages(folder, sections)
