# SPDX-License-Identifier: Apache-2.0
"""Draw the mean time of 100 iterations of the two scripts' configurations, on each machine.

    python3 plot_results.py                            your newest records in results/, or the published ones
    python3 plot_results.py results/run-1 mine.json    folders of records, and records

The chart is img/benchmark_result.svg for published records, or benchmark_result.svg beside the records. It compares
equal work: transports of the two scripts, whose readers own a copy, with and without --retain-memory. Runs that other
programs disturbed are left out, or marked if a configuration has no others. All other configurations are shown by
`python3 -m dataflow report`.
"""

import io
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, geometric_mean, median

from common.flags import TRANSPORTS, OneLineParser
from common.packages import require_packages

require_packages("matplotlib", "msgspec")

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common import SuiteError, demo
from common.record import ScriptRecord, ScriptRun
from common.record_files import ARCHIVE, find_newest, load_each
from common.svg import shorten_svg

ROOT = Path(__file__).resolve().parent
RESULTS = ROOT / "results"
PUBLISHED = RESULTS / "campaigns"
CHART_NAME = "benchmark_result.svg"
ITERATIONS = 100
MIB = 2**20
# There is no --check-every, so every byte of their messages was verified.
COMPARED_FLAGS = {"retain_memory"}
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
SCRIPTS_FLOW = "online-dpo"  # the only one of the two scripts; campaigns have others too
TITLES = {SCRIPTS_FLOW: "ChatLearn's data flow: policy, reference and reward model"}
NAMED = 3  # configurations that are left out for one reason
MAX_ROWS = 8  # of the chart
SCRIPTS = ("store driver-queue", "graph shm")  # what the two scripts measure without flags
NOT_JUDGED = " (not known whether other programs disturbed these runs)"
DISTURBED_RATIO = " (disturbed, so this can mislead: measure again on an idle machine)"
ROW_HEIGHT = 0.8  # of a configuration; the rest is space
GOLDEN_RATIO = 0.618


@dataclass
class Bar:
    """The runs of one configuration on one machine."""

    configuration: str
    machine: str
    runs: list[ScriptRun] = field(default_factory=list)

    @property
    def disturbance(self) -> str | None:
        """Return what disturbed a run of these, which count because there are no others; None if nothing did."""
        return next((run.disturbance for run in self.runs if run.disturbance), None)

    @property
    def is_judged(self) -> bool:
        """Return whether it is known of each run how many cores other programs used."""
        return all(run.other_cores is not None for run in self.runs)

    @property
    def iteration_seconds(self) -> list[float]:
        """Return 100 times the time of each iteration, of all runs together."""
        times: list[float] = []
        for run in self.runs:
            times += [ITERATIONS * seconds for seconds in run.seconds]
        return times

    @property
    def seconds(self) -> float:
        """Return the time of 100 iterations: 100 times the time of all iterations together / their number."""
        return fmean(self.iteration_seconds)


@dataclass
class Machine:
    """A boot of a machine, or a processor if its boot is not known."""

    name: str
    details: str  # size, and speed of one thread that copies


@dataclass
class LeftOut:
    """What the chart does not show."""

    names: dict[str, list[str]] = field(default_factory=dict)  # of configurations, by the reason
    doubtful_runs: int = 0

    def add(self, record: ScriptRecord, reason: str) -> None:
        names = self.names.setdefault(reason, [])
        name = name_of(record)
        if name not in names:
            names.append(name)

    def add_doubtful(self, record: ScriptRecord, run: ScriptRun) -> None:
        self.doubtful_runs += 1
        reason = f"disturbed: {run.disturbance}" if run.disturbance else "not settled"
        self.add(record, f"a run was {reason}")

    def describe(self) -> str:
        """Return one line, with at most three configurations per reason; "" if all is shown."""
        parts = []
        for reason, names in self.names.items():
            shown = ", ".join(names[:NAMED])
            if len(names) > NAMED:
                shown += f" and {len(names) - NAMED} more"
            parts.append(f"{shown} ({reason})")
        return f"left out: {'; '.join(parts)}" if parts else ""


