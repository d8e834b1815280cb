"""Test the flags of ChatLearn's transport and trainer, and run its episodes over many flows in one process.

Bytes are verified, and operations are counted. Queues are lists and remote calls are calls. One test uses Ray.
"""

from collections import Counter
from types import SimpleNamespace
from typing import ClassVar

import pytest
import ray
import torch
from conftest import reject_options
from in_process import flip_bit

from dataflow.endpoints.payload import Outbox
from dataflow.endpoints.progress_table import ProgressTable
from dataflow.flows.catalogue import build_flow
from dataflow.measure.data_path import expected_stored_bytes, find_other_data_path
from dataflow.measure.loop import Measurement, WarmUp, iteration_groups
from dataflow.measure.monitor import DriverReport
from dataflow.records.schema import Run
from dataflow.studies.chatlearn import driver as driver_module
from dataflow.studies.chatlearn import models
from dataflow.studies.chatlearn.models import ChatLearnActor, Trainer, digest, split_samples
from dataflow.workers.worker_group import WorkerGroup

BATCH_SIZE = 8
LENGTHS = ("--prompt-len", "uniform:4:8", "--response-len", "6")
SMALL = ("--transport", "ref-queue", "--batch-size", str(BATCH_SIZE), *LENGTHS, "--warmup", "2")
GRPO = ("--flow", "grpo", "--message", "fields", "--in-flight", "2", "--episode", "2")
TRAINED = (*GRPO, "--sink", "trainer", "--train-global-batch", "8", "--train-micro-batch", "4")


class LocalActor:
    """An object whose methods are called as those of a Ray actor."""

    def __init__(self, target):
        self.target = target

    def __getattr__(self, name):
        return SimpleNamespace(remote=getattr(self.target, name))


class LocalWorkers(WorkerGroup):
    def _start_actors(self, actor_class, extra):
        self.actors = {
            name: LocalActor(actor_class(self.plan, name, *extra))
            for name in self.plan.worker_names[1:]
        }

    def _run_in_actors(self, function):
        return {name: function(actor.target) for name, actor in self.actors.items()}


class ListQueue(list):
    operations: ClassVar[Counter] = Counter()  # of all queues of a run

    def __init__(self):
        self.operations["made"] += 1

    def put(self, item):
        self.operations["put"] += 1
        self.append(item)

    def qsize(self):
        self.operations["qsize"] += 1
        return len(self)

    def get(self):
        self.operations["get"] += 1
        return self.pop(0)


@pytest.fixture
def run(make_plan, monkeypatch, tmp_path):
    """run(*flags) -> the plan, and the run that was measured."""

    def remote(**_):
        return lambda kind: SimpleNamespace(remote=lambda *arguments: LocalActor(kind(*arguments)))

    monkeypatch.setattr(ray, "put", lambda value: value)
    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(ray, "remote", remote)
    monkeypatch.setattr(driver_module, "Queue", ListQueue)

    def run(*flags):
        plan = make_plan("store", *flags, *SMALL, run_folder=tmp_path)
        (tmp_path / "progress").unlink(missing_ok=True)
        ProgressTable(tmp_path, plan.worker_names, plan.total_iterations)
        workers = LocalWorkers(plan)
        ListQueue.operations.clear()
        connection = driver_module.by_ref_queue(workers)
        report = DriverReport(Run(data_paths=connection.data_paths))
        Measurement(plan, workers, connection, report).measure()
        return plan, report.run

    return run


def groups(plan):
    """Return the number of messages of each episode."""
    return [len(numbers) for numbers, _ in iteration_groups(plan, WarmUp(is_fixed=True))]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", ["online-dpo", "ppo", "grpo", "grpo-math"])
def test_operations_equal_chatlearns_formulas(run, name, count):
    message = ["--as-sent"] if count == 3 else ["--message", "fields"]
    episodes = ("--episode", str(count), "--in-flight", str(count), "--iterations", str(3 * count))
    plan, result = run("--flow", name, *message, *episodes)
    assert (result.status, result.reason) == ("ok", None)
    flow = build_flow(name, plan.options.sizes, "fields")
    queues, episodes, messages = len(flow.edges) + 1, len(groups(plan)), sum(groups(plan))
    assert ListQueue.operations == {
        "made": episodes * queues,
        "put": messages * queues,
        "get": messages * queues,
        "qsize": 2 * (messages + episodes),
    }


