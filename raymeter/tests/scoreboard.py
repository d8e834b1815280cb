# SPDX-License-Identifier: Apache-2.0
"""Run the programs of cases/ before and after their fix and under raymeter, and count how often raymeter is right.

    python raymeter/tests/scoreboard.py [--runs N] [--only NAME,NAME] [--output scoreboard.json] [--texts FOLDER]

The docstring of a case is its key: "Cause:" is the cause that must be named first ("none" for a control, about which
raymeter must be silent), "Or:" another name that is right as well, "Harmful:" causes whose advice would make the
program wrong or slower, "Needs:" packages without which the case is skipped, and "Source:" the public report or the
page. Lines that end with "CAUSE" are those that may be named. raymeter is judged only by what it prints.
"""

import argparse
import ast
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from origin import load_origin

TESTS = Path(__file__).resolve().parent
CASES = TESTS / "cases"
SOURCE = TESTS.parent / "src"
MAX_FACTOR = 1.5  # of the predicted and the true saving
MAX_SECONDS = 240  # of one run
NO_CAUSE = "none"
NO_ADVICE = ("not your problem", "knows no change")  # that would make a step 5 % shorter
SLOW_START = "timed out during startup"  # a text of Ray 2.60
HELPER = "measured"  # a module beside the cases, which all of them use
UNITS = {"µs": 1e-3, "ms": 1.0, "s": 1e3}  # in milliseconds

STEP = re.compile(r"STEP_MS ([\d.]+) MEAN_MS [\d.]+ STEPS \d+")
LARGEST = re.compile(r"largest cause: (.+)")
SAVES = re.compile(r"(?:^| )\d\. saves ([\d.,]+) (µs|ms|s) per step")
PLACE = re.compile(r"([\w.-]+\.py):(\d+)")
SECTION = re.compile(r"raymeter explain ([\w-]+)")


@dataclass(frozen=True)
class Key:
    """What raymeter must find in a program."""

    path: Path
    summary: str
    source: str
    causes: list[str]  # of which one must be named first; empty for a control
    harmful: list[str]
    needs: list[str]
    lines: list[int]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def is_control(self) -> bool:
        return not self.causes

    def missing_packages(self) -> list[str]:
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


@dataclass(frozen=True)
class PrintedAdvice:
    """One piece of advice, as a user reads it."""

    saved_ms: float
    file: str
    line: int
    section: str


@dataclass(frozen=True)
class Printed:
    """What raymeter has printed about a program."""

    largest_cause: str  # what follows these words: the cause, and the rest of the line
    advice: list[PrintedAdvice]
    is_silent: bool

    def names_first(self, cause: str) -> bool:
        """Return whether a cause is the largest one, by its name or by the link of the first advice."""
        if self.largest_cause:
            return self.largest_cause.startswith(cause)
        return bool(self.advice) and self.advice[0].section == section_of(cause)

    def advises(self, cause: str) -> bool:
        sections = [advice.section for advice in self.advice]
        return self.names_first(cause) or section_of(cause) in sections


@dataclass(frozen=True)
class Run:
    """One run of a program. `step_ms` is None if it has not printed its times."""

    exit_code: int
    step_ms: float | None
    text: str


@dataclass
class Score:
    """How right raymeter is about one program."""

    name: str
    is_control: bool
    before_ms: float
    fixed_ms: float
    profiled_ms: float
    predicted_ms: float | None
    said: str
    is_cause_first: bool
    is_line_right: bool
    is_silent: bool
    harmful: list[str]
    exit_codes: list[int]  # before, and under raymeter
    problems: list[str] = field(default_factory=list)

    @property
    def saved_ms(self) -> float:
        return self.before_ms - self.fixed_ms

    @property
    def is_saving_right(self) -> bool:
        """Return whether the right cause has a saving that is within MAX_FACTOR of the true one."""
        if not self.is_cause_first or not self.predicted_ms or self.saved_ms <= 0:
            return False
        factor = self.predicted_ms / self.saved_ms
        return 1 / MAX_FACTOR <= factor <= MAX_FACTOR

    @property
    def cost(self) -> float:
        """Return how much longer a step takes under raymeter, as a share of the step."""
        return self.profiled_ms / self.before_ms - 1 if self.before_ms else 0.0

    @property
    def is_exit_code_equal(self) -> bool:
        return len(set(self.exit_codes)) == 1


