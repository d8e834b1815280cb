"""Measure what recording costs: CPU time of a program with all of Ray's processes, with and without raymeter, in pairs.

    python raymeter/tests/measure_cost.py [--pairs 5] [--seconds 5] [--only NAME]

A program works for some seconds after a warm-up. What it prints is the CPU time of its whole process tree (from
/proc) per round of work, so the start and the end of Ray do not count. The factor of a pair is the time with raymeter
divided by the time without, and the interval contains the mean factor with a probability of 95 %. Runs are in turns,
and each pair begins with the other one. Use a quiet machine.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
TICKS = os.sysconf("SC_CLK_TCK")
WARM_UP_SECONDS = 2.0
PRINTED = "CPU_MS_PER_ROUND"
MAX_SECONDS = 240


def large_messages() -> Callable[[], None]:
    """Send 8 MiB to an actor, which returns 8 MiB: one round."""
    import numpy as np
    import ray

    class Worker:
        def work(self, batch):
            return batch["x"] + 1.0

    worker = ray.remote(Worker).remote()
    batch = {"x": np.ones(2**20), "step": 0}

    def play_round():
        batch["step"] += 1
        batch["x"][::512] = batch["step"]
        ray.get(worker.work.remote(batch))

    return play_round


def small_calls() -> Callable[[], None]:
    """Call a method a thousand times with small arguments: one round."""
    import ray

    class Counter:
        def count(self, number):
            return number

    counter = ray.remote(Counter).remote()

    def play_round():
        ray.get([counter.count.remote(number) for number in range(1_000)])

    return play_round


def many_parts() -> Callable[[], None]:
    """Send a dict of 2,000 small arrays and 2,000 strings to an actor: one round."""
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


PROGRAMS = {"large messages": large_messages, "small calls": small_calls, "many parts": many_parts}


def play(name: str, seconds: float) -> None:
    """Run a program, and print the CPU time of all of its processes per round."""
    import ray

    ray.init(num_cpus=2, object_store_memory=10**9, logging_level="error")
    play_round = PROGRAMS[name]()
    play_for(play_round, WARM_UP_SECONDS)
    before = cpu_seconds_of_tree(os.getpid())
    begin = time.monotonic()
    rounds = play_for(play_round, seconds)
    passed = time.monotonic() - begin
    used = cpu_seconds_of_tree(os.getpid()) - before
    print(f"{PRINTED} {1e3 * used / rounds:.4f} WALL_MS {1e3 * passed / rounds:.4f}", flush=True)


def play_for(play_round: Callable[[], None], seconds: float) -> int:
    """Play rounds for some seconds; return how many."""
    end = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < end:
        play_round()
        rounds += 1
    return rounds


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
        children[int(fields[1])].append(pid)
        used[pid] = (int(fields[11]) + int(fields[12])) / TICKS
    total = 0.0
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        total += used.get(pid, 0.0)
        waiting += children[pid]
    return total


def run(name: str, seconds: float, is_recorded: bool) -> float:
    """Run a program in a process of its own; return the milliseconds of CPU time per round."""
    words = [sys.executable]
    words += ["-m", "raymeter"] if is_recorded else []
    words += [__file__, "--play", name, "--seconds", str(seconds)]
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, paths)))
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            words, env=environment, cwd=folder, capture_output=True, text=True, timeout=MAX_SECONDS
        )
    for line in done.stdout.splitlines():
        if line.startswith(PRINTED):
            return float(line.split()[1])
    raise SystemExit(f"{name}: no time was printed\n{done.stdout}\n{done.stderr}")


def measure(name: str, pairs: int, seconds: float) -> None:
    """Run a program in pairs, and print each factor, and the mean with its interval."""
    from raymeter.statistics import compare_pairs

    recorded: list[float] = []
    plain: list[float] = []
    for pair in range(pairs):
        for is_recorded in (pair % 2 == 0, pair % 2 == 1):
            times = recorded if is_recorded else plain
            times.append(run(name, seconds, is_recorded))
        factor = recorded[-1] / plain[-1]
        print(
            f"  pair {pair + 1}: {plain[-1]:.3f} -> {recorded[-1]:.3f} ms, {factor:.4f}", flush=True
        )
    ratio = compare_pairs(recorded, plain)
    interval = f", {ratio.low:.4f} to {ratio.high:.4f}" if ratio.has_interval else ""
    print(f"{name}: {ratio.value:.4f} times the CPU time{interval}", flush=True)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", choices=PROGRAMS)
    parser.add_argument("--play", choices=PROGRAMS, help=argparse.SUPPRESS)
    flags = parser.parse_args(words)
    if flags.play:
        play(flags.play, flags.seconds)
        return
    sys.path.insert(0, str(SOURCE))
    for name in [flags.only] if flags.only else PROGRAMS:
        measure(name, flags.pairs, flags.seconds)


if __name__ == "__main__":
    main()
