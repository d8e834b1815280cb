"""Draw the time of 100 iterations of two to six configurations, beside that of the demo.

    python3 plot_results.py                            your newest records in results/, or the published ones
    python3 plot_results.py results/run-1 mine.json    folders of records, and records

The chart is img/benchmark_result.svg for published records, or a file beside the records. Of more than six bars, those
without flags are drawn first; `python3 -m dataflow report` shows all.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path
from statistics import geometric_mean, median

from common.flags import TRANSPORTS, OneLineParser, require_packages

require_packages("matplotlib", "msgspec")

from matplotlib import rc_context
from matplotlib.figure import Figure

from common import SuiteError
from common.record import Record, Run, find_newest, load

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results"
PUBLISHED = RESULTS / "campaigns"
ITERATIONS, MAX_BARS, DEMO_MEBIBYTES = 100, 6, 448
DEMO_SECONDS = {
    "demo, compiled graph with NCCL": 35.37,
    "demo, queues": 279.23,
}  # for 100 iterations of 448 MiB
OF_SCRIPTS = {
    f"{runtime} {transport}"
    for runtime, transports in TRANSPORTS.items()
    for transport in transports
}


def find_runs(paths: list[Path]) -> tuple[dict[str, list[Run]], list[Record]]:
    """Return the ok runs by configuration that moved the messages of the newest one, and their records."""
    files = [
        file
        for path in paths
        for file in ([path] if path.is_file() else sorted(path.rglob("*.json*")))
    ]
    loaded: list[Record] = [
        load(file) for file in files if file.name.endswith((".json", ".json.gz"))
    ]
    records = [record for record in loaded if any(run.status == "ok" for run in record.runs)]
    if not records:
        raise SuiteError(
            f"{', '.join(map(str, paths))}: no record of a run that is ok: run one of the two scripts"
        )
    edges = max(records, key=lambda record: max(run.started_at for run in record.runs)).workload[
        "edges"
    ]
    records = [record for record in records if record.workload["edges"] == edges]
    runs: dict[str, list[Run]] = defaultdict(list)
    for record in records:
        known = runs[name_of(record)]
        known += [
            run for run in record.runs if run.status == "ok" and run not in known
        ]  # a copy counts once
    return runs, records


def name_of(record: Record) -> str:
    configuration, is_view = (
        record.configuration,
        any(run.readers_own_a_copy is False for run in record.runs),
    )
    flags = configuration.get("flags", {}).items()
    words = [
        f"--{name.replace('_', '-')}" if value is True else f"--{name} {value}"
        for name, value in flags
    ]
    notes = [
        "on GPUs" if configuration.get("device") == "cuda" else "",
        "(readers get a view)" if is_view else "",
    ]
    return " ".join(
        filter(None, [configuration["runtime"], configuration["transport"], *words, *notes])
    )


def describe_machine(record: Record) -> str:
    machine = record.environments.get("0", {})
    cores, versions = (
        f"{machine.get('logical_cpus')} CPUs of {machine.get('cpu_model')}",
        machine.get("versions", {}),
    )
    devices = f"{machine.get('memory_gib')} GiB, {', '.join(machine.get('gpus') or []) or 'no GPU'}"
    return f"{cores}, {devices}, Ray {versions.get('ray')}, torch {versions.get('torch')}"


def choose_bars(runs: dict[str, list[Run]]) -> dict[str, float]:
    """Return 100 times the geometric mean of the medians of the runs, for at most six configurations by time."""
    seconds = {
        name: ITERATIONS * geometric_mean([median(run.seconds) for run in runs[name]])
        for name in runs
    }
    shown = sorted(seconds, key=lambda name: (name.count("--"), -seconds[name]))[:MAX_BARS]
    return {name: seconds[name] for name in sorted(shown, key=lambda name: -seconds[name])}


def draw(seconds: dict[str, float], records: list[Record], counts: list[int]) -> Figure:
    """Return the chart, with the messages and the machines of the records, and the number of runs of each bar."""
    figure = Figure(figsize=(8, 2.2 + 0.34 * len(seconds)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh([*seconds], [*seconds.values()], 0.62, color="#0072b2")
    white = {
        "facecolor": "white",
        "edgecolor": "none",
        "pad": 1,
    }  # where a line of the demo crosses a number
    axes.bar_label(
        bars, [f"{value:,.4g} s" for value in seconds.values()], padding=4, fontsize=9, bbox=white
    )
    mebibytes = [edge["bytes"] / 2**20 for edge in records[0].workload["edges"]]
    for height, (name, value) in enumerate(
        DEMO_SECONDS.items() if sum(mebibytes) == DEMO_MEBIBYTES else ()
    ):
        axes.axvline(value, color="black", linewidth=1.3, linestyle=":", zorder=0)
        side = "right" if value > axes.get_xlim()[1] / 2 else "left"
        axes.annotate(f"{name}: {value} s", (value, 1), xycoords=axes.get_xaxis_transform(), fontsize=8, ha=side,
                      xytext=(0, 4 + 12 * height), textcoords="offset points")  # fmt: skip
    axes.set(xlim=(0, 1.12 * axes.get_xlim()[1]), xlabel=f"seconds for {ITERATIONS} iterations")
    axes.invert_yaxis()  # the first bar is on top
    machines = "\n".join(sorted(set(map(describe_machine, records))))
    caption = (
        f"Each iteration moves {sum(mebibytes):,.4g} MiB in messages of {min(mebibytes):,.3g} to "
        f"{max(mebibytes):,.3g} MiB. Every byte was verified outside of the clock.\n"
        f"{machines}\nThe demo used GPUs. Runs per configuration, from top to bottom: {', '.join(map(str, counts))}."
    )
    figure.supxlabel(caption, x=0.01, ha="left", fontsize=7.5)
    figure.suptitle(
        "ChatLearn's data flow: policy, reference and reward model", x=0.01, ha="left", fontsize=12
    )
    return figure


def main() -> None:
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("records", nargs="*", type=Path, help="records, or folders of records")
    paths = (
        parser.parse_args().records
        or find_newest(RESULTS)
        or sorted(PUBLISHED.glob("*/*-flow-online-dpo.json"))
    )
    is_published = PUBLISHED in (paths[0].resolve(), *paths[0].resolve().parents)
    folder = ROOT / "img" if is_published else paths[0] if paths[0].is_dir() else paths[0].parent
    try:
        runs, records = find_runs(paths)
        seconds = choose_bars(runs)
        figure = draw(seconds, records, [len(runs[name]) for name in seconds])
        with rc_context({"svg.hashsalt": "chatlearn-data-flow"}):  # equal charts are equal files
            figure.savefig(
                folder / "benchmark_result.svg", metadata={"Date": None, "Creator": None}
            )
    except (SuiteError, OSError) as error:
        sys.exit(f"error: {error}")
    print(
        *(f"{name}: {value:,.4g} s for {ITERATIONS} iterations" for name, value in seconds.items()),
        sep="\n",
    )
    names = [*seconds]
    if len(names) == 2 and OF_SCRIPTS.issuperset(
        names
    ):  # their readers get copies; a copy is not compared with a view
        print(
            f"{names[0]} takes {seconds[names[0]] / seconds[names[1]]:.2f} times as long as {names[1]}"
        )
    print(folder / "benchmark_result.svg")


if __name__ == "__main__":
    main()
