"""Run the collectives of ZeRO, as a user starts them, and count what they send."""

import pytest

from dataflow.flows.catalogue import build_flow

# A reduce-scatter over gloo sends as much as an all-reduce.
RUNS = [
    ("torch", "collectives", 1, 1.0), pytest.param("rdt", "collectives", 3, 4 / 3, marks=pytest.mark.long),
]  # fmt: skip


@pytest.mark.parametrize(("runtime", "transport", "stage", "times"), RUNS)
def test_ranks_send_the_bytes_of_their_collectives(run_script, join_cluster, runtime, transport, stage, times):
    sizes = ("--flow", "zero", "--model", "8MB", "--zero-ranks", "3", "--zero-stage", str(stage))
    flags = ("--transport", transport, *sizes, "--iterations", "4", "--warmup", "1")
    finished = run_script(runtime, *flags, *join_cluster(runtime))
    assert (finished.code, finished.stderr) == (0, "")
    run = finished.run
    assert (run.status, run.wrong_bytes) == ("ok", 0)
    by_textbook = sum(task.other_bytes for task in build_flow("zero", finished.record.workload.sizes).tasks)
    assert run.loopback_bytes / len(run.seconds) == pytest.approx(times * by_textbook, rel=0.02)
