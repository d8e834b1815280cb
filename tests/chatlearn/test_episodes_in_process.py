"""ChatLearn's episodes over many flows, sizes and layouts, in one process: every byte checked, every operation counted.

Queues are lists and calls are calls; tests/runs/test_episodes.py has the real ones.
"""

import itertools
from types import SimpleNamespace

import pytest
import ray

from chatlearn import environment, models
from chatlearn.environment import Environment
from chatlearn.models import ChatLearnModel, SizedDriver, Trainer
from common.errors import RunFailed
from common.flow.catalogue import build_flow
from common.payload.samples import split
from common.run.trips import measure
from common.runtime.crew import Crew, Wiring
from common.trace.board import Board

ROWS = 8
SMALL = ("--rows", str(ROWS), "--prompt-len", "uniform:4:8", "--response-len", "6", "--warmup", "2", "--threads", "1")


class Here:
    """An object whose methods are called as an actor's are."""

    def __init__(self, here):
        self.here = here

    def __getattr__(self, name):
        return SimpleNamespace(remote=getattr(self.here, name))


class InProcess(Crew):
    def launch(self, model_class):
        self.actors = {name: Here(model_class(self.plan, name)) for name in self.plan.participants[1:]}

    def ask_actors(self, method, *arguments):
        return {name: getattr(actor.here, method)(*arguments) for name, actor in self.actors.items()}


class ListQueue(list):
    made = 0

    def __init__(self):
        ListQueue.made += 1

    put = list.append

    def get(self):
        return self.pop(0)

    def qsize(self):
        return len(self)


@pytest.fixture
def run(make_plan, monkeypatch, tmp_path):
    """run(*flags) -> plan, and what the run reported."""
    for name, stand_in in (
        ("put", lambda what: what), ("get", lambda what: what), ("wait", lambda *_, **__: None),
        ("remote", lambda **_: lambda kind: SimpleNamespace(remote=lambda *given: Here(kind(*given)))),
    ):  # fmt: skip
        monkeypatch.setattr(ray, name, stand_in)
    monkeypatch.setattr(environment, "Queue", ListQueue)
    for kind in (ChatLearnModel, SizedDriver):
        monkeypatch.setattr(kind, "message_bytes", lambda self, count: {})

    def run(*flags):
        plan = make_plan("store", *flags, *SMALL, folder=tmp_path)
        (tmp_path / "board").unlink(missing_ok=True)
        Board.create(tmp_path, plan.participants, plan.trips)
        crew, known = InProcess(plan), {}
        crew.start(ChatLearnModel, SizedDriver)
        made = Environment(crew)
        wiring = Wiring(made.submit, made.collect, {}, check=made.check, facts=made.operations.facts)
        measure(plan, crew, wiring, lambda **new: known.update(new))
        return plan, known

    return run


REPLICAS = ({}, {"policy": 2}, {"reference": 3})
RANKS = ({}, {"reference": 2})
FLOWS = ("online-dpo", "ppo", "grpo", "grpo-math", "dpo")


def listed(flag, numbers):
    return [flag, ",".join(f"{model}={number}" for model, number in numbers.items())] if numbers else []


