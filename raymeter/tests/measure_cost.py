# SPDX-License-Identifier: Apache-2.0
"""Measure what recording costs: the CPU time of programs with all of Ray's processes, with and without raymeter.

    python raymeter/tests/measure_cost.py [--pairs 5] [--seconds 4] [--only NAME] [--output cost.json]

Five programs do as much as they can. Each repeats its rounds, and prints the CPU time of its whole process tree per
round, for some seconds after the first 12. So what happens once is not in it: in the first seconds, raymeter describes
and measures messages of new kinds, for about 0.5 s per process, and writes the first ones without a limit of its share
(recorder.FIRST_MESSAGE_SECONDS and EXTRA_SECONDS). The time of the whole command without all these seconds is listed
apart: it has the start and the analysis in it. Runs with and without raymeter take turns, and each pair begins
with the other one. The cost is the geometric mean of the pairs' ratios, with its 95 % interval.

The program of small calls also runs a third time per pair: without raymeter, but busy in the driver after each call,
and in each method, for as long as raymeter says that it took there. What its CPU time grows by beyond that is work of
Ray, which calls that come more slowly cause, and not work of raymeter.

Nothing else may run on the machine. Five pairs take 25 minutes. `make publish` writes the table.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from origin import load_origin

SOURCE = Path(__file__).resolve().parents[1] / "src"
TICKS = os.sysconf("SC_CLK_TCK")
KIB_100 = 100 * 2**10
FIRST_SECONDS = 12.0  # in which raymeter spends what it may take once in each process
QUIET_SECONDS = 1.5  # in which the last workers start
MORE_ROUNDS = 5
MAX_SECONDS = 240  # of a run
RESULT = "RESULT "
BUSY_DRIVER = "BUSY_DRIVER_SECONDS"
BUSY_WORKER = "BUSY_WORKER_SECONDS"
COST = re.compile(r"Recording took (.+?)\.\s+Profile:", re.DOTALL)

Round = Callable[[], object]


@dataclass(frozen=True)
class Program:
    """A program. `make` starts its actors, and returns what plays a round."""

    make: Callable[[], Round]
    what: str  # it does
    unit: str  # of what it does per second
    units: int  # per round
    goal: float  # share of the CPU time that recording may take
    has_busy_runs: bool = False  # without raymeter, but as busy as with it


@dataclass(frozen=True)
class Busy:
    """How long a program is busy by itself, in seconds per call."""

    driver: float
    worker: float


@dataclass(frozen=True)
class Window:
    """What was measured in the seconds after the warm-up."""

    rounds: int
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Run:
    """One run of a program."""

    cpu_ms: float  # per round
    round_ms: float
    once_seconds: float  # of the whole command, without the first and the measured seconds
    said: str  # by raymeter about its own cost; "" without it
    own: Busy | None = None  # what raymeter has taken per call; None without it


@dataclass
class Cost:
    """The runs of a program, in pairs."""

    name: str
    what: str
    unit: str
    per_second: float  # without raymeter, in the last run
    goal: float
    plain: list[Run] = field(default_factory=list)
    recorded: list[Run] = field(default_factory=list)
    busy: list[Run] = field(default_factory=list)
    busy_seconds: list[Busy] = field(default_factory=list)  # of those runs


def send_often() -> Round:
    """Send 100 KiB to an actor, 50 times."""
    import numpy as np
    import ray

    class Reader:
        def read(self, array):
            return len(array)

    reader = ray.remote(Reader).remote()
    array = np.zeros(KIB_100 // 8)

    def play_round():
        array[:] += 1.0
        ray.get([reader.read.remote(array) for _ in range(50)])

    return play_round


def send_large() -> Round:
    """Send 16 MiB to an actor, which returns 16 MiB."""
    import numpy as np
    import ray

    class Worker:
        def work(self, batch):
            return batch["x"] + 1.0

    worker = ray.remote(Worker).remote()
    batch = {"x": np.zeros(2**21)}

    def play_round():
        batch["x"][::512] += 1.0
        ray.get(worker.work.remote(batch))

    return play_round


def send_many_parts() -> Round:
    """Send a dict of 2,000 small arrays and 2,000 texts to an actor."""
    import numpy as np
    import ray

    class Reader:
        def read(self, message):
            return len(message)

    reader = ray.remote(Reader).remote()
    message = {f"array {number}": np.ones(64) for number in range(2_000)}
    message |= {f"text {number}": f"some text {number}" for number in range(2_000)}

    def play_round():
        message["array 0"] += 1.0
        ray.get(reader.read.remote(message))

    return play_round


def call_often() -> Round:
    """Call a method 200 times with a number, and be busy as long as the variables BUSY_DRIVER and BUSY_WORKER say."""
    import ray

    driver_seconds = float(os.environ.get(BUSY_DRIVER, "0"))
    worker_seconds = float(os.environ.get(BUSY_WORKER, "0"))

    class Counter:
        def count(self, number):
            if worker_seconds:
                be_busy(worker_seconds)
            return number

    counter = ray.remote(Counter).remote()

    def call(number):
        ref = counter.count.remote(number)
        if driver_seconds:
            be_busy(driver_seconds)
        return ref

    def play_round():
        ray.get([call(number) for number in range(200)])

    return play_round


def be_busy(seconds: float) -> None:
    """Use a CPU for some seconds."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def compute() -> Round:
    """Let an actor compute for some milliseconds."""
    import ray

    class Worker:
        def work(self):
            return sum(number * number for number in range(200_000))

    worker = ray.remote(Worker).remote()

    def play_round():
        ray.get(worker.work.remote())

    return play_round


