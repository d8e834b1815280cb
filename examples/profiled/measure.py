# SPDX-License-Identifier: Apache-2.0
"""Profile programs with raymeter, and try its advice:  python3 -m examples.profiled.measure [NAME ...]

Each program of programs.toml is profiled once. A program with changes then runs without raymeter, as it is and with
each change, in turns. What was found is written to results/evidence/raymeter/programs, one file per program, and what
raymeter prints about the program on its page to example.json beside them. If a program fails, its record stays as it
was, the others go on, and the exit code is 1.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from common.origin import describe_origin
from dataflow.workers.variables import RETAIN_MEMORY
from examples.profiled.steps import read_step

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("programs.toml")
RECORDS = ROOT / "results" / "evidence" / "raymeter"
PROFILES = Path("raymeter-profiles") / "examples"  # in the current folder, as raymeter does
EXAMPLE_NAME = "example"
EXAMPLE = Path("raymeter") / "tests" / "cases" / "by_value.py"
PYTHON = [sys.executable]
PAIRS = 5
PARTS = ("profile", "changes")  # of a record
MAX_SECONDS = 300  # of one run
LIBRARIES = re.compile(r"[^\s\"(]*/site-packages/")
OWN_FOLDERS = (f"{ROOT}/", f"{sys.base_prefix}/")


class Failed(Exception):
    """A run of a program that has no meaning, with what it has printed."""


@dataclass(frozen=True)
class Change:
    """A change of a program: variables of its environment."""

    name: str
    text: str
    cause: str  # the name under which raymeter advises it; "" if it does not
    settings: Mapping[str, str]
    is_tried: bool = False  # by `raymeter try`, which measures it before it advises it


@dataclass(frozen=True)
class Program:
    """A module of this folder, and the changes that are tried."""

    name: str
    title: str
    packages: Sequence[str]
    changes: Sequence[Change]
    steps: int  # that the program does, as raymeter may find others
    remark: str = ""


@dataclass
class Tried:
    """The seconds per step without and with a change, by pair of runs."""

    change: Change
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)


def read_programs(path: Path = PROGRAMS) -> list[Program]:
    """Return the programs of a file."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return [read_program(row) for row in table["programs"]]


def read_program(row: Mapping[str, Any]) -> Program:
    changes = [read_change(change) for change in row.get("changes", [])]
    remark = row.get("remark", "")
    return Program(row["name"], row["title"], row["packages"], changes, row["steps"], remark)


def read_change(row: Mapping[str, Any]) -> Change:
    settings = dict(row.get("settings", {}))
    if row.get("retain_memory"):
        settings |= RETAIN_MEMORY
    return Change(row["name"], row["text"], row["cause"], settings, row.get("is_tried", False))


