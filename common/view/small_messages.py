"""The microbenchmarks of Ray's compiled-graphs article beside what a machine gives, from records alone."""

import re
from typing import Any

from common.analysis.statistics import harness_share, speedup_interval, summarise
from common.view import tables as report
from common.view.ladder_chart import Row

# "Announcing Compiled Graphs", Anyscale, and Ray's documentation: small messages on CPUs, tensors of 40 MB on GPUs.
CLAIMS = {
    "round-trip": "about 50 µs a call instead of 1 to 2 ms; up to 17× on one node, 2.7× over several",
    "scatter-gather": "up to 20×",
    "chain": "up to 20×",
}
GPU_CLAIM_BYTES = 40_000_000
GPU_CLAIM = "round trip of 40 MB between GPUs: 19× (A10G), 140× (A100, NVLink)"


def _label(record: dict[str, Any], case: dict[str, Any]) -> str:
    """The row's name without its episode, which has no bearing on what the row is."""
    return re.sub(r" --episode \d+", "", report.label(record, case))


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """One line for each flow, size and transport: its median, a hop of it, its factor over references.

    A hop is one message on the longest path of the flow: two for a round trip or a scatter-gather, K + 1
    for a chain of K. References carry tensors, or bytes where the row carries bytes. The harness is the
    suite's own work inside the clock, all processes together.
    """
    cells = []
    for record, case in rows:
        name = record["arguments"]["flow"]
        edges = case["edges"]
        hops = 2 if name == "scatter-gather" else len(edges)
        spread = record["arguments"].get("placement") == "spread"
        payload = "bytes" if case["transport"] == "bytes" else "refs"  # like for like: bytes, or tensors
        wanted = f"store {payload} --placement spread" if spread else f"store {payload}"
        kind = (case["flow"], edges, record["arguments"].get("episode", 1))
        like = [o for o in rows if (o[1]["flow"], o[1]["edges"], o[0]["arguments"].get("episode", 1)) == kind]
        baseline = next((other["seconds"] for r, other in like if _label(r, other) == wanted), None)
        median = summarise(case["seconds"]).median
        factor = "-"
        if baseline and case["seconds"] is not baseline:
            ratio, low, high = speedup_interval(case["seconds"], baseline)
            factor = f"{ratio:.3g}x ({low:.3g} to {high:.3g})"
        cells.append([
            case["flow"], _label(record, case), f"{edges[0]['bytes']:,}", f"{len(case['seconds'])}",
            f"{median * 1e6:,.0f}", f"{median / hops * 1e6:,.0f}", factor,
            f"{harness_share(case):.1%}",
        ])  # fmt: skip
    return ["flow", "transport", "bytes", "trips", "median µs", "µs a hop", "over references", "harness"], cells