def read_keys(only: Sequence[str] = ()) -> list[Key]:
    """Return the keys of all cases, or of those with these names; raise SystemExit for an unknown name."""
    names = sorted(path.stem for path in CASES.glob("*.py"))
    names.remove(HELPER)
    for name in only:
        if name not in names:
            raise SystemExit(f"--only {name}: no such case. There are {', '.join(names)}")
    chosen = only or names
    return [read_key(CASES / f"{name}.py") for name in chosen]


def read_key(path: Path) -> Key:
    """Return the key of a program, which its docstring holds."""
    text = path.read_text()
    docstring = ast.get_docstring(ast.parse(text)) or ""
    summary, _, rest = docstring.partition("\n\n")
    fields = {}
    for line in rest.splitlines():
        name, _, value = line.partition(": ")
        fields[name] = value
    causes = split_names(fields.get("Cause", "")) + split_names(fields.get("Or", ""))
    lines = text.splitlines()
    return Key(
        path=path,
        summary=summary,
        source=fields.get("Source", ""),
        causes=[cause for cause in causes if cause != NO_CAUSE],
        harmful=split_names(fields.get("Harmful", "")),
        needs=split_names(fields.get("Needs", "")),
        lines=[number for number, line in enumerate(lines, 1) if line.endswith("CAUSE")],
    )


def split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(";") if name.strip()]


def section_of(cause: str) -> str:
    """Return the part of the page to which the advice about a cause links."""
    words = re.sub(r"[^\w -]", "", cause.lower())
    return words.replace(" ", "-")


def parse_output(text: str) -> Printed:
    """Read what raymeter has printed, however its lines are broken."""
    joined = " ".join(text.split())
    starts = list(SAVES.finditer(joined))
    ends = [match.start() for match in starts[1:]]
    advice = []
    for match, end in zip(starts, [*ends, len(joined)], strict=False):
        advice.append(parse_advice(match, joined[match.end() : end]))
    answer = joined[: starts[0].start()] if starts else joined
    largest = LARGEST.search(answer)
    has_answer = any(text in joined for text in NO_ADVICE)
    is_silent = not advice and has_answer
    return Printed(largest[1] if largest else "", advice, is_silent)


def parse_advice(saves: re.Match[str], rest: str) -> PrintedAdvice:
    """Return one piece of advice from its first figure and the words up to the next one."""
    saved_ms = float(saves[1].replace(",", "")) * UNITS[saves[2]]
    place = PLACE.search(rest)
    section = SECTION.search(rest)
    return PrintedAdvice(
        saved_ms=saved_ms,
        file=place[1] if place else "",
        line=int(place[2]) if place else 0,
        section=section[1] if section else "",
    )


def run_program(words: Sequence[str], is_fixed: bool) -> Run:
    """Run a program. If Ray did not start in time, which happens on a busy machine, run it once more."""
    run = run_once(words, is_fixed)
    if run.step_ms is None and SLOW_START in run.text:
        run = run_once(words, is_fixed)
    return run


def run_once(words: Sequence[str], is_fixed: bool) -> Run:
    """Run a program in a folder of its own, with a time limit."""
    environment = dict(os.environ)
    environment.pop("FIXED", None)
    if is_fixed:
        environment["FIXED"] = "1"
    paths = [str(SOURCE), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile("w+") as output,
    ):
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(MAX_SECONDS)
        except subprocess.TimeoutExpired:
            code = end_group(process)
        except BaseException:  # Ctrl-C, or SIGTERM: the program is in a session of its own
            end_group(process)
            raise
        output.seek(0)
        text = output.read()
    if code < 0:
        code = 128 - code  # as shells and raymeter say that a signal has ended a program
    times = STEP.findall(text)
    return Run(code, float(times[-1]) if times else None, text)


