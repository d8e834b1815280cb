"""Compare settings of memory allocators, by the page faults and the time of configurations that copy into fresh memory.

    python3 -m evidence.allocators results/evidence/allocators --measure     measure, about half an hour
    python3 -m evidence.allocators results/evidence/allocators               print the table of these records

A setting is a list of environment variables. jemalloc, mimalloc and tcmalloc must be installed (Debian: libjemalloc2,
libmimalloc2.0, libtcmalloc-minimal4). A setting whose library is missing is left out.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from common.analysis.comparison import Pair
from common.analysis.result import Result, group_results
from common.analysis.statistics import UNRANKED
from common.errors import UsageError, run_main
from common.records import files
from common.report import tables
from common.report.markdown import render
from common.report.sections import provenance
from common.report.tables import Column, Section, format_milliseconds, make_table
from common.runtimes.environment import RETAIN_MEMORY

ROOT = Path(__file__).resolve().parents[1]
COPYING, REUSING = ("store refs", "graph shm"), "graph shm --reuse-buffers"  # the second without a setting only
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
JEMALLOC, KEEP_ALL = {"LD_PRELOAD": "libjemalloc.so.2"}, "retain:true,dirty_decay_ms:-1,muzzy_decay_ms:-1"
SETTINGS = {
    "default": {},
    "--retain-memory": RETAIN_MEMORY,
    "--retain-memory, several heaps": {name: RETAIN_MEMORY[name] for name in RETAIN_MEMORY if "ARENA" not in name},
    "--retain-memory, pages of 2 MiB": RETAIN_MEMORY | HUGE_PAGES,
    "pages of 2 MiB": HUGE_PAGES,
    "jemalloc": JEMALLOC | {"MALLOC_CONF": KEEP_ALL},
    "jemalloc, pages of 2 MiB": JEMALLOC | {"MALLOC_CONF": f"{KEEP_ALL},thp:always"},
    "mimalloc": {"LD_PRELOAD": "libmimalloc.so.2", "MIMALLOC_PURGE_DELAY": "-1"},
    "tcmalloc": {"LD_PRELOAD": "libtcmalloc_minimal.so.4"},
}


def measure(folder: Path, runs: int = 5) -> None:
    """Measure each setting once, then all of them again, so that drift affects all alike."""
    for run in range(1, runs + 1):
        for name, variables in SETTINGS.items():
            # The loader prints an error if it cannot preload a library.
            if subprocess.run("true", env=os.environ | variables, stderr=subprocess.PIPE).stderr:
                print(f"{name}: left out, {variables['LD_PRELOAD']} is not installed")
                continue
            command = [sys.executable, "benchmark.py", "--configs", *(COPYING if variables else (*COPYING, REUSING))]
            command += [*f"--warmup 6 --iterations 6 --runs {run} --output-dir".split(), setting_folder(folder, name)]
            subprocess.run(command + ["--continue"] * (run > 1), cwd=ROOT, env=os.environ | variables, check=True)


def setting_folder(folder: Path, name: str) -> str:
    return str(folder.resolve() / re.sub(r"\W+", "-", name).strip("-"))


def settings_section(folder: Path) -> Section:
    """Return the table of the records in the folders `measure` has written; raise UsageError if there are none.

    Its notes name the settings that cannot be told apart from the fastest one, and from --reuse-buffers.
    """
    found: list[tuple[str, Result]] = []
    for name in SETTINGS:
        below = Path(setting_folder(folder, name))
        results = group_results(map(files.load, files.record_files([below]))) if below.is_dir() else []
        found += [(name, result) for result in results if result.status == "ok"]
    if not found:
        raise UsageError(f"{folder} has no records of settings: give --measure")
    columns = [
        Column("configuration", lambda pair: pair[1].name),
        Column("setting", lambda pair: pair[0], is_text=True),
        Column("ms per iteration", lambda pair: format_milliseconds(pair[1].typical_seconds)),
        Column("95 % interval", lambda pair: tables.format_interval(pair[1])),
        Column("page faults per iteration", lambda pair: tables.format_faults(pair[1])),
        Column("peak GiB", lambda pair: f"{pair[1].peak_memory_bytes / 2**30:.1f}"),
    ]
    found.sort(key=lambda pair: (*COPYING, REUSING).index(pair[1].name))
    notes = []
    for name in COPYING:
        settings = [pair for pair in found if pair[1].name == name]
        fastest = min(settings, key=lambda pair: pair[1].typical_seconds, default=None)
        if fastest:
            notes.append(f"`{name}`: {fastest[0]} is the fastest setting. {name_equal(settings, fastest)}")
        notes += [f"`{name}`, compared with `{REUSING}`: {name_equal(settings, reusing)}"
                  for reusing in found if reusing[1].name == f"{name} --reuse-buffers"]  # fmt: skip
    notes += provenance([result for _, result in found])
    return Section("allocators", "", table=make_table(found, columns), notes=notes)


def name_equal(settings: Sequence[tuple[str, Result]], other: tuple[str, Result]) -> str:
    equal = [setting for setting, result in settings
             if (setting, result) != other and Pair(other[1], result).ratio.verdict in UNRANKED]  # fmt: skip
    return f"These runs do not rank it and {'; '.join(equal)}." if equal else "All others differ clearly."


def main(arguments: Sequence[str]) -> int:
    folders = [Path(argument) for argument in arguments if argument != "--measure"]
    if len(folders) != 1:
        raise UsageError("give one folder, and --measure to fill it")
    if "--measure" in arguments:
        measure(folders[0])
    print(render([settings_section(folders[0])]))
    return 0


if __name__ == "__main__":
    run_main(main, sys.argv[1:])