PROGRAMS = {
    "messages of 100 KiB": Program(
        send_often, "an actor reads an array of 100 KiB, 50 in flight", "messages", 50, 0.02
    ),
    "messages of 16 MiB": Program(
        send_large, "an actor gets and returns an array of 16 MiB", "messages", 2, 0.02
    ),
    "messages of many parts": Program(
        send_many_parts,
        "an actor reads 2,000 arrays and 2,000 texts in a dict",
        "messages",
        1,
        0.02,
    ),
    "small calls": Program(
        call_often, "a method gets and returns a number, 200 in flight", "calls", 200, 0.05, True
    ),
    "computing": Program(compute, "a method computes for some milliseconds", "calls", 1, 0.02),
}


def play(name: str, seconds: float) -> None:
    """Run a program, and print what it took after the warm-up."""
    import ray

    ray.init(num_cpus=2, object_store_memory=10**9, logging_level="error")
    play_round = PROGRAMS[name].make()
    end = time.monotonic() + FIRST_SECONDS
    while time.monotonic() < end:
        play_round()
    time.sleep(QUIET_SECONDS)
    for _ in range(MORE_ROUNDS):
        play_round()
    window = measure_window(play_round, seconds)
    print(RESULT + json.dumps(asdict(window)), flush=True)


def measure_window(play_round: Round, seconds: float) -> Window:
    """Play rounds for some seconds, and return what they took."""
    before = cpu_seconds_of_tree(os.getpid())
    begin = time.monotonic()
    end = begin + seconds
    rounds = 0
    while time.monotonic() < end:
        play_round()
        rounds += 1
    passed = time.monotonic() - begin
    used = cpu_seconds_of_tree(os.getpid()) - before
    return Window(rounds, passed, used)


def cpu_seconds_of_tree(root: int) -> float:
    """Return the CPU seconds of a process and of all that descend from it and are alive."""
    used: dict[int, float] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # it has ended
            continue
        pid = int(path.parent.name)
        fields = text.rpartition(")")[2].split()
        parent = int(fields[1])
        children[parent].append(pid)
        ticks = int(fields[11]) + int(fields[12])
        used[pid] = ticks / TICKS
    total = 0.0
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        total += used.get(pid, 0.0)
        waiting += children[pid]
    return total