def end_group(process: subprocess.Popen[bytes]) -> int:
    """Kill a program with its processes, and return its exit code."""
    os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def end_by_signal(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def run_case(key: Key, runs: int, texts: Path | None = None) -> Score:
    """Run a case before and after its fix and under raymeter, in turns, and judge what raymeter has printed."""
    program = str(key.path)
    before: list[Run] = []
    fixed: list[Run] = []
    profiled: list[Run] = []
    for _ in range(runs):
        before.append(run_program([program], is_fixed=False))
        if not key.is_control:
            fixed.append(run_program([program], is_fixed=True))
        profiled.append(run_program(["-m", "raymeter", program], is_fixed=False))
    if texts is not None:
        texts.mkdir(parents=True, exist_ok=True)
        write_texts(texts / f"{key.name}-before.txt", before)
        write_texts(texts / f"{key.name}-fixed.txt", fixed)
        write_texts(texts / f"{key.name}-profiled.txt", profiled)
    return judge(key, before, fixed or before, profiled)


def write_texts(path: Path, runs: Sequence[Run]) -> None:
    """Write what the runs have printed."""
    texts = [run.text for run in runs]
    path.write_text("\n".join(texts))


def judge(key: Key, before: Sequence[Run], fixed: Sequence[Run], profiled: Sequence[Run]) -> Score:
    """Compare what raymeter has printed in its last run with the key, and the medians of the steps."""
    printed = parse_output(profiled[-1].text)
    first = printed.advice[0] if printed.advice else None
    problems = []
    for name, runs in (("before", before), ("fixed", fixed), ("profiled", profiled)):
        if any(run.step_ms is None for run in runs):
            problems.append(f"a run {name} has no times")
    return Score(
        name=key.name,
        is_control=key.is_control,
        before_ms=median_ms(before),
        fixed_ms=median_ms(fixed),
        profiled_ms=median_ms(profiled),
        predicted_ms=first.saved_ms if first else None,
        said=describe_said(printed),
        is_cause_first=any(printed.names_first(cause) for cause in key.causes),
        is_line_right=is_right_place(first, key),
        is_silent=printed.is_silent,
        harmful=[cause for cause in key.harmful if printed.advises(cause)],
        exit_codes=[before[-1].exit_code, profiled[-1].exit_code],
        problems=problems,
    )


def median_ms(runs: Sequence[Run]) -> float:
    known = [run.step_ms for run in runs if run.step_ms is not None]
    return median(known) if known else 0.0


def is_right_place(advice: PrintedAdvice | None, key: Key) -> bool:
    if advice is None:
        return False
    return advice.file == key.path.name and advice.line in key.lines


def describe_said(printed: Printed) -> str:
    """Return in short what raymeter has said: the first cause, and its line."""
    if printed.is_silent:
        return "no change"
    if not printed.advice:
        return "no advice"
    first = printed.advice[0]
    cause = printed.largest_cause.partition(",")[0] or first.section
    return f"{cause}, line {first.line}"


HEADER = (
    f"{'case':24} {'before':>8} {'fixed':>8} {'saved':>8} {'predicted':>9}  "
    f"{'cause':5} {'line':4} {'saving':6} {'exit':4} {'cost':>6}  raymeter said"
)


def describe_score(score: Score) -> str:
    """Return the line of a case in the table. Times are milliseconds per step."""
    times = [score.before_ms, score.fixed_ms, score.saved_ms]
    cells = [f"{time:8.1f}" for time in times]
    predicted = "-" if score.predicted_ms is None else f"{score.predicted_ms:.1f}"
    cells.append(f"{predicted:>9} ")
    if score.is_control:
        cells.append(f"{mark(score.is_silent):5} {'':4} {'':6}")
    else:
        cells.append(f"{mark(score.is_cause_first):5}")
        cells.append(f"{mark(score.is_line_right):4}")
        cells.append(f"{mark(score.is_saving_right):6}")
    cells.append(f"{mark(score.is_exit_code_equal):4}")
    cells.append(f"{score.cost:+6.0%} ")
    remarks = [score.said]
    if score.harmful:
        remarks.append(f"HARMFUL: {', '.join(score.harmful)}")
    remarks += score.problems
    return f"{score.name:24} {' '.join(cells)} {'; '.join(remarks)}"


def mark(is_right: bool) -> str:
    return "yes" if is_right else "NO"


def summarise(scores: Sequence[Score]) -> list[str]:
    """Return how often raymeter was right."""
    cases = [score for score in scores if not score.is_control]
    controls = [score for score in scores if score.is_control]
    causes = [score.is_cause_first for score in cases]
    places = [score.is_line_right for score in cases]
    savings = [score.is_saving_right for score in cases]
    silent = [score.is_silent for score in controls]
    codes = [score.is_exit_code_equal for score in scores]
    harmful = [score.name for score in scores if score.harmful]
    lines = [
        count_right("cause first", causes),
        count_right("line", places),
        count_right(f"saving within {MAX_FACTOR}", savings),
        count_right("controls silent", silent),
        count_right("exit code equal", codes),
        f"harmful {len(harmful)}",
    ]
    if scores:
        cost = median(score.cost for score in scores)
        lines.append(f"median cost {cost:+.1%} of a step")
    return lines


def count_right(what: str, marks: Sequence[bool]) -> str:
    return f"{what} {sum(marks)} of {len(marks)}"


def main(words: Sequence[str] | None = None) -> int:
    """Run the cases; return 1 if a program was harmed: wrong advice, or another exit code."""
    arguments = make_parser().parse_args(words)
    signal.signal(signal.SIGTERM, end_by_signal)
    scores: list[Score] = []
    skipped: dict[str, list[str]] = {}
    print(HEADER)
    for key in read_keys(arguments.only):
        missing = key.missing_packages()
        if missing:
            skipped[key.name] = missing
            print(f"{key.name:24} skipped: {', '.join(missing)} is not installed", flush=True)
            continue
        scores.append(run_case(key, arguments.runs, arguments.texts))
        print(describe_score(scores[-1]), flush=True)
        write_scores(arguments.output, scores, skipped)
    print("", *summarise(scores), sep="\n")
    is_harmed = any(score.harmful or not score.is_exit_code_equal for score in scores)
    return 1 if is_harmed else 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Count how often raymeter is right.")
    parser.add_argument("--runs", type=int, default=1, help="runs of each kind (default: 1)")
    parser.add_argument(
        "--only",
        type=split_commas,
        default=[],
        metavar="NAMES",
        help="cases, with commas between them",
    )
    parser.add_argument("--output", type=Path, default=Path("scoreboard.json"))
    parser.add_argument("--texts", type=Path, help="folder for what the programs print")
    return parser


def split_commas(text: str) -> list[str]:
    names = text.split(",")
    return [name for name in names if name]


def write_scores(path: Path, scores: Sequence[Score], skipped: dict[str, list[str]]) -> None:
    """Write the scores so far, so that a run that is stopped leaves them behind."""
    rows = []
    for score in scores:
        row = asdict(score)
        row["saved_ms"] = score.saved_ms
        row["is_saving_right"] = score.is_saving_right
        row["cost"] = score.cost
        rows.append(row)
    content = {
        "origin": load_origin(),
        "summary": summarise(scores),
        "skipped": skipped,
        "cases": rows,
    }
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
