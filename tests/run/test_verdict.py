"""How a run ended, from its wrong bytes and the paths that its edges took."""

import pytest

from common.flow.catalogue import online_dpo
from common.plan.options import Options
from common.plan.plan import Plan
from common.record.rows import transports
from common.run.verdict import failure

BIG, SMALL = online_dpo(), online_dpo(batch_size=4, prompt_seq_len=256)  # so small that Ray copies each message
EDGES = [str(edge) for edge in BIG.edges]
# Three rows of each kind: what readers shall end with.
COPIES = [
    ("store", "refs", {}),
    ("graph", "mapped", {"copy_out": True}),
    ("store", "refs", {"zero_copy": True, "copy_out": True}),
]
VIEWS = [("store", "refs", {"zero_copy": True}), ("graph", "mapped", {}), ("torch", "multiprocessing", {})]


def judge(row, mapped, wrong=None, flow=BIG, device="cpu"):
    """The reason of a run whose readers held views of the edges in `mapped` (or as a dict says), else copies."""
    runtime, transport, options = row
    plan = Plan(transports(runtime)[transport], Options(transport=transport, **options), flow, device)
    seen = mapped if isinstance(mapped, dict) else {edge: edge in mapped for edge in EDGES}
    return failure(plan, wrong or {}, seen)


@pytest.mark.parametrize("rows", [COPIES, VIEWS], ids=["copies", "views"])
def test_a_run_whose_bytes_took_the_promised_path_is_ok(rows):
    for row in rows:
        assert judge(row, EDGES if rows is VIEWS else []) is None


@pytest.mark.parametrize("edge", EDGES)
def test_a_run_of_which_one_edge_took_another_path_fails_by_its_name(edge):
    for row in COPIES:
        assert judge(row, [edge]).startswith(f"{edge}: the payload was mapped, which {row[1]} is not")
    for row in VIEWS:
        others = [other for other in EDGES if other != edge]
        assert judge(row, others).startswith(f"{edge}: the payload was copied, which {row[1]} is not")


def test_what_is_too_small_to_be_mapped_or_lies_on_a_gpu_may_be_copied_but_not_the_other_way_round():
    assert judge(VIEWS[0], [], flow=SMALL) is judge(VIEWS[0], [], device="cuda") is None
    assert judge(COPIES[0], EDGES, flow=SMALL)


def test_a_message_of_which_some_tensors_were_copied_fails_both_ways():
    for row in (COPIES[0], VIEWS[0]):
        assert "mapped in part" in judge(row, dict.fromkeys(EDGES))


def test_wrong_bytes_fail_a_run_on_any_path_and_name_the_field_with_most_of_them():
    wrong = {"policy -> reference, mask": 1, "policy -> reward, mask": 7, "reward -> driver": 2}
    reason = judge(COPIES[0], EDGES, wrong)
    assert reason.startswith("10 wrong bytes arrived") and "policy -> reward, mask" in reason
    # A reader that no trip reached has seen neither views nor copies.
    assert judge(COPIES[0], {}, {"policy -> reward": 8}).startswith("8 wrong bytes arrived")