@dataclass
class BarChart:
    """What is drawn. Configurations and machines are in the order of the chart."""

    bars: list[Bar]
    configurations: list[str]
    machines: dict[str, Machine]
    title: str
    message_bytes: list[int]
    versions: list[str]
    flow: str
    left_out: LeftOut

    @property
    def drawn(self) -> list[str]:
        """Return the configurations that have a row, in their order: those of the scripts, and the fastest others."""
        ranks = {name: rank for rank, name in enumerate(reversed(self.configurations))}
        by_importance = sorted(ranks, key=lambda name: (name not in SCRIPTS, ranks[name]))
        chosen = by_importance[:MAX_ROWS]
        return [name for name in self.configurations if name in chosen]

    @property
    def undrawn(self) -> list[str]:
        """Return the configurations that have no row, because there are more than MAX_ROWS."""
        drawn = self.drawn
        return [name for name in self.configurations if name not in drawn]

    @property
    def disturbed_bars(self) -> list[Bar]:
        """Return the bars of configurations that have no other runs than disturbed ones."""
        return [bar for bar in self.bars if bar.disturbance]

    @property
    def doubtful_runs(self) -> int:
        """Return the number of runs that are left out, because their times can mislead."""
        return self.left_out.doubtful_runs

    def bars_of(self, machine: str, configuration: str = "") -> list[Bar]:
        """Return the bars of a machine, of all configurations or of one."""
        bars = [bar for bar in self.bars if bar.machine == machine]
        if configuration:
            bars = [bar for bar in bars if bar.configuration == configuration]
        return bars

    def where(self, machine: str) -> str:
        """Return the words that tell this machine from the others; "" if there is only one."""
        if len(self.machines) == 1:
            return ""
        return f" on {self.machines[machine].name}"


def read_records(paths: Sequence[Path]) -> list[ScriptRecord]:
    """Return the records in these files and below these folders.

    Raise SuiteError without paths, if one of them does not exist or has no records, or if a record cannot be read.
    """
    if not paths:
        raise SuiteError("there are no records in results/: run one of the two scripts")
    records: list[ScriptRecord] = []
    for path in paths:
        if not path.exists():
            raise SuiteError(f"{path} does not exist: give a record, or a folder of records")
        by_file = load_each(path)
        if not by_file:
            raise SuiteError(
                f"{path} has no records (*.json, {ARCHIVE}): give a record, or a folder of them"
            )
        for of_file in by_file.values():
            records += of_file
    return records


def is_compared(record: ScriptRecord) -> bool:
    """Return whether both scripts could have measured this, on one machine."""
    configuration = record.configuration
    if configuration["transport"] not in TRANSPORTS.get(configuration["runtime"], ()):
        return False
    is_plain = COMPARED_FLAGS.issuperset(configuration.get("flags", {}))
    if record.workload.get("sizes", {}).get("changing_sizes"):
        return False
    return is_plain and not record.traced and len(record.environments) <= 1


def get_views(run: ScriptRun) -> bool:
    return run.readers_own_a_copy is False


def last_start(record: ScriptRecord) -> str:
    return max((run.started_at for run in record.runs), default="")


def make_chart(records: Iterable[ScriptRecord], left_out: LeftOut) -> BarChart:
    """Choose what is compared: runs that count, of equal work with the messages of the newest record.

    Add the others to `left_out`. Raise SuiteError if nothing is left.
    """
    compared = choose_compared(records, left_out)
    bars = collect_bars(compared, left_out)
    if not bars:
        raise SuiteError(describe_nothing(left_out.doubtful_runs))
    drawn = {bar.machine for bar in bars}
    shown = [record for record in compared if machine_of(record) in drawn]
    workload = shown[0].workload
    return BarChart(
        bars,
        configurations=sort_configurations(bars),
        machines=find_machines(shown),
        title=TITLES.get(workload["flow"], f"The flow {workload['flow']}"),
        message_bytes=[edge["bytes"] for edge in workload["edges"]],
        versions=sorted({describe_versions(record) for record in shown}),
        flow=workload["flow"],
        left_out=left_out,
    )


def choose_compared(records: Iterable[ScriptRecord], left_out: LeftOut) -> list[ScriptRecord]:
    """Return the records of equal work with the newest messages; add the others to `left_out`.

    Raise SuiteError if there are none.
    """
    measured = []
    candidates = []
    for record in records:
        if not count_ok(record):
            left_out.add(record, "no run is ok")
            continue
        measured.append(record)
        if is_compared(record):
            candidates.append(record)
        else:
            left_out.add(record, "not what both scripts can measure")
    if not measured:
        raise SuiteError("no run of these records is ok: run one of the two scripts")
    if not candidates:
        raise SuiteError(
            "no record is of a transport of the two scripts without flags: "
            "python3 -m dataflow report shows the others"
        )
    edges = max(candidates, key=last_start).workload["edges"]
    compared = []
    for record in candidates:
        if record.workload["edges"] == edges:
            compared.append(record)
        else:
            left_out.add(record, f"other messages: {describe_messages(record)}")
    return compared


