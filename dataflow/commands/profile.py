"""Profile a Ray program that exists, without a change of it: which messages cost most, and why (docs/profile.md).

In your own folder and with your own Python, after  export PYTHONPATH=/path/to/this/clone :

python3 -m dataflow profile train.py --lr 1e-4      flags of your program go after the script
python3 -m dataflow profile -m my_package.train     the same for a module
python3 -m dataflow profile profiles/20261126T203046            print a profile again
python3 -m dataflow profile --replay profiles/20261126T203046   and measure its messages in the suite
"""

import argparse
import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any, NoReturn

from common.flags import OneLineParser
from dataflow.errors import INTERRUPTS, UsageError
from dataflow.profile.events import read_events
from dataflow.profile.flow import write_flow
from dataflow.profile.messages import Profile, make_profile
from dataflow.profile.output import print_profile
from dataflow.profile.terminal import shorten_path, terminal_width, wrap
from dataflow.profile.trace import write_drawing, write_trace
from dataflow.units import parse_bytes

ROOT = Path(__file__).resolve().parents[2]
INSIDE = ROOT / "dataflow" / "profile" / "inside"  # what runs in the processes of the program
PROFILES = Path("profiles")  # in the current folder; records of the suite are in results/
FAULT_PAGES = 16_384
PAGE_BYTES = 4096
MAX_DIFFERENCE = 0.25  # of the time in the program, within which a replay holds
REPLAYED = (
    "store refs",
    "store refs --retain-memory",
    "store refs --message packed",
    "store refs --zero-copy",
    "store refs --message packed --retain-memory",
)


class ProfileParser(OneLineParser):
    """A parser that knows the usual mistake: a flag of the program before its script."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):
            message += ": flags of your program go after the script"
        super().error(message)


def make_parser() -> ProfileParser:
    """Return the parser of the flags."""
    parser = ProfileParser(
        "python3 -m dataflow profile",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--min-bytes",
        type=parse_bytes,
        default="100KiB",
        help="smaller messages are only counted (%(default)s)",
    )
    parser.add_argument(
        "--step",
        metavar="NAME",
        help="method that ends a step, as Trainer.train (default: the rarest repeated one)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=PROFILES / time.strftime("%Y%m%dT%H%M%S"),
        help="new folder of the profile (default: a new name in profiles/ of the current folder)",
    )
    parser.add_argument(
        "--replay",
        action="store_true",
        help="measure the messages in the suite, which needs its packages",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT",
        help="a Ray program and its arguments, or a profile",
    )
    return parser


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Return the flags and the program; raise UsageError before anything starts."""
    arguments = make_parser().parse_args(argv)
    name = arguments.program[0] if arguments.program else ""
    is_folder = bool(name) and not arguments.module
    arguments.is_profile = is_folder and any(Path(name).glob("*.jsonl"))
    is_program = arguments.module or arguments.is_profile or Path(name).is_file()
    if not name or not is_program:
        raise UsageError(
            f"{name or 'no script'}: give a script that exists, -m and a module, or a folder of a profile"
        )
    if os.environ.get("RAY_ADDRESS", "").startswith("ray://"):
        raise UsageError(
            "RAY_ADDRESS=ray://: a client cannot be profiled: start the program on a node of the cluster"
        )
    output = arguments.output
    if output.exists() and (output.is_file() or any(output.iterdir())):
        raise UsageError(f"--output {output}: it has files already: give a new folder")
    return arguments


def add_profiler(
    environment: Mapping[str, str], folder: Path, min_bytes: int = 102_400
) -> dict[str, str]:
    """Return the environment with which a program of Ray writes its messages into a folder."""
    path = join_paths(str(INSIDE), environment.get("PYTHONPATH", ""))
    added = {
        "PYTHONPATH": path,
        "RAY_RUNTIME_ENV_HOOK": "dataflow_hook.add_to_runtime_env",
        "DATAFLOW_PROFILE": f"{folder.resolve()}:{min_bytes}",
        "DATAFLOW_PROFILE_USERS_HOOK": environment.get("RAY_RUNTIME_ENV_HOOK", ""),
    }
    return {**environment, **added}


def join_paths(*paths: str) -> str:
    """Return the paths as one variable, without empty ones, which would mean the current folder."""
    return os.pathsep.join(path for path in paths if path)


