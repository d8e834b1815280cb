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

from common import SuiteError
from common.record import Record, Run, load

ROOT = Path(__file__).resolve().parent
ITERATIONS, MAX_BARS = 100, 6
DEMO_SECONDS = {"demo, compiled graph with NCCL": 35.37, "demo, queues": 279.23}  # for 100 iterations
DEMO_BYTES = 448 * 2**20  # per iteration


def find_newest(results: Path) -> list[Path]:
    """Return the newest run-* folder in results/, or the single records if one of them is newer, or published ones."""
    records = [path for path in results.glob("*.json") if path.stat().st_size]
    newest = max([*records, *results.glob("run-*")], key=lambda path: path.stat().st_mtime, default=None)
    return sorted(records) if newest in records else [newest or results / "published" / "headline"]


def find_runs(paths: Sequence[Path]) -> tuple[dict[str, list[Run]], Record]:
    """Return the ok runs by configuration that moved the messages of the newest one, and its record."""
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*.json*")))]
    records = [record for record in map(load, files) if any(run.status == "ok" for run in record.runs)]
    if not records:
        raise SuiteError(f"{', '.join(map(str, paths))}: no record of a run that is ok: run one of the two scripts")
    newest = max(records, key=lambda record: max(run.started_at for run in record.runs))
    runs: dict[str, list[Run]] = defaultdict(list)
    for record in records:
        if record.workload["edges"] == newest.workload["edges"]:
            runs[name_of(record.configuration)] += [run for run in record.runs if run.status == "ok"]
    return runs, newest


def name_of(configuration: dict) -> str:
    words = [configuration["runtime"], configuration["transport"]]
    for name, value in configuration.get("flags", {}).items():
        words += [f"--{name.replace('_', '-')}"] if value is True else [f"--{name.replace('_', '-')}", str(value)]
    return " ".join(words) + (" on GPUs" if configuration.get("device") == "cuda" else "")


def draw(runs: dict[str, list[Run]], record: Record) -> Figure:
    """Return a chart with a bar per configuration: the geometric mean of the medians of its runs, the slowest first."""
    medians = {name: [median(run.seconds) for run in runs[name]] for name in runs}
    seconds = {name: ITERATIONS * prod(medians[name]) ** (1 / len(medians[name])) for name in runs}
    shown = sorted(runs, key=lambda name: (name.count("--"), -seconds[name]))[:MAX_BARS]
    names = sorted(shown, key=lambda name: -seconds[name])
    has_demo_sizes = sum(edge["bytes"] for edge in record.workload["edges"]) == DEMO_BYTES
    figure = Figure(figsize=(8, 2.2 + 0.34 * len(names)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(names, [seconds[name] for name in names], 0.62, color="#0072b2")
    for label in axes.bar_label(bars, [f"{seconds[name]:,.4g} s" for name in names], padding=4, fontsize=9):
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})  # a line of the demo may cross it
    for height, (name, value) in enumerate(DEMO_SECONDS.items() if has_demo_sizes else ()):
        axes.axvline(value, color="black", linewidth=1.3, linestyle=":", zorder=0)
        side = "right" if value > axes.get_xlim()[1] / 2 else "left"
        axes.annotate(f"{name}: {value} s", (value, 1), xycoords=axes.get_xaxis_transform(), fontsize=8, ha=side,
                      xytext=(0, 4 + 12 * height), textcoords="offset points")  # fmt: skip
    axes.set_xlim(0, 1.12 * axes.get_xlim()[1])
    axes.set_xlabel(f"seconds for {ITERATIONS} iterations")
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("ChatLearn's data flow: policy, reference and reward model", x=0.01, ha="left", fontsize=12)
    figure.supxlabel(describe(record, [len(runs[name]) for name in names]), x=0.01, ha="left", fontsize=7.5)
    return figure


def describe(record: Record, counts: Sequence[int]) -> str:
    """Return the sizes of the messages, the machine, and the number of runs of the bars, as three lines."""
    mebibytes = [edge["bytes"] / 2**20 for edge in record.workload["edges"]]
    machine = record.environments.get("0", {})
    versions, gpus = machine.get("versions", {}), ", ".join(machine.get("gpus") or []) or "no GPU"
    runs = f"{max(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return (
        f"Each iteration moves {sum(mebibytes):,.4g} MiB in messages of {min(mebibytes):,.3g} to "
        f"{max(mebibytes):,.3g} MiB. Every byte was verified outside of the clock.\n"
        f"{machine.get('logical_cpus')} CPUs of {machine.get('cpu_model')}, {machine.get('memory_gib')} GiB, {gpus}, "
        f"Ray {versions.get('ray')}, torch {versions.get('torch')}. The demo used GPUs.\n"
        f"Runs per configuration: {runs}."
    )


def main() -> None:
    parser = OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="*", type=Path, help="records, or folders of records")
    paths = parser.parse_args().records or find_newest(ROOT / "results")
    is_published = ROOT / "results" / "published" in (paths[0].resolve(), *paths[0].resolve().parents)
    folder = ROOT / "img" if is_published else paths[0] if paths[0].is_dir() else paths[0].parent
    try:
        figure = draw(*find_runs(paths))
        with rc_context({"svg.hashsalt": "chatlearn-data-flow"}):  # equal charts are equal files
            figure.savefig(folder / "benchmark_result.svg", metadata={"Date": None, "Creator": None})
    except (SuiteError, OSError) as error:
        sys.exit(f"error: {error}")
    print(folder / "benchmark_result.svg")


if __name__ == "__main__":
    main()