def describe_messages(record: ScriptRecord) -> str:
    """Return the flow of a record and the bytes that it moves in an iteration."""
    total = sum(edge["bytes"] for edge in record.workload["edges"])
    return f"the flow {record.workload['flow']} with {format_mebibytes(total)} per iteration"


def describe_nothing(doubtful_runs: int) -> str:
    if doubtful_runs:
        return "the times of no run had settled after the warm-up: measure again on an idle machine"
    return "all readers get a view: python3 -m dataflow report shows such runs"


def count_ok(record: ScriptRecord) -> int:
    return sum(run.status == "ok" for run in record.runs)


def collect_bars(records: Sequence[ScriptRecord], left_out: LeftOut) -> list[Bar]:
    """Return a bar per configuration and machine that has runs which count. Copies of a run count once.

    Disturbed runs count only if there are no others. Runs that do not count are added to `left_out`: disturbed, not
    settled, or with readers that get a view. Failed and skipped runs are passed over.
    """
    has_quiet_runs = set()
    for record in records:
        if any(is_quiet(record, run) for run in record.runs):
            has_quiet_runs.add(key_of(record))
    bars: dict[tuple[str, str], Bar] = {}
    for record in records:
        key = key_of(record)
        for run in record.runs:
            if run.status != "ok":
                continue
            if get_views(run):
                left_out.add(record, "its readers get a view")
                continue
            is_replaced = run.disturbance and key in has_quiet_runs
            if is_replaced or is_unsettled(record, run):
                left_out.add_doubtful(record, run)
                continue
            bar = bars.setdefault(key, Bar(*key))
            if run not in bar.runs:  # a copy of a record counts once
                bar.runs.append(run)
    return [*bars.values()]


def key_of(record: ScriptRecord) -> tuple[str, str]:
    """Return the configuration and the machine of a record, which have one bar."""
    return name_of(record), machine_of(record)


def is_unsettled(record: ScriptRecord, run: ScriptRun) -> bool:
    """Return whether the times of a run had not settled, so that it does not count.

    Processes that keep memory may never settle, so all of their runs count, as in the tables of the suite.
    """
    keeps_memory = "retain_memory" in record.configuration.get("flags", {})
    return run.settled is False and not keeps_memory


def is_quiet(record: ScriptRecord, run: ScriptRun) -> bool:
    """Return whether a run counts, and nothing disturbed it."""
    counts = run.status == "ok" and not get_views(run) and not is_unsettled(record, run)
    return counts and not run.disturbance


