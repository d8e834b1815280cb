"""Run steps of a pipeline over runtimes of every kind, as a user starts them."""

import pytest

from dataflow.studies.pipeline.flow import SCHEDULES

SIZES = (
    "--flow", "pipeline", "--pipeline-stages", "2", "--micro-batches", "4", "--task-seconds", "2ms",
    "--hidden-size", "256",
)  # fmt: skip
RUNS = [
    ("torch", "gloo", "interleaved"),
    *(pytest.param(names, marks=pytest.mark.long) for names in (("graph", "shm", "zb-h2"), ("store", "refs", "1f1b"))),
]  # fmt: skip


@pytest.mark.parametrize("names", RUNS, ids=" ".join)
def test_steps_run_in_the_order_of_their_schedule(run_script, join_cluster, names):
    """Actors end the run if a task comes too early."""
    runtime, transport, schedule = names
    flags = ("--transport", transport, "--schedule", schedule, *SIZES, "--iterations", "4", "--warmup", "1")
    finished = run_script(runtime, *flags, *join_cluster(runtime))
    assert (finished.code, finished.stderr) == (0, "")
    run = finished.run
    assert (run.status, run.wrong_bytes) == ("ok", 0)
    steps = run.measured["pipeline"]
    expected = [SCHEDULES[schedule].held(stage, 2, 4) for stage in range(2)]
    assert [steps["held_activations"][stage] for stage in ("stage-1", "stage-2")] == expected
    for compute, stage, step in zip(steps["compute_seconds"], steps["stage_seconds"], run.seconds, strict=True):
        assert 4 * 3 * 0.002 <= compute <= stage <= step
