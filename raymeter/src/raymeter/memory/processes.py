# SPDX-License-Identifier: Apache-2.0
"""Sample the memory of a program's processes from /proc, while the program runs.

Memory of a process is its PSS: pages that several processes share, such as those of the object store, are divided among
them. So the sum over processes counts no page twice. Private memory is the anonymous part, without files and the store.
"""

import json
import os
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

FILE = "processes.samples"  # in the folder of a profile
KIB = 1024
MAX_SHARE = 0.05  # of the time, for reading: many large processes are read less often


@dataclass(frozen=True)
class Sample:
    """Memory of a process at one time, in bytes. `process` is its name in the recording: host and process id."""

    time: float
    pid: int
    name: str
    pss: int
    private: int
    process: str = ""


def read_samples(folder: Path) -> list[Sample]:
    """Return the samples of a profile, in the order of time; none if its processes were not sampled.

    Lines that are no samples are left out: the file may be damaged.
    """
    path = folder / FILE
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    complete, _, _ = text.rpartition("\n")
    samples = [parse_sample(line) for line in complete.splitlines()]
    return [sample for sample in samples if sample is not None]


def parse_sample(line: str) -> Sample | None:
    """Return the sample of a line; None if the line is no sample, or has a negative number."""
    try:
        sample = Sample(**json.loads(line))
        numbers = sample.time, sample.pid, sample.pss, sample.private
        return sample if all(number >= 0 for number in numbers) else None
    except (TypeError, ValueError):
        return None


def peak_bytes(samples: list[Sample]) -> int:
    """Return the largest sum over all processes at one time; 0 without samples."""
    sums: dict[float, int] = {}
    for sample in samples:
        sums[sample.time] = sums.get(sample.time, 0) + sample.pss
    return max(sums.values(), default=0)


def find_processes(root: int, folder: Path) -> set[int]:
    """Return the ids of a process, of those that it has started, and of the workers that write into the folder.

    Workers of a cluster that was there before are no children of the program. Processes that have ended are left out.
    """
    parents = read_parents()
    found = {root} | recorded_processes(folder)
    grows = True
    while grows:
        children = {pid for pid, parent in parents.items() if parent in found}
        grows = not children <= found
        found |= children
    return found & parents.keys()


def recorded_processes(folder: Path) -> set[int]:
    """Return the processes of this machine that have a file in the folder of a profile."""
    names = folder.glob(f"{os.uname().nodename}-*.jsonl")
    numbers = [path.stem.rpartition("-")[2] for path in names]
    return {int(number) for number in numbers if number.isdigit()}


def read_parents() -> dict[int, int]:
    """Return the parent of each process of this machine, without those that end meanwhile."""
    parents = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            text = Path("/proc", entry, "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        # The name of the program comes before, in brackets; it may contain spaces and brackets.
        state_and_parent = text.rpartition(")")[2].split()
        parents[int(entry)] = int(state_and_parent[1])
    return parents


def read_process(pid: int, now: float) -> Sample | None:
    """Return the memory of a process; None if it has ended or belongs to another user."""
    try:
        rollup = Path("/proc", str(pid), "smaps_rollup").read_text(encoding="utf-8")
    except OSError:
        return None
    fields = {}
    for line in rollup.splitlines()[1:]:  # without the line of addresses
        name, _, rest = line.partition(":")
        fields[name] = KIB * int(rest.split()[0])
    private = fields.get("Pss_Anon", fields.get("Anonymous", 0))
    process = f"{os.uname().nodename}-{pid}"
    return Sample(now, pid, process_name(pid), fields.get("Pss", 0), private, process)


def process_name(pid: int) -> str:
    """Return how a process calls itself, such as "ray::Trainer.train", or the name of its program.

    That is its script if it has one. Return "" if the process has ended.
    """
    try:
        words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    texts = [word.decode(errors="replace") for word in words]
    if texts[0].startswith("ray::"):
        return texts[0]
    scripts = [text for text in texts[1:] if text.endswith(".py")]
    program = scripts[0] if scripts else texts[0]
    return Path(program).name


class ProcessSampler:
    """Write the memory of a program's processes into the folder of its profile, until it is closed."""

    def __init__(self, root: int, folder: Path, seconds: float) -> None:
        self.root = root
        self.folder = folder
        self.seconds = seconds
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self) -> "ProcessSampler":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    def run(self) -> None:
        try:
            with (self.folder / FILE).open("w", encoding="utf-8") as file:
                self.sample_until_end(file)
        except OSError:
            pass  # a full disk: the samples before it are shown

    def sample_until_end(self, file: TextIO) -> None:
        pause = 0.0
        while not self.ended.wait(pause):
            begin = time.perf_counter()
            self.sample(file)
            taken = time.perf_counter() - begin
            pause = max(self.seconds, taken / MAX_SHARE)

    def sample(self, file: TextIO) -> None:
        now = time.time()
        for pid in sorted(find_processes(self.root, self.folder)):
            sample = read_process(pid, now)
            if sample is not None:
                file.write(json.dumps(asdict(sample)) + "\n")
        file.flush()