@pytest.mark.parametrize(
    ("name", "count", "replicas", "ranks"),
    [
        case
        for case in itertools.product(FLOWS, (1, 2, 5), REPLICAS, RANKS)
        if not (case[0] == "dpo" and "policy" in case[2])
    ],
    ids=str,
)
def test_operations_are_those_of_chatlearns_formulas(run, name, count, replicas, ranks):
    message = ["--as-shipped"] if count == 2 and name != "dpo" else ["--message", "fields"]
    episodes = ("--episode", str(count), "--in-flight", str(count), "--iterations", str(3 * count))
    more = (*listed("--replicas", replicas), *listed("--ranks", ranks), "--generation-batch", "reference=3")
    plan, known = run("--flow", name, *message, *episodes, *more)
    assert (known["status"], known["reason"]) == ("ok", None)
    flow, found = build_flow(name, plan.sizes, "fields"), known["operations"]
    queues, returned = len(flow.edges), len(flow.edges_to("driver"))
    assert found == {
        "queue_actors": 1 + queues,
        "driver_put": count * queues + count,
        "driver_get": count * queues,
        "driver_qsize": count + 1,
        "driver_payload_gets": count * returned,
        "driver_payload_bytes": count * sum(edge.bytes for edge in flow.edges_to("driver")),
        "model_tasks": count * sum(ranks.get(task.name, 1) for task in flow.tasks),
        "stream_dataset_get": count,
        "stream_dataset_qsize": count + 1,
        "trainer_queue_actors": 0, "trainer_put": 0, "trainer_get": 0, "trainer_blocking_gets": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "count", "batches", "ranks", "trainers", "epochs", "loader"),
    [
        ("online-dpo", 1, (8, 8), 1, 1, 1, "fixed"),
        ("ppo", 4, (16, 2), 2, 2, 1, "dynamic"),
        ("grpo-math", 3, (12, 3), 2, 1, 3, "fixed"),
        ("dpo", 2, (4, 2), 1, 3, 2, "dynamic"),
        ("grpo", 3, (16, 2), 2, 1, 1, "fixed"),  # the last step is half empty
    ],
)
def test_samples_reach_the_trainers_by_chatlearns_operations(
    run, name, count, batches, ranks, trainers, epochs, loader
):
    (whole, micro), samples = batches, count * ROWS
    asked = {
        "--train-global-batch": whole, "--train-micro-batch": micro, "--data-parallel": ranks, "--epochs": epochs,
        "--loader": loader, "--episode": count, "--in-flight": count, "--iterations": 2 * count,
    }  # fmt: skip
    asked |= {"--trainers": trainers} if trainers != (2 if name == "ppo" else 1) else {}
    flags = [str(word) for pair in asked.items() for word in pair]
    _, known = run("--flow", name, "--message", "packed", "--sink", "trainer", *flags)
    assert (known["status"], known["reason"]) == ("ok", None)
    found, steps = known["operations"], -(-samples // whole)
    assert (found["stream_dataset_get"], found["stream_dataset_qsize"]) == (count, count + 1)
    assert found["trainer_queue_actors"] == epochs * (1 + trainers)
    assert found["trainer_put"] == found["trainer_get"] == epochs * trainers * steps * ranks
    assert found["trainer_blocking_gets"] == epochs * steps * whole // micro
    assert found["driver_payload_gets"] == found["driver_payload_bytes"] == 0


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_samples_of_earlier_episodes_are_trained_on_again(run, kept):
    flags = ("--flow", "grpo", "--message", "fields", "--sink", "trainer", "--in-flight", "2", "--episode", "2")
    steps = ("--train-global-batch", "8", "--train-micro-batch", "4", "--iterations", "8")
    _, known = run(*flags, *steps, "--relay-episodes", str(kept), "--epochs", "2")
    assert (known["status"], known["reason"]) == ("ok", None)
    assert known["operations"]["trainer_blocking_gets"] == 2 * (kept * 2 * ROWS // 8) * 2


def test_a_sample_that_a_trainer_did_not_get_fails_the_row(run, monkeypatch):
    step = Trainer.train_step
    monkeypatch.setattr(Trainer, "train_step", lambda self, references: step(self, references[1:]))
    flags = ("--flow", "grpo", "--message", "fields", "--sink", "trainer", "--in-flight", "2", "--episode", "2")
    _, known = run(*flags, "--train-global-batch", "8", "--train-micro-batch", "4", "--iterations", "2")
    assert known["status"] == "failed" and "stream-dataset -> trainer 1" in known["wrong_bytes_by_field"]


def test_a_sample_that_the_dataset_lost_fails_the_row(run, monkeypatch):
    take = ChatLearnModel.take_samples

    def without_the_last(self, number, messages):
        with monkeypatch.context() as patch:
            patch.setattr(models, "split", lambda messages: split(messages)[:-1])
            take(self, number, messages)

    monkeypatch.setattr(ChatLearnModel, "take_samples", without_the_last)
    flags = ("--flow", "grpo", "--message", "fields", "--sink", "trainer", "--in-flight", "2", "--episode", "2")
    _, known = run(*flags, "--train-global-batch", "8", "--train-micro-batch", "4", "--iterations", "2")
    assert (known["status"], set(known["wrong_bytes_by_field"])) == ("failed", {"stream-dataset"})


@pytest.mark.parametrize(
    ("more", "taken"), [((), 1), (("--loader", "dynamic"), 1), (("--relay-episodes", "2"), 2)], ids=str
)
def test_no_more_is_taken_than_a_micro_batch_needs_unless_earlier_episodes_count_too(run, monkeypatch, more, taken):
    give, seen = ChatLearnModel.next, []

    def noted(self):
        batch = give(self)
        seen.append((self.given, len(self.words)))
        return batch

    monkeypatch.setattr(ChatLearnModel, "next", noted)
    flags = ("--flow", "grpo", "--message", "fields", "--sink", "trainer", "--in-flight", "2", "--episode", "2")
    _, known = run(*flags, *more, "--train-global-batch", "8", "--train-micro-batch", "4", "--iterations", "4")
    assert (known["status"], known["reason"]) == ("ok", None)
    assert [words for given, words in seen if given == 4][-1] == taken
    assert (known["operations"]["stream_dataset_get"], known["operations"]["stream_dataset_qsize"]) == (2, 3)


@pytest.mark.parametrize(("most", "pieces"), [(3, {3}), (ROWS, set()), (ROWS + 1, set())])
def test_a_model_cuts_only_messages_that_are_larger_than_it_takes(run, monkeypatch, most, pieces):
    cut, rows = models.cut, set()
    monkeypatch.setattr(models, "cut", lambda payload, count: rows.add(count) or cut(payload, count))
    _, known = run("--flow", "ppo", "--message", "fields", "--generation-batch", f"reward={most}", "--iterations", "2")
    assert (known["status"], rows) == ("ok", pieces)


def test_queues_that_are_kept_are_made_once_and_none_is_polled_unless_asked(run):
    ListQueue.made = 0
    flags = ("--flow", "grpo", "--message", "fields", "--in-flight", "2", "--iterations", "4")
    _, known = run(*flags, "--episode", "2", "--keep-queues", "--poll-queues")
    assert (ListQueue.made, known["operations"]["queue_actors"]) == (6, 0)
    assert known["operations"]["driver_qsize"] == 3 + known["operations"]["driver_get"]
    ListQueue.made = 0
    run(*flags, "--episode", "2")
    assert ListQueue.made == 4 * 6  # the first trip's, the warm-up's, two episodes


@pytest.mark.parametrize("what", ["flip", "stale"])
def test_a_wrong_byte_of_a_replica_is_seen(run, what):
    flags = ("--flow", "ppo", "--message", "fields", "--replicas", "policy=2", "--iterations", "8")
    _, known = run(*flags, "--inject", f"policy:5:{what}")
    assert known["status"] == "failed" and "wrong bytes" in known["reason"]


def test_episodes_that_differ_fail_the_row(run, monkeypatch):
    filled, calls = Environment.filled, itertools.count()

    def once_more(self, queue):
        if next(calls) == 12:
            filled(self, queue)
        return filled(self, queue)

    monkeypatch.setattr(Environment, "filled", once_more)
    with pytest.raises(Exception, match="episodes differ in driver_qsize"):
        run("--flow", "grpo", "--message", "fields", "--in-flight", "2", "--iterations", "8", "--episode", "2")


RELAY = (
    "--flow", "grpo", "--message", "fields", "--sink", "trainer", "--in-flight", "2", "--episode", "2",
    "--iterations", "8", "--relay-episodes", "2", "--train-global-batch", "4", "--train-micro-batch", "4",
    "--loader", "dynamic",
)  # fmt: skip


def test_a_function_of_ones_own_chooses_from_the_episodes_that_are_kept(run, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def newest_twice(episodes):\n    return episodes[-1][:6] + episodes[0][::-1] + episodes[-1][:6]\n")
    _, known = run(*RELAY, "--epochs", "2", "--relay-sample", f"{path}:newest_twice")
    assert (known["status"], known["reason"]) == ("ok", None)
    assert known["operations"]["trainer_blocking_gets"] == 2 * (6 + 2 * ROWS + 6) // 4


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return 1 / 0", "mine.py:2: ZeroDivisionError"), ("return []", "mine.py: it must return a list of samples"),
        ("return [{}]", "mine.py: it must return a list of samples"),
    ],
)  # fmt: skip
def test_a_function_that_chooses_nothing_fails_the_row_in_one_line(run, tmp_path, body, reason):
    path = tmp_path / "mine.py"
    path.write_text(f"def mine(episodes):\n    {body}\n")
    with pytest.raises(RunFailed, match=reason):
        run(*RELAY, "--relay-sample", f"{path}:mine")
