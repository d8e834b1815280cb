"""Verify what the table of pipelines shows of a record."""

from made_records import make_record, make_run

from dataflow.analysis.result import group_results
from dataflow.report.sections import sections


def test_the_bubble_of_a_pipeline_is_shown_beside_its_formula():
    sizes = {"flow": "pipeline", "stages": 2, "micro_batches": 2, "schedule": "1f1b"}
    steps = {"compute_seconds": [0.12, 0.12], "stage_seconds": [0.2, 0.15],
             "held_activations": {"stage-1": 2, "stage-2": 1}}  # fmt: skip
    record = make_record(
        "gloo", make_run([0.2, 0.15], measured={"pipeline": steps}), runtime="torch", table="pipeline", **sizes
    )
    (section,) = sections(group_results([record]))
    row = dict(zip(section.table.headers, section.table.cells[0], strict=True))
    assert (row["bubble, measured"], row["bubble by the formula"]) == ("30.0%", "33.3%")
    assert row["difference in percentage points"] == "-3.3"
    assert row["largest number of activations that each stage held"] == "2, 1"
