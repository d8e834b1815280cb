"""Test the flags of ChatLearn's transport and trainer: what is rejected, and what follows."""

import pytest
from conftest import reject_options

from dataflow.measure.data_path import expected_stored_bytes, find_other_data_path
from dataflow.records.schema import Run

pytestmark = pytest.mark.usefixtures("no_gpu")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("refs --episode 8", "--episode is a flag of --transport ref-queue: give"),
        ("ref-queue --episode 8 --in-flight 4", "give --in-flight 8"),
        ("ref-queue --episode 2 --in-flight 4", "a verification after 2 iterations: give 2 or less"),
        ("ref-queue --episode 2 --in-flight 2 --check-every 2", "--check-every: every episode"),
        ("ref-queue --episode 200", "--iterations 30: give 200"),
        ("refs --sink trainer", "--sink is a flag of --transport ref-queue: give"),
        ("ref-queue --sink trainer --flow slime", "give --message fields, or one of ChatLearn's flows"),
        ("ref-queue --sink trainer", "the flat messages of online-dpo cannot be cut into samples: give --message"),
        ("ref-queue --train-micro-batch 4", "give --sink trainer too"),
        ("ref-queue --flow ppo --message jagged --sink trainer", "jagged messages of ppo cannot be cut"),
        ("ref-queue --message fields --sink trainer --episode 4", "give --in-flight 4"),
        ("ref-queue --message fields --sink trainer --train-global-batch 4", "a multiple of --train-micro-batch 8"),
    ],
)
def test_flags_that_cannot_be_used_are_rejected_in_one_line(flags, reason):
    assert reason in reject_options("store", "--transport", *flags.split())


def test_the_micro_batches_of_the_trainer_are_stored_too(make_plan):
    sizes = ("--message", "fields", "--batch-size", "64", "--prompt-len", "389", "--response-len", "512")
    counts = ("--episode", "4", "--in-flight", "4", "--iterations", "4", "--warmup", "0", "--sink", "trainer")
    flags = ("--transport", "ref-queue", *sizes, *counts)
    plan = make_plan("store", *flags)
    messages, batches = expected_stored_bytes(plan), plan.task_flow.edges_to("stream-dataset")[0].bytes
    for stored, is_expected in ((messages + batches, True), (messages + 2 * batches, False)):
        problem = find_other_data_path(plan, Run(stored_bytes=4 * stored), {}, range(2, 6))
        assert (problem is None) == is_expected
    uneven = make_plan("store", *flags, "--prompt-len", "uniform:10:100")  # the longest sample sets the length
    assert uneven.added.store_bytes > uneven.task_flow.edges_to("stream-dataset")[0].bytes
    assert make_plan("store", *flags[:-2]).added.store_bytes == 0