@pytest.mark.parametrize(
    ("name", "count", "global_batch", "micro_batch"),
    # In the last case, the last step has only half of its samples.
    [("online-dpo", 1, 8, 8), ("ppo", 4, 16, 2), ("grpo-math", 2, 4, 2), ("grpo", 3, 16, 2)],
)
def test_samples_reach_the_trainer_by_its_formulas(run, name, count, global_batch, micro_batch):
    flags = f"--sink trainer --episode {count} --in-flight {count} --iterations {2 * count}"
    flags += f" --train-global-batch {global_batch} --train-micro-batch {micro_batch}"
    plan, result = run("--flow", name, "--message", "packed", *flags.split())
    assert (result.status, result.reason) == ("ok", None)
    episodes, queues = groups(plan), len(build_flow(name, plan.options.sizes, "packed").edges) + 1
    steps = sum(-(-messages * BATCH_SIZE // global_batch) for messages in episodes)
    puts = sum(episodes) * queues + steps
    assert (ListQueue.operations["put"], ListQueue.operations["get"]) == (puts, puts)
    assert ListQueue.operations["made"] == len(episodes) * (queues + 2)


def test_dataset_reads_a_message_when_a_micro_batch_needs_it(run, monkeypatch):
    next_batch, read = ChatLearnActor.next, []

    def next_and_note(self):
        batch = next_batch(self)
        read.append((self.given_samples, len(self.acknowledgements)))
        return batch

    monkeypatch.setattr(ChatLearnActor, "next", next_and_note)
    _, result = run(*TRAINED, "--iterations", "4")
    assert (result.status, result.reason) == ("ok", None)
    assert {count for given, count in read if given == 4} == {1}


def change_sample(batches):
    batches[0]["rm_rewards"][0] = [9.5]
    return batches


def exchange_field(batches):
    """Exchange a field of two samples."""
    batches[0]["action_logprobs"] = batches[0]["action_logprobs"].flip(0)
    return batches


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b[1:],
        lambda b: b + b[:1],
        lambda b: [b[0], *b[:-1]],
        change_sample,
        exchange_field,
    ],
)
def test_a_sample_that_does_not_reach_the_trainer_exactly_once_fails_the_run(
    run, monkeypatch, change
):
    step = Trainer.train_step
    monkeypatch.setattr(
        Trainer, "train_step", lambda self, references: step(self, change(references))
    )
    _, result = run(*TRAINED, "--iterations", "2")
    assert (result.status, set(result.wrong_bytes_by_field)) == (
        "failed",
        {"stream-dataset -> trainer"},
    )


@pytest.mark.parametrize(
    "change", [lambda samples: samples[:-1], lambda samples: samples + samples[:1]]
)
def test_a_sample_that_the_dataset_loses_or_repeats_fails_the_run(run, monkeypatch, change):
    monkeypatch.setattr(models, "split_samples", lambda messages: change(split_samples(messages)))
    _, result = run(*TRAINED, "--iterations", "2")
    assert result.status == "failed" and "stream-dataset" in result.wrong_bytes_by_field


def test_a_changed_bit_of_any_field_or_another_dtype_changes_the_digest_of_a_sample():
    sizes = {"batch_size": 1, "prompt_len": "uniform:3:9", "response_len": "uniform:2:7"}
    message = build_flow("ppo", sizes, "fields").message("reward")
    payload = Outbox("reward", message, 1, torch.device("cpu")).pool[0]
    (sample,) = split_samples([payload])
    for name in payload:
        (changed,) = split_samples([flip_bit(payload, name)])
        assert digest(changed) != digest(sample), name
    assert digest(sample | {"ref_logprobs": sample["ref_logprobs"].view(torch.int32)}) != digest(
        sample
    )


def test_the_store_takes_in_the_micro_batches_and_the_trace_has_the_steps_of_the_trainer(
    run_script,
):
    """These messages are large enough for the store, whose bytes are those that are expected, or the run fails."""
    flags = ("--transport", "ref-queue", "--message", "fields", "--flow", "online-dpo", "--batch-size", "64",
             "--prompt-len", "389", "--response-len", "512", "--episode", "2", "--in-flight", "2", "--iterations", "4",
             "--warmup", "0", "--sink", "trainer", "--keep-queues", "--model-seconds", "trainer=50ms")  # fmt: skip
    finished = run_script("store", *flags, "--trace")
    run = finished.run
    assert (finished.code, run.status, run.reason, run.wrong_bytes) == (0, "ok", None, 0)
    assert not any("as requested" in path for path in run.data_paths.values())
    # The trace has episodes, because iterations overlap in them.
    assert len(run.iterations_us) == len(run.group_seconds) == 2
    assert {(span[0], span[3]) for span in run.spans if span[2] == "train"} == {
        ("trainer", 0),
        ("trainer", 1),
    }


@pytest.mark.parametrize(("flags", "reason"), [
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
])  # fmt: skip
def test_flags_that_cannot_be_used_are_rejected_in_one_line(no_gpu, flags, reason):
    assert reason in reject_options("store", "--transport", *flags.split())


def test_the_micro_batches_of_the_trainer_are_stored_too(make_plan):
    sizes = (
        "--message",
        "fields",
        "--batch-size",
        "64",
        "--prompt-len",
        "389",
        "--response-len",
        "512",
    )
    counts = (
        "--episode",
        "4",
        "--in-flight",
        "4",
        "--iterations",
        "4",
        "--warmup",
        "0",
        "--sink",
        "trainer",
    )
    flags = ("--transport", "ref-queue", *sizes, *counts)
    plan = make_plan("store", *flags)
    messages, batches = (
        expected_stored_bytes(plan),
        plan.task_flow.edges_to("stream-dataset")[0].bytes,
    )
    for stored, is_expected in ((messages + batches, True), (messages + 2 * batches, False)):
        problem = find_other_data_path(plan, Run(stored_bytes=4 * stored), {}, range(2, 6))
        assert (problem is None) == is_expected
    uneven = make_plan(
        "store", *flags, "--prompt-len", "uniform:10:100"
    )  # the longest sample sets the length
    assert uneven.added.store_bytes > uneven.task_flow.edges_to("stream-dataset")[0].bytes
    assert make_plan("store", *flags[:-2]).added.store_bytes == 0