def sort_configurations(bars: Iterable[Bar]) -> list[str]:
    """Return the configurations, that with the longest time first."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for bar in bars:
        seconds[bar.configuration].append(bar.seconds)
    return sorted(seconds, key=lambda name: -geometric_mean(seconds[name]))


def name_of(record: ScriptRecord) -> str:
    """Return the configuration as it is called in all tables: store refs --retain-memory."""
    configuration = record.configuration
    words = [configuration["runtime"], configuration["transport"]]
    words += [f"--{flag.replace('_', '-')}" for flag in configuration.get("flags", {})]
    if configuration.get("device") == "cuda":
        words.append("on GPUs")
    return " ".join(words)


def machine_of(record: ScriptRecord) -> str:
    """Return the boot of the machine, because times change from boot to boot; its processor if it is not known."""
    machine = record.environments.get("0", {})
    return str(machine.get("boot") or machine.get("cpu_model"))


def find_machines(records: Iterable[ScriptRecord]) -> dict[str, Machine]:
    """Return the machines of these records, the one that was measured first at the top."""
    by_machine: dict[str, list[ScriptRecord]] = defaultdict(list)
    for record in sorted(records, key=last_start):
        by_machine[machine_of(record)].append(record)
    return {machine: describe_machine(found) for machine, found in by_machine.items()}


def describe_machine(records: Sequence[ScriptRecord]) -> Machine:
    """Return the processor and the boot of a machine, and its memory and the speed of one thread that copies."""
    machine = records[0].environments.get("0", {})
    name = str(machine.get("cpu_model"))
    if machine.get("boot"):
        name += f", boot {machine['boot'][:4]}"
    details = [f"{machine.get('logical_cpus')} CPUs", f"{machine.get('memory_gib')} GiB"]
    details += machine.get("gpus") or []
    speeds: list[float] = []
    for record in records:
        speeds += memcpy_speeds(record)
    if speeds:
        details.append(f"one thread copies {format_number(median(speeds))} GB/s")
    return Machine(name, ", ".join(details))


def memcpy_speeds(record: ScriptRecord) -> list[float]:
    """Return the GB/s of one thread that copies the message of each edge, before each run."""
    iteration_bytes = sum(edge["bytes"] for edge in record.workload["edges"])
    passes = [run.memcpy_before_seconds for run in record.runs if run.memcpy_before_seconds]
    return [iteration_bytes / median(seconds) / 1e9 for seconds in passes]


def describe_versions(record: ScriptRecord) -> str:
    versions = record.environments.get("0", {}).get("versions", {})
    return f"Ray {versions.get('ray')}, torch {versions.get('torch')}"


def format_number(value: float) -> str:
    """Return a number with three digits, or all digits before the point."""
    digits_before_point = 1 + math.floor(math.log10(value))
    return f"{value:,.{max(0, 3 - digits_before_point)}f}"


def draw(chart: BarChart) -> Figure:
    """Return the figure: a row per configuration, and in it a bar per machine with a faint dot per iteration."""
    rows = len(chart.drawn)
    height = 2.2 + rows * (0.2 + 0.15 * len(chart.machines)) + 0.17 * len(chart.machines)
    figure = Figure(figsize=(8, height), layout="constrained")
    axes = figure.subplots()
    for number, machine in enumerate(chart.machines):
        draw_machine(axes, chart, number, machine)
    axes.set_yticks(range(rows), chart.drawn)
    axes.invert_yaxis()  # the first configuration is on top
    axes.set_xlim(0, 1.12 * axes.get_xlim()[1])  # space for the last number
    axes.set_xlabel(f"seconds for {ITERATIONS} iterations (shorter is faster)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=8, frameon=False)
    figure.suptitle(chart.title, x=0.01, ha="left", fontsize=12)
    figure.supxlabel("\n".join(write_caption(chart)), x=0.01, ha="left", fontsize=8)
    return figure


def draw_machine(axes: Axes, chart: BarChart, number: int, machine: str) -> None:
    """Draw the bars of one machine, at their places in the rows of the configurations."""
    thickness = ROW_HEIGHT / len(chart.machines)
    offset = (number + 0.5) * thickness - ROW_HEIGHT / 2
    colour = COLOURS[number % len(COLOURS)]
    drawn = chart.drawn
    bars = [bar for bar in chart.bars_of(machine) if bar.configuration in drawn]
    places = [drawn.index(bar.configuration) + offset for bar in bars]
    lengths = [bar.seconds for bar in bars]
    label = f"{chart.machines[machine].name}, {chart.machines[machine].details}"
    axes.barh(places, lengths, 0.9 * thickness, color=colour, label=label)
    for place, bar in zip(places, bars, strict=True):
        draw_iterations(axes, bar.iteration_seconds, place, 0.6 * thickness)
        axes.annotate(
            format_number(bar.seconds) + (" (disturbed)" if bar.disturbance else ""),
            (max(bar.iteration_seconds), place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
        )


def draw_iterations(axes: Axes, times: Sequence[float], place: float, height: float) -> None:
    """Draw a faint dot per iteration. They are spread over a height, so that equal times don't hide each other."""
    count = len(times)
    shares = [(number * GOLDEN_RATIO) % 1 for number in range(count)]
    heights = [place + height * (share - 0.5) for share in shares]
    axes.plot(times, heights, "o", color="black", ms=2, mew=0, alpha=0.35)


def write_caption(chart: BarChart) -> list[str]:
    """Return the lines below the chart: what was moved, what is shown, and what is left out."""
    smallest = min(chart.message_bytes)
    largest = max(chart.message_bytes)
    total = sum(chart.message_bytes)
    lines = [
        f"Each iteration moves {format_mebibytes(total)} in messages of {format_mebibytes(smallest)} to "
        f"{format_mebibytes(largest)}, and each reader owns a copy. Every byte was verified",
        f"outside of the clock. {'; '.join(chart.versions)}.",
        "Bar: mean of the timed iterations, times 100. Faint dots: single iterations, times 100.",
    ]
    if len(chart.machines) > 1:
        lines.append("The bars of a row are those of the machines above, in the same order.")
    if chart.undrawn:
        lines.append(
            f"Not drawn: {len(chart.undrawn)} slower configurations ({MAX_ROWS} have a row)."
        )
    if chart.doubtful_runs:
        runs = (
            "1 run that was"
            if chart.doubtful_runs == 1
            else f"{chart.doubtful_runs} runs that were"
        )
        lines.append(f"Left out: {runs} disturbed or had not settled.")
    if chart.disturbed_bars:
        lines.append(
            "Disturbed: other programs or virtual machines used the cores, and there are no other runs."
        )
    if total == demo.ITERATION_BYTES:
        lines.append(
            f"The demo RayCG-ChatLearn reports {demo.QUEUE_SECONDS} s with queues through the driver and "
            f"{demo.GRAPH_SECONDS} s with a compiled graph:"
        )
        lines.append("on another machine, with GPUs and NCCL, and with another clock.")
    return lines


