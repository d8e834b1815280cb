"""What is behind the last queue: samples, padding, and the check that each arrives once."""

from collections import Counter
from types import SimpleNamespace

import pytest
import ray
import torch

from chatlearn import environment
from chatlearn.environment import Training
from chatlearn.models import Trainer, digest
from common.flow.catalogue import build_flow
from common.payload.outbox import Outbox
from common.payload.samples import padded, split

SIZES = {"rows": 6, "prompt_len": "uniform:3:9", "response_len": "uniform:2:7"}


def samples(flow="ppo", sender="reward"):
    message = build_flow(flow, SIZES, "fields").message(sender)
    return split([Outbox(sender, message, 1, torch.device("cpu"), False, None).pool[0]])


@pytest.mark.parametrize(("flow", "sender"), [("ppo", "reward"), ("online-dpo", "policy"), ("dpo", "reference")])
def test_samples_are_the_same_after_they_were_padded_into_a_batch(flow, sender):
    rows = samples(flow, sender)
    assert len(rows) == 6 and len({digest(row) for row in rows}) == 6
    again = split([padded(rows)])
    assert [digest(row) for row in again] == [digest(row) for row in rows]


def test_a_byte_of_any_field_changes_a_sample():
    row = samples()[2]
    for name, value in row.items():
        if isinstance(value, str):
            other = value[:-1] + "?"
        elif isinstance(value, list):
            other = [number + 1 for number in value]
        else:
            other = value.clone()
            last = other.reshape(-1)[-1:]
            last.copy_(last.logical_not() if last.dtype == torch.bool else last + 1)
        assert digest(row | {name: other}) != digest(row), name


def test_the_same_bytes_as_another_dtype_are_another_sample():
    row = samples()[2]
    assert digest(row | {"ref_logprobs": row["ref_logprobs"].view(torch.int32)}) != digest(row)


def remote(function):
    return SimpleNamespace(remote=function)


@pytest.fixture
def check(monkeypatch):
    """check(batches of each data-parallel rank, ...) -> what is wrong, after one epoch over samples() or `given`."""
    monkeypatch.setattr(ray, "get", lambda what: what)
    monkeypatch.setattr(environment.ray, "get", lambda what: what)

    def check(*ranks, epochs=1, given=None):
        training = object.__new__(Training)
        training.epochs, training.trainers, training.messages, training.rows = epochs, [[]], [1], 6
        training.options = SimpleNamespace(relay_sample=None)
        training.dataset = SimpleNamespace(sample_digests=remote(lambda: Counter(map(digest, given or samples()))))
        for batches in ranks:
            trainer = Trainer(1)
            trainer.train_step(batches)
            training.trainers[0].append([SimpleNamespace(sample_digests=remote(trainer.sample_digests))])
        return training.check()

    return check


def test_every_sample_once_an_epoch_is_right_and_anything_else_is_counted(check):
    rows = samples()
    one, two = padded(rows[:3]), padded(rows[3:])
    assert check([one], [two]) == {}
    assert check([one, two], [two, one], epochs=2) == {}
    name = "stream-dataset -> trainer 1"
    assert check([one], [one]) == {name: 3}  # some twice, others never
    assert check([one], []) == {name: 3}
    assert check([one], [two, two]) == {name: 3}
    broken = padded([rows[3], rows[4] | {"rm_rewards": [9.5]}, rows[5]])
    assert check([one], [broken]) == {name: 1}


def test_a_sample_that_the_dataset_lost_is_missed_although_trainers_got_all_that_it_had(check):
    rows = samples()
    assert check([padded(rows[1:])], given=rows[1:]) == {"stream-dataset": 1}
    assert check([padded([*rows, rows[0]])], given=[*rows, rows[0]]) == {"stream-dataset": 1}
