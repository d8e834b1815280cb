# SPDX-License-Identifier: Apache-2.0
"""Test which flags of ChatLearn's transport and trainer are rejected, and with which words."""

import pytest
from conftest import reject_options
from in_process import LocalEndpoints, LocalRingEndpoints

from dataflow.catalogue.catalogue import TRANSPORTS
from dataflow.flows.catalogue import build_flow


@pytest.mark.parametrize(("flags", "reason"), [
    ("refs --episode 8", "--episode is a flag of 'store ref-queue': choose"),
    ("ref-queue --episode 8 --in-flight 4", "give --in-flight 8"),
    ("ref-queue --episode 2 --in-flight 4", "a verification after 2 iterations: give 2 or less"),
    ("ref-queue --episode 2 --in-flight 2 --check-every 2", "--check-every: every episode"),
    ("ref-queue --episode 200", "--iterations 30: give 200"),
    ("refs --sink trainer", "--sink is a flag of 'store ref-queue': choose"),
    ("refs --replicas policy=2", "--replicas is a flag of 'store ref-queue': choose"),
    ("refs --ranks policy=2", "--ranks is a flag of 'store ref-queue': choose"),
    ("refs --data-parallel 2", "--data-parallel is a flag of 'store ref-queue': choose"),
    ("refs --relay-episodes 2", "--relay-episodes is a flag of 'store ref-queue': choose"),
    ("ref-queue --replicas critic=2", "--replicas critic: online-dpo has no such model: give policy"),
    ("ref-queue --ranks critic=2", "--ranks critic: online-dpo has no such model: give policy"),
    ("ref-queue --ranks stream-dataset=2 --sink trainer --message fields", "has no such model"),
    ("ref-queue --replicas policy=0", "--replicas policy=0: give a whole number from 1 to 64"),
    ("ref-queue --replicas reward=9 --ranks reward=8", "reward has 9 times 8 processes: give 64 or less"),
    ("ref-queue --ranks policy", "--ranks 'policy': give MODEL=N, such as policy=2,reference=3"),
    ("ref-queue --ranks policy=", "--ranks 'policy=': give MODEL=N, such as policy=2,reference=3"),
    ("ref-queue --ranks =2", "--ranks '=2': give MODEL=N, such as policy=2,reference=3"),
    ("ref-queue --ranks policy=2,", "--ranks 'policy=2,': give MODEL=N, such as policy=2,reference=3"),
    ("ref-queue --ranks policy=-1", "--ranks policy=-1: give a whole number from 1 to 64"),
    ("ref-queue --replicas policy=2.5", "--replicas policy=2.5: give a whole number from 1 to 64"),
    ("ref-queue --replicas policy=65", "--replicas policy=65: give a whole number from 1 to 64"),
    ("ref-queue --replicas policy=2,policy=2", "--replicas policy=2,policy=2: give each model once"),
    ("ref-queue --data-parallel 2", "--data-parallel is a flag of the trainer: give --sink trainer too"),
    ("ref-queue --relay-episodes 2", "--relay-episodes is a flag of the trainer: give --sink trainer too"),
    ("ref-queue --trainers 2", "--trainers is a flag of the trainer: give --sink trainer too"),
    ("ref-queue --sink trainer",
     "--sink trainer: the results of online-dpo are flat, and cannot be cut into samples: give --message fields, or"),
    ("ref-queue --sink trainer --flow slime", "the results of slime are flat, and cannot be cut into samples: give"),
    ("ref-queue --sink trainer --flow chain --message fields",
     "the results of chain-4 are flat, and cannot be cut into samples: give one of ChatLearn's flows"),
    ("ref-queue --train-micro-batch 4", "give --sink trainer too"),
    ("ref-queue --flow ppo --message jagged --sink trainer", 
     "--sink trainer: jagged messages of ppo cannot be cut into samples: give --message fields"),
    ("ref-queue --message fields --sink trainer --episode 4", "give --in-flight 4"),
    ("ref-queue --message fields --sink trainer --train-global-batch 4", "a multiple of --train-micro-batch 8"),
    ("ref-queue --message fields --sink trainer --train-global-batch 24 --data-parallel 2",
     "--train-global-batch 24: give a multiple of --train-micro-batch 8 times --data-parallel 2"),
    ("ref-queue --message fields --sink trainer --episode 4 --in-flight 4 --iterations 8 --relay-episodes 3",
     "--iterations 8: --relay-episodes 3 needs 12 to fill the relay buffer: give 12 or more iterations"),
    ("ref-queue --zero-copy", "--zero-copy: store ref-queue cannot be measured with it: use store refs --zero-copy"),
])  # fmt: skip
def test_flags_that_cannot_be_used_are_rejected_in_one_line(no_gpu, flags, reason):
    assert reason in reject_options("store", "--transport", *flags.split())


@pytest.mark.parametrize("flag", ["--replicas", "--ranks"])
def test_an_empty_text_of_a_layout_is_rejected(no_gpu, flag):
    error = reject_options("store", "--transport", "ref-queue", flag, "")
    assert error == f"{flag} '': give MODEL=N, such as policy=2,reference=3"


@pytest.mark.parametrize("flag", ["replicas", "ranks"])
def test_one_process_of_a_model_is_the_configuration_without_the_flag(make_plan, flag):
    def flags_of(text):
        plan = make_plan("store", "--transport", "ref-queue", f"--{flag}", text)
        return plan.configuration.flags

    assert flags_of("policy=1") == flags_of("policy=1,reference=1") == {}
    assert flags_of("reward=2,policy=3,reference=1") == {flag: "policy=3,reward=2"}
    unknown = reject_options("store", "--transport", "ref-queue", f"--{flag}", "critic=1")
    assert "online-dpo has no such model" in unknown


@pytest.mark.parametrize("fields", ["x int64 8kB, y int64 80B", "x int64 800008B"])
def test_all_fields_of_a_trainers_results_have_as_many_samples_and_not_too_many(no_gpu, fields):
    flags = ("--transport", "ref-queue", "--sink", "trainer", "--message", "fields")
    error = reject_options("store", *flags, "--flow", f"a -> driver: {fields}")
    assert "need equally many samples, at most 100000: change its messages, or give" in error
    assert "give --message" not in error


def test_dpo_is_a_flow_of_every_transport(make_plan):
    """One that cannot send it, such as one that is not installed here, says so by itself."""
    for label in ("store refs", "store bytes", "graph shm", "torch gloo", "torch mapped"):
        runtime, name = TRANSPORTS[label].label.split()
        plan = make_plan(runtime, "--transport", name, "--flow", "dpo", "--batch-size", "4")
        assert [str(edge) for edge in plan.task_flow.edges] == [
            "driver -> reference",
            "reference -> driver",
        ]


def test_dpo_messages_are_verified_by_the_endpoints_of_other_transports(tmp_path):
    """Rings are those of graph mapped and torch mapped."""
    flow = build_flow("dpo", {"batch_size": 4, "prompt_len": "uniform:4:8", "response_len": "6"})
    for endpoints in (LocalEndpoints(flow), LocalRingEndpoints(flow, tmp_path)):
        for number in (1, 2):
            endpoints.run(number)
            assert endpoints.verify(number) == {}
