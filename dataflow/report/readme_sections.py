"""Build the first parts of README.md: the demo's two scripts beside the demo itself, and which transport to use."""

from collections.abc import Sequence

from dataflow.analysis.comparison import Pair, find_transports
from dataflow.analysis.links import times_link
from dataflow.analysis.result import Result
from dataflow.catalogue.catalogue import BASELINE
from dataflow.report.cluster_tables import describe_layout
from dataflow.report.groups import provenance
from dataflow.report.sentences import describe_alone, describe_fastest, format_interval
from dataflow.report.stage_tables import headline_results
from dataflow.report.tables import OWN_COPY, VIEW, Section, TextTable, format_significant, readers_of
from dataflow.units import format_bytes

DEMO_SECONDS = (279.23, 35.37)  # published by the demo for its queues and its compiled graph: docs/demo.md
DEMO_ITERATIONS = 100
SCRIPTS = {BASELINE: "simulate_chat_learn_data_flow.py", "graph shm": "ray_cg_simulate_chat_learn_data_flow.py"}
DEMO_SCRIPTS = tuple(SCRIPTS)  # what they measure on a machine without a GPU
DEMO_FLAGS = {"": "here", " --retain-memory": "here, with four environment variables (`--retain-memory`)"}
GPU_ANSWER = "**GPUs:** not measured. NCCL and CUDA IPC have never run on a GPU here: [docs/gpu.md](docs/gpu.md)."


def build_readme(results: Sequence[Result]) -> list[Section]:
    """Return the sections "demo" and "answers", without those that have no records."""
    shown = [result for result in headline_results(results) if result.status == "ok"]
    built = []
    if {result.name for result in shown}.issuperset(DEMO_SCRIPTS):
        built.append(build_demo(shown))
    if shown:
        built.append(Section("answers", "", build_answers(results, shown)))
    return built


def build_demo(shown: Sequence[Result]) -> Section:
    """Return the demo's commands with the time of 100 iterations by the records, beside the times of the demo."""
    by_name = {result.name: result for result in shown}
    queues, graph = DEMO_SECONDS
    cells, used = [["the demo, on its GPUs", f"{queues} s", f"{graph} s", f"{queues / graph:.1f}"]], []
    seconds = {name: format_significant(DEMO_ITERATIONS * result.typical_seconds) for name, result in by_name.items()}
    for flag, place in DEMO_FLAGS.items():
        names = [name + flag for name in DEMO_SCRIPTS if name + flag in by_name]
        if len(names) == len(DEMO_SCRIPTS):
            used += [by_name[name] for name in names]
            ratio = Pair(used[-1], used[-2]).ratio
            factor = f"{format_significant(ratio.value)} ({format_interval(ratio)})"
            cells.append([place, *(f"{seconds[name]} s" for name in names), factor])
    commands = [f".venv/bin/python {SCRIPTS[name]:40}  # Execution time: about "
                f"{seconds[name]} seconds" for name in DEMO_SCRIPTS]  # fmt: skip
    headers = ["where", "queues through the driver", "compiled graph", "times as fast (95 % interval)"]
    edges = [edge.bytes for edge in shown[0].workload.edges]
    size = (f"{DEMO_ITERATIONS} iterations, messages of {format_bytes(min(edges))} to {format_bytes(max(edges))}. "
            f"Here: {DEMO_ITERATIONS} times the time per iteration of the records.")  # fmt: skip
    code = "\n".join(["```", *commands, "```"])
    return Section("demo", "", code, TextTable(headers, cells), notes=[size, *provenance(used)])


def build_answers(results: Sequence[Result], shown: Sequence[Result]) -> str:
    """Return a list of four answers: several nodes, one node with copies, one node with views, GPUs."""
    on_ray = [result for result in headline_results(results) if result.transport.runtime.uses_ray]
    copies = [result for result in on_ray if readers_of(result) == OWN_COPY]
    size = format_bytes(shown[0].workload.bytes_per_iteration)
    answers = [f"**One node** (on Ray, {size} per iteration). {describe_fastest(copies)}"]
    nodes = [r for r in results if r.table == "cluster" and times_link(r) and readers_of(r) == OWN_COPY]
    if nodes:
        largest = max((result.workload for result in nodes), key=lambda workload: workload.bytes_per_iteration)
        nodes = sorted((r for r in nodes if r.workload == largest), key=lambda result: times_link(result) or 0)
        times = [f"`{result.name}` {format_significant(times_link(result))}" for result in nodes]
        layout = f"{describe_layout(nodes[0])}, {format_bytes(largest.bytes_per_iteration)} per iteration"
        answers.insert(0, f"**Several nodes** ({layout}). Times as long as the network alone: {', '.join(times)}.")
    views = [r for r in find_transports(results) if readers_of(r) == VIEW and r.transport.runtime.uses_ray
             and r.workload == shown[0].workload and r.table == "configurations"]  # fmt: skip
    views.sort(key=lambda result: result.typical_seconds)
    fastest = [next((r for r in views if r.producer_writes_in_place == in_place), None) for in_place in (False, True)]
    if any(fastest):
        answers.append(f"**One node, readers that only read.** {'; '.join(describe_alone(r) for r in fastest if r)}.")
    return "\n".join(f"* {answer}" for answer in [*answers, GPU_ANSWER])
