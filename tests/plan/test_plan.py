"""What follows from the flags: who runs where, with what, and how its row is called."""

from dataclasses import replace

import pytest

from common.flow.flow import TRAINER
from common.record.schema import Layout
from common.run.settle import settle

KILOBYTES = ("--batch-size", "4", "--prompt-seq-len", "256")


@pytest.fixture
def chain_on_gpus(make_plan):
    """chain_on_gpus(gpus, roles) -> the plan of a chain of so many roles on so many GPUs."""

    def make(gpus, roles):
        return make_plan("store", "--flow", "chain", "--roles", str(roles), device="cuda", gpus=gpus)

    return make


@pytest.mark.parametrize(
    ("gpus", "roles", "share"),
    [(0, 3, 0), (1, 3, 0.3333), (2, 3, 0.5), (3, 3, 1), (8, 3, 1), (1, 1, 1), (3, 7, 0.3333)],
)
def test_each_actor_gets_the_largest_equal_share_of_a_gpu(chain_on_gpus, gpus, roles, share):
    assert chain_on_gpus(gpus, roles).gpus_per_actor() == share


@pytest.mark.parametrize("roles", range(1, 9))
def test_shares_of_gpus_fit_without_splitting_an_actor(chain_on_gpus, roles):
    for gpus in range(1, 9):
        share = chain_on_gpus(gpus, roles).gpus_per_actor()
        assert 0 < share <= 1
        assert int(10_000 // (share * 10_000)) * gpus >= roles


def test_actors_live_on_the_cpu_or_take_turns_on_the_gpus(make_plan, chain_on_gpus):
    plan = chain_on_gpus(2, 3)
    assert [plan.gpu_of(name) for name in plan.participants] == ["cuda:0", "cuda:0", "cuda:1", "cuda:0"]
    plan = make_plan("store", *KILOBYTES)
    assert {plan.gpu_of(name) for name in plan.participants} == {"cpu"}


@pytest.mark.parametrize(("found", "transport"), [(0, "shm"), (2, "shm"), (3, "nccl")])
def test_the_graph_takes_nccl_where_every_actor_can_have_a_gpu(monkeypatch, make_plan, found, transport):
    monkeypatch.setattr("common.runtime.gpus.need_modules", lambda _: None)
    asked = make_plan("graph", *KILOBYTES).options
    monkeypatch.setattr("common.runtime.gpus.count", lambda: found)
    plan, waived = settle("graph", replace(asked, transport=None))
    assert (plan.row.transport, plan.gpus, waived) == (transport, found, None)


def test_a_driver_that_cannot_send_has_a_trainer_and_users_see_the_flow_as_it_was(make_plan):
    plan = make_plan("rdt", *KILOBYTES)
    assert plan.participants == ("driver", TRAINER, "policy", "reference", "reward")
    record = plan.record()
    assert [f"{edge.source} -> {edge.reader}" for edge in record.edges] == [str(edge) for edge in plan.asked.edges]
    assert record.row.layout == Layout(trainer=True)


def test_a_record_says_what_was_asked(make_plan):
    plan = make_plan("graph", "--transport", "mapped", "--copy-out", "--timeout", "7", "--warmup", "2", *KILOBYTES)
    record = plan.record()
    assert (record.row.runtime, record.row.transport, record.row.flow) == ("graph", "mapped", "online-dpo")
    assert (record.row.flags, record.row.message, record.warmup) == ({"copy_out": True}, "bare", 2)
    sizes = {"batch_size": 4, "prompt_seq_len": 256, "max_new_tokens": 0, "num_samples": 2}
    assert record.row.sizes == sizes
    assert record.arguments["timeout"] == 7
    assert record.runs == []


@pytest.mark.parametrize("message", ["fields", "packed"])
def test_what_travels_is_each_message_or_one_flat_buffer(make_plan, message):
    flags = ("--flow", "ppo", "--rows", "2", "--prompt-len", "8", "--response-len", "8")
    plan = make_plan("store", *flags, "--message", message)
    assert plan.record().row.message == message
    assert plan.wire.query.bare is (message == "packed")
    assert not plan.flow.query.bare
    assert [str(edge) for edge in plan.wire.edges] == [str(edge) for edge in plan.asked.edges]


@pytest.mark.parametrize(
    ("runtime", "flags", "views", "promised"),
    [
        ("store", ("--transport", "refs"), False, False),
        ("store", ("--transport", "refs", "--zero-copy"), True, True),
        ("store", ("--transport", "refs", "--zero-copy", "--copy-out"), True, False),
        ("graph", ("--transport", "mapped"), True, True),
        ("graph", ("--transport", "mapped", "--copy-out"), True, False),
        ("torch", ("--transport", "gloo"), False, False),
    ],
)
def test_what_readers_are_handed_and_what_they_end_with(make_plan, runtime, flags, views, promised):
    plan = make_plan(runtime, *flags, *KILOBYTES)
    assert (plan.views, plan.promised_views) == (views, promised)
