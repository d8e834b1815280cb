"""The microbenchmarks of Ray's compiled-graphs article beside what a machine gives, from records alone."""

import re
from collections.abc import Sequence

from common.analysis.results import Result
from common.analysis.statistics import ratio
from common.record.rows import row_name
from common.text.tables import Column, interval, markdown_table, of_hand_over, provenance

# "Announcing Compiled Graphs", Anyscale, and Ray's documentation: small messages on CPUs, tensors of 40 MB on GPUs.
CLAIMS = {
    "round-trip": "about 50 µs a call instead of 1 to 2 ms; up to 17× on one node, 2.7× over several",
    "scatter-gather": "up to 20×",
    "chain": "up to 20×",
}
GPU_CLAIM_BYTES = 40_000_000
GPU_CLAIM = "round trip of 40 MB between GPUs: 19× (A10G), 140× (A100, NVLink)"


def columns(results: Sequence[Result]) -> list[Column]:
    """Of a line for each flow, size and transport: its median, a hop of it, its factor over references.

    A hop is one message on the longest path of the flow. References carry tensors, or bytes where the row carries
    bytes. The hand-over is a word through a pipe for each edge; the harness the suite's own work inside the clock,
    all processes together.
    """

    def over_references(result: Result) -> str:
        baseline = _references(result, results)
        if baseline is None or baseline is result:
            return "-"
        times = ratio(baseline.seconds_by_run, result.seconds_by_run)
        return f"{times.value:.3g}x{interval(times, '{:.3g}'.format)}"

    return [
        Column("flow", lambda result: result.flow.name),
        # Without its episode, which has no bearing on what the row is.
        Column("transport", lambda result: re.sub(r" --episode \d+", "", result.name)),
        Column("bytes", lambda result: f"{result.record.edges[0].bytes:,}"),
        Column("trips", lambda result: f"{len(result.seconds)}"),
        Column("median µs", lambda result: f"{result.summary.median * 1e6:,.0f}"),
        Column("p95 µs", lambda result: f"{result.summary.p95 * 1e6:,.0f}" if result.summary.p95 else "-"),
        Column("µs a hop", lambda result: f"{result.summary.median / result.flow.longest_path() * 1e6:,.0f}"),
        Column("over references", over_references),
        Column("of hand-over", of_hand_over),
        Column("harness", lambda result: f"{result.harness_share:.1%}"),
    ]


def _references(result: Result, results: Sequence[Result]) -> Result | None:
    """Like for like: the same flow, sizes, place, episode, and tensors or bytes."""
    row = result.record.row
    pace = {name: value for name, value in row.flags.items() if name in ("episode", "in_flight")}
    name = result.named(row_name("store", "bytes" if row.transport == "bytes" else "refs", pace))
    like = (name, result.flow.name, result.record.edges)
    return next((o for o in results if (o.name, o.flow.name, o.record.edges) == like), None)


def markdown(results: Sequence[Result]) -> str:
    """A table for each flow, below the article's claim."""
    lines = []
    for flow, claim in CLAIMS.items():
        own = [result for result in results if result.record.row.flow == flow]
        if own:
            lines += [f"**{own[0].flow.name}**; the article: {claim}.", ""]
            lines += [markdown_table(own, columns(own)[1:]), ""]
    large = [
        result
        for result in results
        if (result.record.row.flow, result.record.row.device) == ("round-trip", "cuda")
        and result.record.edges[0].bytes == GPU_CLAIM_BYTES
    ]
    where = [line + "  " for line in provenance(results)]
    return "\n".join([*lines, *where, "", f"{GPU_CLAIM}; here: {'see above' if large else 'not measured'}."])
