"""Draw the time of 100 iterations of two to six configurations, beside that of the demo.

    python3 plot_results.py                            your newest records in results/, or the published ones
    python3 plot_results.py results/run-1 mine.json    folders of records, and records

The last line is the path of the chart: img/benchmark_result.svg for published records, otherwise a file beside the
records. If there are more configurations, those without flags come first. `python3 -m dataflow report` shows them all.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from math import prod
from pathlib import Path
from statistics import median

from common.flags import OneLineParser, require_packages

require_packages("matplotlib", "msgspec")

from matplotlib import rc_context
from matplotlib.figure import Figure

from common import RecordError, SuiteError
from common.record import Configuration, Record, Run, load

ROOT = Path(__file__).resolve().parent
ITERATIONS, MAX_BARS = 100, 6
DEMO_BYTES = 448 * 2**20  # per iteration
DEMO_SECONDS = {"demo, queues": 279.23, "demo, compiled graph with NCCL": 35.37}
BAR_COLOUR = "#0072b2"


def find_newest(results: Path) -> list[Path]:
    """Return the newest run-* folder in results/, or the single records if one of them is newer, or published ones."""
    records = [path for path in results.glob("*.json") if path.stat().st_size]
    newest = max([*records, *results.glob("run-*")], key=lambda path: path.stat().st_mtime, default=None)
    if newest in records:
        return sorted(records)
    return [newest or results / "published" / "headline"]


def load_all(paths: Sequence[Path]) -> list[Record]:
    """Return the records of these files and folders that have ok runs and the messages of the newest one."""
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*.json*")))]
    records = [record for record in map(load, files) if any(run.status == "ok" for run in record.runs)]
    if not records:
        raise RecordError(f"{', '.join(map(str, paths))}: no record of a run that is ok: run one of the two scripts")
    newest = max(records, key=lambda record: max(run.started_at for run in record.runs))
    return [record for record in records if record.workload.edges == newest.workload.edges]


def name_of(configuration: Configuration) -> str:
    flags = [f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
             for name, value in configuration.flags.items()]  # fmt: skip
    device = [configuration.device] if configuration.device != "cpu" else []
    return " ".join([configuration.runtime, configuration.transport, *flags, *device])


def typical_seconds(runs: Sequence[Run]) -> float:
    """Return the time per iteration: the geometric mean of the medians of the runs."""
    return prod(median(run.seconds) for run in runs) ** (1 / len(runs))


def draw(records: Sequence[Record]) -> Figure:
    """Return a chart with one bar per configuration, the slowest first."""
    runs: dict[str, list[Run]] = defaultdict(list)
    for record in records:
        runs[name_of(record.configuration)] += [run for run in record.runs if run.status == "ok"]
    seconds = {name: ITERATIONS * typical_seconds(runs[name]) for name in runs}
    shown = sorted(runs, key=lambda name: (name.count("--"), -seconds[name]))[:MAX_BARS]
    names = sorted(shown, key=lambda name: -seconds[name])

    figure = Figure(figsize=(8, 2.2 + 0.34 * len(names)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(names, [seconds[name] for name in names], 0.62, color=BAR_COLOUR)
    labels = axes.bar_label(bars, [f"{seconds[name]:,.4g} s" for name in names], padding=4, fontsize=9)
    for label in labels:  # to be read where a line of the demo crosses it
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})
    has_demo_sizes = sum(edge.bytes for edge in records[0].workload.edges) == DEMO_BYTES
    for height, (name, value) in enumerate(DEMO_SECONDS.items() if has_demo_sizes else ()):
        axes.axvline(value, color="black", linewidth=1.3, linestyle=":", zorder=0)
        text, place = f"{name}: {value} s", {"xytext": (0, 4 + 12 * height), "textcoords": "offset points"}
        axes.annotate(text, (value, 1), xycoords=axes.get_xaxis_transform(), fontsize=8, **place,
                      ha="right" if value > axes.get_xlim()[1] / 2 else "left")  # fmt: skip
    axes.set_xlim(0, 1.12 * axes.get_xlim()[1])
    axes.set_xlabel(f"seconds for {ITERATIONS} iterations")
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("ChatLearn's data flow: policy, reference and reward model", x=0.01, ha="left", fontsize=12)
    figure.supxlabel(describe(records, [len(runs[name]) for name in names]), x=0.01, ha="left", fontsize=7.5)
    return figure


def describe(records: Sequence[Record], counts: Sequence[int]) -> str:
    """Return the sizes, the machine and the number of runs as three lines."""
    sizes = [edge.bytes / 2**20 for edge in records[0].workload.edges]
    machine = next(iter(records[0].environments.values()), {})
    versions, gpus = machine.get("versions", {}), machine.get("gpus") or []
    few, many = min(counts), max(counts)
    return "\n".join([
        f"Each iteration moves {sum(sizes):,.4g} MiB in messages of {min(sizes):,.3g} to {max(sizes):,.3g} MiB. Every "
        "byte was verified, outside of the clock.",
        f"{machine.get('logical_cpus')} CPUs of {machine.get('cpu_model')}, {machine.get('memory_gib')} GiB, "
        f"{', '.join(gpus) or 'no GPU'}, Ray {versions.get('ray')}, torch {versions.get('torch')}. The demo used GPUs.",
        f"Runs per configuration: {few if few == many else f'{few} to {many}'} (geometric mean of their medians).",
    ])  # fmt: skip


def main() -> None:
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="*", type=Path, help="records, or folders of records")
    paths = parser.parse_args().records or find_newest(ROOT / "results")
    try:
        figure = draw(load_all(paths))
        is_published = (ROOT / "results" / "published") in [paths[0].resolve(), *paths[0].resolve().parents]
        folder = ROOT / "img" if is_published else paths[0] if paths[0].is_dir() else paths[0].parent
        # Equal charts are equal files.
        with rc_context({"svg.hashsalt": "chatlearn-data-flow"}):
            figure.savefig(folder / "benchmark_result.svg", metadata={"Date": None, "Creator": None})
    except (SuiteError, OSError) as error:
        sys.exit(f"error: {error}")
    print(folder / "benchmark_result.svg")


if __name__ == "__main__":
    main()