def run(name: str, seconds: float, is_recorded: bool, busy: Busy | None = None) -> Run:
    """Run a program in a process of its own. `busy` is for a program that is not recorded."""
    command = ["-m", "raymeter"] if is_recorded else []
    words = [sys.executable, *command, __file__, "--play", name, "--seconds", str(seconds)]
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths)))
    if busy is not None:
        environment[BUSY_DRIVER] = str(busy.driver)
        environment[BUSY_WORKER] = str(busy.worker)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        done = subprocess.run(
            words, env=environment, cwd=folder, capture_output=True, text=True, timeout=MAX_SECONDS
        )
        passed = time.monotonic() - begin
        own = read_own_seconds(Path(folder)) if is_recorded else None
    printed = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
    if not printed:
        raise SystemExit(f"{name}: nothing was measured\n{done.stdout}\n{done.stderr}")
    window = Window(**json.loads(printed[0].removeprefix(RESULT)))
    cpu_ms = 1e3 * window.cpu_seconds / window.rounds
    round_ms = 1e3 * window.seconds / window.rounds
    once_seconds = passed - FIRST_SECONDS - window.seconds
    return Run(cpu_ms, round_ms, once_seconds, find_own_cost(done.stdout), own)


def read_own_seconds(folder: Path) -> Busy:
    """Return what raymeter has taken per call of the program, by its own clocks, in the driver and in the workers."""
    seconds = {"driver": 0.0, "worker": 0.0}
    calls = 0
    for path in folder.glob("raymeter-profiles/*/*.jsonl"):
        events = [json.loads(line) for line in path.read_text().splitlines()]
        reports = [event for event in events if event["event"] == "recorder"]
        if not reports:
            continue
        role = events[0]["role"]
        seconds[role] += reports[-1]["own_seconds"]
        counted = [line["count"] for line in reports[-1]["counted"] if line["kind"] == "call"]
        calls += sum(counted)
    return Busy(seconds["driver"] / max(1, calls), seconds["worker"] / max(1, calls))


def find_own_cost(text: str) -> str:
    """Return what raymeter has printed about its own cost, in one line."""
    found = COST.search(text)
    return " ".join(found.group(1).split()) if found else ""


def measure(name: str, pairs: int, seconds: float) -> Cost:
    """Run a program in pairs, and print each ratio."""
    program = PROGRAMS[name]
    cost = Cost(name, program.what, program.unit, 0.0, program.goal)
    for pair in range(pairs):
        is_recorded_first = pair % 2 == 0
        for is_recorded in (is_recorded_first, not is_recorded_first):
            runs = cost.recorded if is_recorded else cost.plain
            runs.append(run(name, seconds, is_recorded))
        plain, recorded = cost.plain[-1], cost.recorded[-1]
        ratio = recorded.cpu_ms / plain.cpu_ms
        print(f"  {plain.cpu_ms:.3f} -> {recorded.cpu_ms:.3f} ms: {ratio:.4f}", flush=True)
        if program.has_busy_runs and recorded.own is not None:
            busy = run(name, seconds, False, recorded.own)
            cost.busy.append(busy)
            cost.busy_seconds.append(recorded.own)
            ratio = busy.cpu_ms / plain.cpu_ms
            print(f"  as busy: {busy.cpu_ms:.3f} ms: {ratio:.4f} ({recorded.own})", flush=True)
    cost.per_second = 1e3 * program.units / cost.plain[-1].round_ms
    return cost


def describe(cost: Cost) -> str:
    """Return the ratio of a program with its interval, and what raymeter says itself."""
    from raymeter.statistics import compare_pairs

    recorded = [run.cpu_ms for run in cost.recorded]
    plain = [run.cpu_ms for run in cost.plain]
    ratio = compare_pairs(recorded, plain)
    interval = f" ({ratio.low:.4f} to {ratio.high:.4f})" if ratio.has_interval else ""
    rate = f"{cost.per_second:,.0f} {cost.unit} per second"
    said = cost.recorded[-1].said
    return f"{cost.name}, {rate}: {ratio.value:.4f}{interval} times the CPU time. It says: {said}"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--only", choices=PROGRAMS)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--play", choices=PROGRAMS, help=argparse.SUPPRESS)
    flags = parser.parse_args(words)
    if flags.play:
        play(flags.play, flags.seconds)
        return
    sys.path.insert(0, str(SOURCE))
    costs = []
    for name in [flags.only] if flags.only else PROGRAMS:
        cost = measure(name, flags.pairs, flags.seconds)
        print(describe(cost), flush=True)
        costs.append(cost)
    if flags.output:
        record = {
            "origin": load_origin(),
            "cores": os.cpu_count(),
            "first_seconds": FIRST_SECONDS,
            "programs": [asdict(cost) for cost in costs],
        }
        flags.output.parent.mkdir(parents=True, exist_ok=True)
        flags.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
