# SPDX-License-Identifier: Apache-2.0
"""Measure what recording costs: the CPU time of programs with all of Ray's processes, while it is on and off.

    python raymeter/tests/measure_cost.py [--runs 2] [--pairs 50] [--seconds 0.6] [--only NAME] [--output F]

Five programs do as much as they can. Each repeats its rounds under raymeter. After the first 12 s, recording is
switched off and on again in all of its processes, and each pair of windows has one with recording and one without, in
turns the one or the other first. So both have the same processes, memory and cores, and what happens once is in
neither: in the first seconds, raymeter describes and measures messages of new kinds, for about 0.5 s per process, and
writes the first ones without a limit of its share (recorder.FIRST_MESSAGE_SECONDS and EXTRA_SECONDS). The cost is the
geometric mean of the pairs' ratios of CPU time per round, with its 95 % interval. Ray's own work that grows because
calls come more slowly is in it. What raymeter says that it took in the same windows is listed beside it. Windows are
short, because the speed of a core that others use changes within seconds.

While recording is off, each function that raymeter has wrapped still looks at one variable before it calls the
original. `measure_wrapper` measures that apart. The time of whole commands without all these seconds is listed, with
and without raymeter: it has the start and the analysis in it.

Nothing else may run on the machine. It takes about 20 minutes. `make publish` writes the table.
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
from statistics import median
from typing import Any

from origin import load_origin

SOURCE = Path(__file__).resolve().parents[1] / "src"
TICKS = os.sysconf("SC_CLK_TCK")
KIB_100 = 100 * 2**10
FIRST_SECONDS = 12.0  # in which raymeter spends what it may take once in each process
QUIET_SECONDS = 1.5  # in which the last workers start
MORE_ROUNDS = 5
LEAD_SECONDS = 0.5  # before each window, in which the first message after a pause is described
MAX_SECONDS = 400  # of a run
RESULT = "RESULT "
CALLS = "raymeter.inside.calls"  # the module that has the recorder of a process
WRAPPER_CALLS = 200_000
COST = re.compile(r"Recording took (.+?)\.\s+Profile:", re.DOTALL)

Round = Callable[[], object]


@dataclass(frozen=True)
class Playing:
    """A program that has started: what plays one of its rounds, and its actor, which is a Switched."""

    play_round: Round
    actor: Any


@dataclass(frozen=True)
class Program:
    """A program. `make` starts its actor."""

    make: Callable[[], Playing]
    what: str  # it does
    unit: str  # of what it does per second
    units: int  # per round
    goal: float  # share of the CPU time that recording may take


@dataclass(frozen=True)
class Window:
    """What was measured in some seconds."""

    rounds: int
    seconds: float
    cpu_seconds: float

    @property
    def cpu_ms(self) -> float:
        """Return the CPU time of a round."""
        return 1e3 * self.cpu_seconds / self.rounds

    @property
    def round_ms(self) -> float:
        return 1e3 * self.seconds / self.rounds


@dataclass
class Turns:
    """The windows of a run, in pairs, and how long all of them took together.

    `own_seconds` is the CPU time that recording took by its own clocks, of `recording_seconds` of CPU time in the
    windows with recording, and directly before them.
    """

    plain: list[Window] = field(default_factory=list)
    recorded: list[Window] = field(default_factory=list)
    seconds: float = 0.0
    own_seconds: float = 0.0
    recording_seconds: float = 0.0


@dataclass(frozen=True)
class Run:
    """One run of a program."""

    turns: Turns  # without windows if the program is not recorded
    once_seconds: float  # of the whole command, without the first and the measured seconds
    said: str  # by raymeter about its own cost; "" without it


@dataclass
class Cost:
    """The CPU time per round of a program, in pairs of windows, and what happens once in its runs."""

    name: str
    what: str
    unit: str
    goal: float
    per_second: float = 0.0  # in the windows without recording
    plain_ms: list[float] = field(default_factory=list)
    recorded_ms: list[float] = field(default_factory=list)
    once_plain_seconds: list[float] = field(default_factory=list)
    once_recorded_seconds: list[float] = field(default_factory=list)
    own_shares: list[float] = field(
        default_factory=list
    )  # of the CPU time, which recording says it took, per run
    said: str = ""


class Switch:
    """Switches recording in this process off and on again, with the budgets that it had."""

    def __init__(self) -> None:
        self.recorder: Any = None
        self.time = 0.0
        self.cpu_seconds = 0.0

    def switch_off(self) -> None:
        """Record nothing more until `switch_on`. Raise AttributeError if recording has ended, or is off."""
        calls = sys.modules[CALLS]
        calls.recorder.flush()
        self.recorder, calls.recorder = calls.recorder, False
        self.time = time.time()
        self.cpu_seconds = time.process_time()

    def switch_on(self) -> None:
        """Go on. The budgets do not grow by the time that has passed meanwhile."""
        passed = time.time() - self.time
        cpu_passed = time.process_time() - self.cpu_seconds
        recorder = self.recorder
        recorder.started_at += passed
        recorder.cpu_seconds += cpu_passed
        recorder.cpu_at_start += cpu_passed
        recorder.start_window(time.time())
        sys.modules[CALLS].recorder = recorder


def own_seconds() -> float:
    """Return the CPU seconds that recording has taken in this process so far, by its own clocks."""
    seconds: float = sys.modules[CALLS].recorder.all_own_seconds()
    return seconds


class Switched:
    """The base class of the actors, which are switched together with the driver."""

    def __init__(self) -> None:
        self.switch = Switch()

    def set_recording(self, is_on: bool) -> None:
        if is_on:
            self.switch.switch_on()
        else:
            self.switch.switch_off()

    def own_seconds(self) -> float:
        return own_seconds()


def send_often() -> Playing:
    """Send 100 KiB to an actor, 50 times."""
    import numpy as np
    import ray

    class Reader(Switched):
        def read(self, array):
            return len(array)

    reader = ray.remote(Reader).remote()
    array = np.zeros(KIB_100 // 8)

    def play_round():
        array[:] += 1.0
        ray.get([reader.read.remote(array) for _ in range(50)])

    return Playing(play_round, reader)


def send_large() -> Playing:
    """Send 16 MiB to an actor, which returns 16 MiB."""
    import numpy as np
    import ray

    class Worker(Switched):
        def work(self, batch):
            return batch["x"] + 1.0

    worker = ray.remote(Worker).remote()
    batch = {"x": np.zeros(2**21)}

    def play_round():
        batch["x"][::512] += 1.0
        ray.get(worker.work.remote(batch))

    return Playing(play_round, worker)


def send_many_parts() -> Playing:
    """Send a dict of 2,000 small arrays and 2,000 texts to an actor."""
    import numpy as np
    import ray

    class Reader(Switched):
        def read(self, message):
            return len(message)

    reader = ray.remote(Reader).remote()
    message = {f"array {number}": np.ones(64) for number in range(2_000)}
    message |= {f"text {number}": f"some text {number}" for number in range(2_000)}

    def play_round():
        message["array 0"] += 1.0
        ray.get(reader.read.remote(message))

    return Playing(play_round, reader)


def call_often() -> Playing:
    """Call a method 200 times with a number."""
    import ray

    class Counter(Switched):
        def count(self, number):
            return number

    counter = ray.remote(Counter).remote()

    def play_round():
        ray.get([counter.count.remote(number) for number in range(200)])

    return Playing(play_round, counter)


def compute() -> Playing:
    """Let an actor compute for some milliseconds."""
    import ray

    class Worker(Switched):
        def work(self):
            return sum(number * number for number in range(200_000))

    worker = ray.remote(Worker).remote()

    def play_round():
        ray.get(worker.work.remote())

    return Playing(play_round, worker)


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
        call_often, "a method gets and returns a number, 200 in flight", "calls", 200, 0.05
    ),
    "computing": Program(compute, "a method computes for some milliseconds", "calls", 1, 0.02),
}


def play(name: str, pairs: int, seconds: float) -> None:
    """Run a program, and print what it took after the warm-up, in pairs of windows if it is recorded."""
    import ray

    ray.init(num_cpus=2, object_store_memory=10**9, logging_level="error")
    playing = PROGRAMS[name].make()
    measure_window(playing.play_round, FIRST_SECONDS)
    time.sleep(QUIET_SECONDS)
    for _ in range(MORE_ROUNDS):
        playing.play_round()
    turns = measure_turns(playing, pairs, seconds) if CALLS in sys.modules else Turns()
    print(RESULT + json.dumps(asdict(turns)), flush=True)


def measure_turns(playing: Playing, pairs: int, seconds: float) -> Turns:
    """Measure windows with and without recording, in pairs. The first pair begins with recording, the next one without.

    The CPU time before a window counts for what recording takes, too, but not what passes while it is switched.
    """
    import ray

    switch = Switch()
    turns = Turns()
    begin = time.monotonic()
    own_before = own_seconds() + ray.get(playing.actor.own_seconds.remote())
    for pair in range(pairs):
        is_recorded_first = pair % 2 == 0
        for is_recorded in (is_recorded_first, not is_recorded_first):
            if is_recorded:
                lead, window = measure_after_lead(playing.play_round, seconds)
                turns.recorded.append(window)
                turns.recording_seconds += lead.cpu_seconds + window.cpu_seconds
            else:
                ray.get(playing.actor.set_recording.remote(False))
                switch.switch_off()
                _, window = measure_after_lead(playing.play_round, seconds)
                turns.plain.append(window)
                switch.switch_on()
                ray.get(playing.actor.set_recording.remote(True))
    own_after = own_seconds() + ray.get(playing.actor.own_seconds.remote())
    turns.own_seconds = own_after - own_before
    turns.seconds = time.monotonic() - begin
    return turns


def measure_after_lead(play_round: Round, seconds: float) -> tuple[Window, Window]:
    """Return the time before a window, and the window."""
    lead = measure_window(play_round, LEAD_SECONDS)
    return lead, measure_window(play_round, seconds)


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


def run(name: str, pairs: int, seconds: float, is_recorded: bool) -> Run:
    """Run a program in a process of its own. Raise SystemExit if nothing was measured."""
    command = ["-m", "raymeter"] if is_recorded else []
    flags = ["--play", name, "--pairs", str(pairs), "--seconds", str(seconds)]
    words = [sys.executable, *command, __file__, *flags]
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths)))
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        done = subprocess.run(
            words, env=environment, cwd=folder, capture_output=True, text=True, timeout=MAX_SECONDS
        )
        passed = time.monotonic() - begin
    printed = [line for line in done.stdout.splitlines() if line.startswith(RESULT)]
    if not printed:
        raise SystemExit(f"{name}: nothing was measured\n{done.stdout}\n{done.stderr}")
    turns = read_turns(json.loads(printed[0].removeprefix(RESULT)))
    once_seconds = passed - FIRST_SECONDS - turns.seconds
    return Run(turns, once_seconds, find_own_cost(done.stdout))


def read_turns(printed: dict[str, Any]) -> Turns:
    """Return what a program has printed about its windows."""
    plain = [Window(**window) for window in printed["plain"]]
    recorded = [Window(**window) for window in printed["recorded"]]
    return Turns(**printed | {"plain": plain, "recorded": recorded})


def find_own_cost(text: str) -> str:
    """Return what raymeter has printed about its own cost, in one line."""
    found = COST.search(text)
    return " ".join(found.group(1).split()) if found else ""


def measure(name: str, runs: int, pairs: int, seconds: float) -> Cost:
    """Run a program under raymeter and without, in turns, and print the ratio of each pair of windows."""
    program = PROGRAMS[name]
    cost = Cost(name, program.what, program.unit, program.goal)
    rates: list[float] = []
    for _ in range(runs):
        recorded = run(name, pairs, seconds, is_recorded=True)
        plain = run(name, pairs, seconds, is_recorded=False)
        cost.once_recorded_seconds.append(recorded.once_seconds)
        cost.once_plain_seconds.append(plain.once_seconds)
        cost.own_shares.append(recorded.turns.own_seconds / recorded.turns.recording_seconds)
        cost.said = recorded.said
        for without, with_it in zip(recorded.turns.plain, recorded.turns.recorded, strict=True):
            cost.plain_ms.append(without.cpu_ms)
            cost.recorded_ms.append(with_it.cpu_ms)
            rates.append(1e3 * program.units / without.round_ms)
            ratio = with_it.cpu_ms / without.cpu_ms
            print(f"  {without.cpu_ms:.3f} -> {with_it.cpu_ms:.3f} ms: {ratio:.4f}", flush=True)
    cost.per_second = median(rates)
    return cost


def measure_wrapper() -> float:
    """Return the CPU seconds by which a wrapper makes a call longer while recording is off."""
    sys.path.insert(0, str(SOURCE))
    from raymeter.inside import calls

    def original() -> None:
        """Do nothing."""

    calls.recorder = False
    wrapper = calls.in_scope(record=None)(original)
    seconds = []
    for function in (original, wrapper):
        begin = time.process_time()
        for _ in range(WRAPPER_CALLS):
            function()
        seconds.append(time.process_time() - begin)
    without, with_it = seconds
    return (with_it - without) / WRAPPER_CALLS


def describe(cost: Cost) -> str:
    """Return the ratio of a program with its interval, and what raymeter says itself."""
    from raymeter.statistics import compare_pairs

    ratio = compare_pairs(cost.recorded_ms, cost.plain_ms)
    interval = f" ({ratio.low:.4f} to {ratio.high:.4f})" if ratio.has_interval else ""
    rate = f"{cost.per_second:,.0f} {cost.unit} per second"
    own = f"{median(cost.own_shares):.2%} by its own clocks"
    measured = f"{ratio.value:.4f}{interval} times the CPU time, {own}"
    return f"{cost.name}, {rate}: {measured}. It says: {cost.said}"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=2, help="of each program, with and without")
    parser.add_argument("--pairs", type=int, default=50, help="of windows in a run")
    parser.add_argument("--seconds", type=float, default=0.6, help="of a window")
    parser.add_argument("--only", choices=PROGRAMS)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--play", choices=PROGRAMS, help=argparse.SUPPRESS)
    flags = parser.parse_args(words)
    if flags.play:
        play(flags.play, flags.pairs, flags.seconds)
        return
    wrapper_seconds = measure_wrapper()
    print(f"A wrapper takes {1e6 * wrapper_seconds:.2f} µs while recording is off")
    costs = []
    for name in [flags.only] if flags.only else PROGRAMS:
        cost = measure(name, flags.runs, flags.pairs, flags.seconds)
        print(describe(cost), flush=True)
        costs.append(cost)
    if flags.output:
        record = {
            "origin": load_origin(),
            "cores": os.cpu_count(),
            "first_seconds": FIRST_SECONDS,
            "window_seconds": flags.seconds,
            "runs": flags.runs,
            "wrapper_seconds": wrapper_seconds,
            "programs": [asdict(cost) for cost in costs],
        }
        flags.output.parent.mkdir(parents=True, exist_ok=True)
        flags.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