def make_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program, in which raymeter is found and 80 columns are printed."""
    source = ROOT / "raymeter" / "src"
    paths = [str(source), os.environ.get("PYTHONPATH", "")]
    search_path = os.pathsep.join(filter(None, paths))
    return {**os.environ, **settings, "PYTHONPATH": search_path, "COLUMNS": "80"}


def run(words: Sequence[str], settings: Mapping[str, str]) -> str:
    """Run Python with these words in the folder of the project, and return what it prints.

    Raise Failed if it fails, or takes MAX_SECONDS, because then its times mean nothing.
    """
    try:
        return run_to_its_end(words, settings)
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(words)} has taken {MAX_SECONDS} s") from None


def run_to_its_end(words: Sequence[str], settings: Mapping[str, str]) -> str:
    done = subprocess.run(
        [*PYTHON, *words],
        cwd=ROOT,
        env=make_environment(settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    if done.returncode:
        raise Failed(f"{' '.join(words)} ended with exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def profile(name: str, words: Sequence[str]) -> Path:
    """Profile a program, and return the folder of its profile, which replaces an earlier one."""
    folder = PROFILES / name
    shutil.rmtree(ROOT / folder, ignore_errors=True)
    run(["-m", "raymeter", "--output", str(folder), *words], {})
    return ROOT / folder


def read_text(path: Path) -> str:
    """Return a text of raymeter without the folders of this machine."""
    text = LIBRARIES.sub("", path.read_text(encoding="utf-8"))
    for folder in OWN_FOLDERS:
        text = text.replace(folder, "")
    return text


def run_plainly(program: Program, settings: Mapping[str, str]) -> float:
    """Return the median step of a run without raymeter."""
    output = run(["-m", module_of(program)], settings)
    seconds = read_step(output)
    if seconds is None:
        raise Failed(f"{program.name} has printed no times:\n{output}")
    return seconds


def module_of(program: Program) -> str:
    return f"examples.profiled.{program.name}"


def try_changes(program: Program, tried: Sequence[Tried], pairs: int) -> None:
    """Run a program as it is and with each change, in turns, and every second time in reverse order."""
    settings = [{}, *(item.change.settings for item in tried)]
    for number in range(pairs):
        order = list(range(len(settings)))
        if number % 2:
            order.reverse()
        seconds = {position: run_plainly(program, settings[position]) for position in order}
        for position, item in enumerate(tried, 1):
            item.before.append(seconds[0])
            item.after.append(seconds[position])
        shown = [seconds[position] for position in range(len(settings))]
        print(f"  pair {number + 1}: {shown}", flush=True)


def describe_profile(program: Program) -> dict[str, Any]:
    """Profile a program, and return the part of its record that raymeter says."""
    folder = profile(program.name, ["-m", module_of(program)])
    summary = json.loads(read_text(folder / "profile.json"))
    return {
        "printed": read_text(folder / "profile.txt"),
        "step": summary["step"],
        "moving": summary["moving"],
        "recorder_share": summary["recorder_share"],
        "is_no_problem": summary["is_no_problem"],
        "advice": summary["advice"],
    }


def describe_changes(program: Program, pairs: int) -> dict[str, Any]:
    """Run a program with and without its changes, and return the part of its record that was measured."""
    tried = [Tried(change) for change in program.changes]
    if tried:
        try_changes(program, tried, pairs)
    return {"changes": [asdict(item) for item in tried]}


def measure(program: Program, pairs: int, parts: Sequence[str]) -> None:
    """Write the record of a program. Parts that are not measured stay as they are."""
    print(program.name, flush=True)
    packages = {name: version(name) for name in ("ray", "numpy", *program.packages)}
    record = {
        "program": program.name,
        "title": program.title,
        "remark": program.remark,
        "steps": program.steps,
        "packages": packages,
    }
    if "profile" in parts:
        record |= describe_profile(program)
    if "changes" in parts:
        record |= describe_changes(program, pairs)
    path = RECORDS / "programs" / f"{program.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    # The parts of a program can be measured on different days and machines.
    origins = dict.fromkeys(parts, describe_origin())
    record["origins"] = earlier.get("origins", {}) | origins
    text = json.dumps(earlier | record, indent=1, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def write_example() -> None:
    """Write what raymeter prints about the program on its page."""
    print(EXAMPLE.stem, flush=True)
    folder = profile(EXAMPLE.stem, [str(EXAMPLE)])
    record = {"printed": read_text(folder / "profile.txt"), "origin": describe_origin()}
    RECORDS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, ensure_ascii=False)
    (RECORDS / "example.json").write_text(f"{text}\n", encoding="utf-8")


def measure_all(names: Sequence[str], pairs: int, parts: Sequence[str]) -> list[str]:
    """Measure the programs with these names, and return those that have failed."""
    programs = {program.name: program for program in read_programs()}
    failed = []
    for name in names:
        begin = time.monotonic()
        try:
            if name == EXAMPLE_NAME:
                write_example()
            else:
                measure(programs[name], pairs, parts)
        except Failed as error:
            print(f"  failed: {error}", flush=True)
            failed.append(name)
        seconds = time.monotonic() - begin
        print(f"  {seconds:.0f} s", flush=True)
    return failed


def main(words: Sequence[str] | None = None) -> None:
    """Measure the programs with these names, or all, and the example."""
    known = [program.name for program in read_programs()]
    known.append(EXAMPLE_NAME)
    parser = argparse.ArgumentParser(description="Profile programs with raymeter.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"default: {PAIRS}")
    parser.add_argument("--only", choices=PARTS, help="default: all parts")
    arguments = parser.parse_args(words)
    for name in arguments.names:
        if name not in known:
            parser.error(f"{name}: no such program. There are {', '.join(known)}")
    parts = [arguments.only] if arguments.only else PARTS
    failed = measure_all(arguments.names or known, arguments.pairs, parts)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}. Their records are as they were")


if __name__ == "__main__":
    main()
