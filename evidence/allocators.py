"""Compare settings of memory allocators, by the page faults and the time of configurations that copy into fresh memory.

    python3 -m evidence.allocators results/evidence/allocators --measure     measure, about half an hour
    python3 -m evidence.allocators results/evidence/allocators               print the table of these records

A setting is a list of environment variables. jemalloc, mimalloc and tcmalloc must be installed (Debian: libjemalloc2,
libmimalloc2.0, libtcmalloc-minimal4). A setting whose library is missing is left out.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from common.analysis.result import Result, group_results
from common.errors import UsageError, run_main
from common.records import files
from common.report import tables
from common.report.markdown import render_table
from common.report.tables import Column, Table, format_milliseconds, make_table
from common.runtimes.environment import RETAIN_MEMORY

ROOT = Path(__file__).resolve().parents[1]
ONE_HEAP = "MALLOC_ARENA_MAX"
SETTINGS = {
    "default": {},
    "--retain-memory": RETAIN_MEMORY,
    "--retain-memory with several heaps": {name: RETAIN_MEMORY[name] for name in RETAIN_MEMORY if name != ONE_HEAP},
    "glibc, pages of 2 MiB": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    "--retain-memory, pages of 2 MiB": {**RETAIN_MEMORY, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    "jemalloc": {"LD_PRELOAD": "libjemalloc.so.2", "MALLOC_CONF": "retain:true,dirty_decay_ms:-1,muzzy_decay_ms:-1"},
    "jemalloc, pages of 2 MiB": {
        "LD_PRELOAD": "libjemalloc.so.2",
        "MALLOC_CONF": "retain:true,dirty_decay_ms:-1,muzzy_decay_ms:-1,thp:always",
    },
    "mimalloc": {"LD_PRELOAD": "libmimalloc.so.2", "MIMALLOC_PURGE_DELAY": "-1"},
    "tcmalloc": {"LD_PRELOAD": "libtcmalloc_minimal.so.4"},
}
CONFIGURATIONS = ("store refs", "graph shm", "graph shm --reuse-buffers")


def measure(folder: Path, runs: int = 5) -> None:
    """Measure each setting once, then all of them again, so that drift affects all alike."""
    for run in range(runs):
        for index, (name, variables) in enumerate(SETTINGS.items()):
            try:
                ctypes.CDLL(variables.get("LD_PRELOAD"))
            except OSError:
                print(f"{name}: left out, {variables['LD_PRELOAD']} is not installed")
                continue
            command = [
                sys.executable,
                "benchmark.py",
                "--configs",
                *CONFIGURATIONS,
                "--warmup",
                "6",
                "--iterations",
                "6",
            ]
            output = folder / f"{index}-{run}"
            subprocess.run([*command, "--output-dir", output.resolve()], cwd=ROOT, env={**os.environ, **variables})


def settings_table(folder: Path) -> Table:
    """Return the table of the records in the folders `measure` has written; raise UsageError if there are none."""
    rows: list[tuple[str, Result]] = []
    for index, name in enumerate(SETTINGS):
        paths = sorted(folder.glob(f"{index}-*"))
        records = map(files.load, files.record_files(paths)) if paths else []
        rows += [(name, result) for result in group_results(records) if result.status == "ok"]
    if not rows:
        raise UsageError(f"{folder} has no records of settings: give --measure")
    columns = [
        Column("configuration", lambda row: row[1].name),
        Column("setting", lambda row: row[0], is_text=True),
        Column("ms per iteration", lambda row: format_milliseconds(row[1].typical_seconds)),
        Column("95 % interval", lambda row: tables.format_interval(row[1])),
        Column("page faults", lambda row: tables.format_faults(row[1])),
        Column("peak GiB", lambda row: f"{row[1].peak_memory_bytes / 2**30:.1f}"),
    ]
    return make_table(sorted(rows, key=lambda row: CONFIGURATIONS.index(row[1].name)), columns)


def main(arguments: Sequence[str]) -> int:
    folders = [Path(argument) for argument in arguments if argument != "--measure"]
    if len(folders) != 1:
        raise UsageError("give one folder, and --measure to fill it")
    if "--measure" in arguments:
        measure(folders[0])
    print(render_table(settings_table(folders[0])))
    return 0


if __name__ == "__main__":
    run_main(main, sys.argv[1:])