def format_mebibytes(size: int) -> str:
    return f"{size / MIB:,.3g} MiB"


def print_times(chart: BarChart) -> None:
    """Print the time of each bar, and if there are two configurations, their ratio on each machine."""
    if chart.flow != SCRIPTS_FLOW:
        print(f"the flow {chart.flow}, which is not that of the two scripts:")
    for name in chart.configurations:
        for machine in chart.machines:
            for bar in chart.bars_of(machine, name):
                time = f"{format_number(bar.seconds)} s for {ITERATIONS} iterations"
                note = f" (disturbed: {bar.disturbance})" if bar.disturbance else ""
                print(f"{name}: {time}{chart.where(machine)}{note}")
    if len(chart.configurations) == 2:
        for machine in chart.machines:
            print_ratio(chart, machine)


def print_ratio(chart: BarChart, machine: str) -> None:
    """Print how many times as long one configuration takes as the other, if both were measured on this machine."""
    bars = sorted(chart.bars_of(machine), key=lambda bar: bar.seconds)
    if len(bars) != 2:
        return
    fast, slow = bars
    ratio = format_number(slow.seconds / fast.seconds)
    comparison = f"{slow.configuration} takes {ratio} times as long as {fast.configuration}"
    note = ""
    if fast.disturbance or slow.disturbance:
        note = DISTURBED_RATIO
    elif not (fast.is_judged and slow.is_judged):
        note = NOT_JUDGED
    print(f"{comparison}{chart.where(machine)}{note}")


def is_published(path: Path) -> bool:
    absolute = path.resolve()
    return PUBLISHED in (absolute, *absolute.parents)


def choose_folder(first: Path) -> Path:
    """Return the folder of the chart: img/ for published records, or the one with the records."""
    if is_published(first):
        return ROOT / "img"
    return first if first.is_dir() else first.parent


def choose_records(paths: Sequence[Path], left_out: LeftOut) -> list[ScriptRecord]:
    """Return the records of these paths; of campaigns, those of the flow that the two scripts have."""
    records = read_records(paths)
    if not all(is_published(path) for path in paths):
        return records
    chosen = []
    for record in records:
        if record.workload["flow"] == SCRIPTS_FLOW:
            chosen.append(record)
        else:
            left_out.add(record, f"another flow than that of the two scripts, {SCRIPTS_FLOW}")
    return chosen


def write(figure: Figure, path: Path) -> None:
    """Write the figure as SVG, equal for equal charts."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    path.write_text(shorten_svg(buffer.getvalue()), encoding="utf-8")


def main() -> None:
    """Draw the records that the user names, or the newest ones, and print their times.

    Exit with one line if the records cannot be read or compared, or if the chart cannot be written.
    """
    parser = OneLineParser(__doc__)
    parser.add_argument("records", nargs="*", type=Path, help="records, or folders of records")
    paths = parser.parse_args().records or find_newest(RESULTS)
    if not paths and PUBLISHED.is_dir():
        paths = [PUBLISHED]
    try:
        left_out = LeftOut()
        chart = make_chart(choose_records(paths, left_out), left_out)
        path = choose_folder(paths[0]) / CHART_NAME
        with rc_context({"svg.hashsalt": "chatlearn-data-flow"}):  # equal charts are equal files
            write(draw(chart), path)
    except (SuiteError, OSError) as error:
        sys.exit(f"error: {error}")
    print_times(chart)
    if chart.undrawn:
        print(f"not drawn, because a chart has {MAX_ROWS} rows: {', '.join(chart.undrawn)}")
    if chart.left_out.names:
        print(chart.left_out.describe())
    print(path)


if __name__ == "__main__":
    main()
