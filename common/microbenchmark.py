"""The microbenchmarks of Ray's compiled-graphs article beside what a machine gives, from records alone."""

from typing import Any

from common import report
from common.statistics import speedup_interval, summarise

Row = tuple[dict[str, Any], dict[str, Any]]
# "Announcing Compiled Graphs", Anyscale, and Ray's documentation: small messages on CPUs, tensors of 40 MB on GPUs.
CLAIMS = {
    "round-trip": "about 50 µs a call instead of 1 to 2 ms; up to 17× on one node, 2.7× over several",
    "scatter-gather": "up to 20×",
    "chain": "up to 20×",
}
GPU_CLAIM = "round trip of 40 MB between GPUs: 19× (A10G), 140× (A100, NVLink)"
BASELINE = "store refs"


def table(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """One line for each flow, size and transport: the median, what one hop of it takes, and the factor over references.

    A hop is one message on the longest path of the flow: two for a round trip or a scatter-gather, K + 1
    for a chain of K.
    """
    cells = []
    for record, case in rows:
        name = record["arguments"]["flow"]
        edges = case["edges"]
        hops = 2 if name == "scatter-gather" else len(edges)
        like = [other for other in rows if (other[1]["flow"], other[1]["edges"]) == (case["flow"], edges)]
        baseline = next((other["seconds"] for r, other in like if report.label(r, other) == BASELINE), None)
        median = summarise(case["seconds"]).median
        factor = "-"
        if baseline and case["seconds"] is not baseline:
            ratio, low, high = speedup_interval(case["seconds"], baseline)
            factor = f"{ratio:.3g}x ({low:.3g} to {high:.3g})"
        gpu = case["device"] == "cuda"
        cells.append([
            case["flow"], f"{edges[0]['bytes']:,}", report.label(record, case), f"{len(case['seconds'])}",
            f"{median * 1e6:,.0f}", f"{median / hops * 1e6:,.0f}", factor, GPU_CLAIM if gpu else CLAIMS[name],
        ])  # fmt: skip
    return ["flow", "bytes", "transport", "trips", "median µs", "µs a hop", "over references", "the article"], cells