def hide_clone(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without this clone in PYTHONPATH.

    It is there so that `-m dataflow` works. In the program, its package `common` could hide one of the user's.
    """
    path = environment.get("PYTHONPATH", "")
    others = [folder for folder in path.split(os.pathsep) if not is_clone(folder)]
    return {**environment, "PYTHONPATH": join_paths(*others)}


def is_clone(folder: str) -> bool:
    return bool(folder) and Path(folder).resolve() == ROOT


def run_program(arguments: argparse.Namespace) -> int:
    """Run the user's program with Ray's hook, and return its exit code; signals go to the program."""
    folder = Path.cwd() if arguments.module else Path(arguments.program[0]).resolve().parent
    environment = dict(os.environ)
    if not folder.is_relative_to(ROOT):  # examples of this clone import it
        environment = hide_clone(environment)
    environment = add_profiler(environment, arguments.output, arguments.min_bytes)
    arguments.output.mkdir(0o700, parents=True, exist_ok=True)
    command = [sys.executable, *arguments.program]
    if arguments.module:
        command.insert(1, "-m")
    process = subprocess.Popen(command, env=environment)

    def pass_on(number: int, _: object) -> None:
        if number != signal.SIGINT:  # a terminal sends Ctrl-C to the program, too
            process.send_signal(number)

    for number in INTERRUPTS:
        signal.signal(number, pass_on)
    code = process.wait()
    for number in INTERRUPTS:
        signal.signal(number, signal.default_int_handler)
    return code if code >= 0 else 128 - code  # of a signal, as shells do it


def measure_fault_seconds() -> float:
    """Return the time of one page fault on this machine."""
    start = time.perf_counter()
    faults_before = getrusage(RUSAGE_SELF).ru_minflt
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # as malloc gets its memory
    memory = mmap.mmap(-1, FAULT_PAGES * PAGE_BYTES, private)
    memory[::PAGE_BYTES] = bytes(FAULT_PAGES)  # one byte of each page
    faults = getrusage(RUSAGE_SELF).ru_minflt - faults_before
    return (time.perf_counter() - start) / faults


def replay(profile: Profile, folder: Path) -> int:
    """Measure the messages in the suite, first as the program sends them, and compare; return the exit code."""
    # The suite needs packages that the program may lack.
    from dataflow.analysis.result import group_results
    from dataflow.commands import run
    from dataflow.records.files import load_all

    causes = [cause for message in profile.messages for cause in message.causes]
    own = "store driver-queue" if "through the driver" in causes else "store refs"
    if profile.retained:
        own += " --retain-memory"
    others = [configuration for configuration in REPLAYED if configuration != own]
    output = folder / "replay"
    flags = ["--flow", str(folder / "flow.toml"), "--iterations", "10", "--runs", "3"]
    code = run.main([own, *others, *flags, "--output", str(output)])
    results = group_results(load_all([output]))
    times = {result.label: result.typical_seconds for result in results}
    seen = profile.flow_seconds
    again = times.get(own, float("inf"))
    verdict = "does not hold: it differs by more than 25 %"
    if abs(again - seen) <= seen * MAX_DIFFERENCE:
        verdict = "holds"
    print(
        f"Messages of a step: {seen:.3g} s in the program, summed; {again:.3g} s as {own}. The replay {verdict}."
    )
    return code


def read_earlier(record: Path) -> dict[str, Any]:
    """Return what an earlier call has measured: the time of a page fault, and the method that ends a step."""
    if record.exists():
        return json.loads(record.read_text())
    return {"fault_seconds": measure_fault_seconds(), "step": None}


def write_files(folder: Path, profile: Profile) -> None:
    """Write the files of a profile that other programs read."""
    _, events = read_events(folder)
    write_trace(folder / "trace.json", events)
    write_drawing(folder / "flow.svg", profile.messages)
    profile.flow_seconds = write_flow(folder / "flow.toml", profile)
    (folder / "profile.json").write_text(json.dumps(asdict(profile), indent=1))


def main(argv: Sequence[str]) -> int:
    """Return the exit code of the program; 2 if it has ended well and nothing can be shown."""
    arguments = parse_arguments(argv)
    folder = Path(arguments.program[0]) if arguments.is_profile else arguments.output
    code = 0 if arguments.is_profile else run_program(arguments)
    shown_folder = shorten_path(str(folder))
    earlier = read_earlier(folder / "profile.json")
    step = arguments.step or earlier["step"]
    try:
        profile = make_profile(folder, earlier["fault_seconds"], step)
    except UsageError as error:
        print(f"error: {error} (profile {shown_folder} reads the files again)", file=sys.stderr)
        return code or 2
    for name in profile.missing:
        print(
            f"warning: Ray {profile.ray} has no {name}: messages through it are not recorded",
            file=sys.stderr,
        )
    write_files(folder, profile)
    width = terminal_width()
    print_profile(profile, width)
    names = [path.name for path in folder.iterdir() if path.suffix != ".jsonl"]
    print(wrap(f"Files in {shown_folder}: {', '.join(sorted(names))}", width))
    if code == 0 and arguments.replay:
        return replay(profile, folder)
    return code
