"""Compare settings of memory allocators, by the page faults and the time of configurations that copy into fresh memory.

`python3 -m dataflow.evidence.allocators FOLDER` prints the table of the records that the commands of
docs/page-faults.md wrote. Without a folder, it is that of results/evidence/allocators.
"""

import re
import sys
from pathlib import Path

from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import Result, group_results
from dataflow.analysis.statistics import UNRANKED
from dataflow.errors import UsageError, run_main
from dataflow.records import files
from dataflow.report import markdown, tables
from dataflow.report.groups import provenance
from dataflow.report.tables import Column, Section

PUBLISHED = Path(__file__).resolve().parents[2] / "results" / "evidence" / "allocators"
CONFIGURATIONS = ("store refs", "graph shm", "graph shm --reuse-buffers")
SETTINGS = (
    "default", "--retain-memory", "--retain-memory, several heaps", "--retain-memory, pages of 2 MiB",
    "pages of 2 MiB", "jemalloc", "jemalloc, pages of 2 MiB", "mimalloc", "tcmalloc",
)  # fmt: skip


def settings_section(folder: Path) -> Section:
    """Return a table of settings, and which of them cannot be ranked; raise UsageError if the folder has none."""
    settings: dict[Result, str] = {}
    for setting in SETTINGS:
        below = folder / re.sub(r"\W+", "-", setting).strip("-")
        results = group_results(files.load_all([below])) if below.is_dir() else []
        settings |= {result: setting for result in results if result.status == "ok"}
    if not settings:
        raise UsageError(f"{folder} has no records of settings: measure them as in docs/page-faults.md")
    columns = [
        Column("configuration", lambda result: result.name),
        Column("setting", lambda result: settings[result], is_text=True),
        Column("ms per iteration", tables.format_typical),
        Column("95 % interval", tables.format_interval),
        Column("page faults per iteration", tables.format_faults),
        Column("peak GiB", lambda result: f"{result.peak_memory_bytes / 2**30:.1f}"),
    ]
    found = sorted(settings, key=lambda result: CONFIGURATIONS.index(result.name))
    notes = []
    for reference in found:
        name = reference.name.removesuffix(" --reuse-buffers")
        others = [result for result in found if result.name == name and result is not reference]
        equal = [settings[result] for result in others if Pair(reference, result).ratio.verdict in UNRANKED]
        text = f"These runs do not rank it and {'; '.join(equal)}." if equal else "All others differ clearly."
        if name != reference.name:
            notes.append(f"`{name}`, compared with `{reference.name}`: {text}")
        elif all(reference.typical_seconds <= result.typical_seconds for result in others):
            notes.append(f"`{name}`: {settings[reference]} is the fastest setting. {text}")
    notes += provenance(found)
    return Section("allocators", "", table=tables.make_table(found, columns), notes=notes)


def main(folders: list[Path]) -> int:
    print(markdown.render([settings_section(folder) for folder in folders or [PUBLISHED]]))
    return 0


if __name__ == "__main__":
    run_main(main, [*map(Path, sys.argv[1:])])
