"""Profile a Ray program that exists, without a change of it: which messages cost most, and why (docs/profile.md).

python3 -m dataflow profile train.py --lr 1e-4                flags after the script (or -m MODULE) are its own
python3 -m dataflow profile --replay results/run-profile-1    print a profile again, and measure its messages
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
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

from common.flags import OneLineParser
from dataflow.errors import INTERRUPTS, UsageError
from dataflow.profile.messages import make_profile, read_events
from dataflow.profile.output import print_profile, write_drawing, write_flow, write_trace
from dataflow.units import parse_bytes

REPLAYED = ("store refs", "store refs --retain-memory", "store refs --message packed", "store refs --zero-copy",
            "store refs --message packed --retain-memory")  # fmt: skip


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Return the flags and the program; raise UsageError before anything starts."""
    parser = OneLineParser("python3 -m dataflow profile", description=__doc__, allow_abbrev=False,
                           formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    add(
        "--min-bytes",
        type=parse_bytes,
        default="100KiB",
        help="smaller messages are only counted (%(default)s)",
    )
    add(
        "--step",
        metavar="NAME",
        help="method that ends a step, as Trainer.train (default: the rarest repeated one)",
    )
    new = Path("results", f"run-profile-{time.strftime('%Y%m%dT%H%M%S')}")
    add(
        "--output",
        type=Path,
        default=new,
        help="new folder of the profile (default: a new name in results/)",
    )
    add(
        "--replay",
        action="store_true",
        help="measure the messages in the suite, which needs its packages",
    )
    add("-m", dest="module", action="store_true", help="the program is a module")
    add(
        "program",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT",
        help="a Ray program and its arguments, or a profile",
    )
    arguments = parser.parse_args(argv)
    name, new = "".join(arguments.program[:1]), arguments.output
    arguments.is_profile = bool(name) and not arguments.module and any(Path(name).glob("*.jsonl"))
    if not name or not (arguments.module or arguments.is_profile or Path(name).is_file()):
        raise UsageError(
            f"{name or 'no script'}: give a script that exists, -m and a module, or a folder of a profile"
        )
    if os.environ.get("RAY_ADDRESS", "").startswith("ray://"):
        raise UsageError(
            "RAY_ADDRESS=ray://: a client cannot be profiled: start the program on a node of the cluster"
        )
    if new.exists() and (new.is_file() or any(new.iterdir())):
        raise UsageError(f"--output {new}: it has files already: give a new folder")
    return arguments


def add_profiler(
    environment: Mapping[str, str], folder: Path, min_bytes: int = 102_400
) -> dict[str, str]:
    """Return the environment with which a program of Ray writes its messages into a folder."""
    inside = str(Path(__file__).parents[1] / "profile" / "inside")
    path = os.pathsep.join(filter(None, [inside, environment.get("PYTHONPATH")]))
    return {**environment, "PYTHONPATH": path, "RAY_RUNTIME_ENV_HOOK": "dataflow_hook.add_to_runtime_env",
            "DATAFLOW_PROFILE": f"{folder.resolve()}:{min_bytes}",
            "DATAFLOW_PROFILE_USERS_HOOK": environment.get("RAY_RUNTIME_ENV_HOOK", "")}  # fmt: skip


def run_program(arguments: argparse.Namespace) -> int:
    """Run the user's program with Ray's hook, and return its exit code; signals go to the program."""
    environment = add_profiler(os.environ, arguments.output, arguments.min_bytes)
    arguments.output.mkdir(0o700, parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, *["-m"] * arguments.module, *arguments.program], env=environment
    )
    for number in INTERRUPTS:  # a terminal sends Ctrl-C to the program, too
        signal.signal(
            number,
            lambda number, _: None if number == signal.SIGINT else process.send_signal(number),
        )
    code = process.wait()
    for number in INTERRUPTS:
        signal.signal(number, signal.default_int_handler)
    return code if code >= 0 else 128 - code  # of a signal, as shells do it


def measure_fault_seconds() -> float:
    """Return the time of one page fault on this machine."""
    pages, flags = 16_384, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # as malloc gets its memory
    start, faults, memory = (
        time.perf_counter(),
        getrusage(RUSAGE_SELF).ru_minflt,
        mmap.mmap(-1, pages * 4096, flags),
    )
    memory[::4096] = bytes(pages)  # one byte of each page
    return (time.perf_counter() - start) / (getrusage(RUSAGE_SELF).ru_minflt - faults)


def replay(profile: dict, folder: Path) -> int:
    """Measure the messages in the suite, first as the program sends them, and compare; return the exit code."""
    from dataflow.analysis.result import (
        group_results,
    )  # the suite needs packages that the program may lack
    from dataflow.commands import run
    from dataflow.records.files import load_all

    is_forwarded = any("through the driver" in message["causes"] for message in profile["messages"])
    own = ("store driver-queue" if is_forwarded else "store refs") + " --retain-memory" * profile[
        "retained"
    ]
    flags = [
        "--flow",
        folder / "flow.toml",
        "--iterations",
        10,
        "--runs",
        3,
        "--output",
        folder / "replay",
    ]
    code = run.main([*dict.fromkeys([own, *REPLAYED]), *map(str, flags)])
    times = {
        result.label: result.typical_seconds
        for result in group_results(load_all([folder / "replay"]))
    }
    seen, again = profile["flow_seconds"], times.get(own, float("inf"))
    holds = (
        "holds" if abs(again - seen) <= seen / 4 else "does not hold: it differs by more than 25 %"
    )
    print(
        f"Messages of a step: {seen:.3g} s in the program, summed; {again:.3g} s as {own}. The replay {holds}."
    )
    return code


def main(argv: Sequence[str]) -> int:
    """Return the exit code of the program; 2 if it has ended well and nothing can be shown."""
    arguments = parse_arguments(argv)
    folder = Path(arguments.program[0]) if arguments.is_profile else arguments.output
    code = 0 if arguments.is_profile else run_program(arguments)
    record = folder / "profile.json"
    earlier: dict = (
        json.loads(record.read_text())
        if record.exists()
        else {"fault_seconds": measure_fault_seconds()}
    )
    try:
        profile = make_profile(
            folder, earlier["fault_seconds"], arguments.step or earlier.get("step")
        )
    except UsageError as error:
        print(f"error: {error} (profile {folder} reads the files again)", file=sys.stderr)
        return code or 2
    for name in profile["missing"]:
        print(
            f"warning: Ray {profile['ray']} has no {name}: messages through it are not recorded",
            file=sys.stderr,
        )
    write_trace(folder / "trace.json", read_events(folder)[1])
    profile["flow_seconds"] = write_flow(folder / "flow.toml", profile)
    record.write_text(json.dumps(profile, indent=1))
    print_profile(profile)
    write_drawing(folder / "flow.svg", profile["messages"])
    print(
        f"Files in {folder}: {', '.join(sorted(path.name for path in folder.iterdir() if path.suffix != '.jsonl'))}"
    )
    return code or (replay(profile, folder) if arguments.replay else 0)
