"""The table of the microbenchmarks, from made-up records."""

import pytest
from made_records import a_record

from common.analysis.results import Result
from common.flow.catalogue import MICROBENCHMARKS
from common.text import small_messages
from common.text.small_messages import CLAIMS, GPU_CLAIM


def a_result(flow, transport, seconds, runtime="graph", payload_bytes=1000, **asked):
    return Result((a_record(transport, seconds, runtime=runtime, flow=flow, payload_bytes=payload_bytes, **asked),))


def table(*results):
    """The lines, each by the headers of its columns."""
    columns = small_messages.columns(results)
    return [{column.header: column.cell(result) for column in columns} for result in results]


@pytest.mark.parametrize(
    ("name", "asked", "hops"),
    [
        ("round-trip", {}, 2),
        ("chain", {}, 5),
        ("chain", {"roles": 2}, 3),
        ("scatter-gather", {}, 2),
        ("scatter-gather", {"roles": 9}, 2),
    ],
)
def test_a_hop_is_one_message_on_the_longest_path(name, asked, hops):
    (line,) = table(a_result(name, "shm", [0.003, 0.003, 0.009], **asked))
    assert (line["median µs"], line["trips"], line["bytes"]) == ("3,000", "3", "1,000")
    assert line["µs a hop"] == f"{3000 / hops:,.0f}"


def test_the_factor_is_that_over_references_of_the_same_flow_and_size():
    lines = table(
        a_result("chain", "refs", [0.002] * 3, "store"),
        a_result("chain", "shm", [0.0005] * 3),
        a_result("chain", "refs", [0.9] * 3, "store", payload_bytes=2000),
        a_result("chain", "refs", [0.7] * 3, "store", roles=2),
        a_result("round-trip", "refs", [0.8] * 3, "store"),
    )
    assert [line["over references"] for line in lines] == ["-", "4x", "-", "-", "-"]


@pytest.mark.parametrize(
    ("transport", "baseline", "asked"),
    [
        ("shm", "refs", {"flags": {"episode": 10}}),
        ("shm", "refs", {"flags": {"in_flight": 4}}),
        ("shm", "refs", {"layout": {"placement": "spread"}}),
        ("shm", "refs", {"layout": {"placement": "spread", "address": True}}),
        ("nccl", "refs", {"device": "cuda"}),
        ("bytes", "bytes", {}),
    ],
    ids=["an episode", "several under way", "spread", "another cluster", "on GPUs", "bytes"],
)
def test_references_are_compared_with_only_where_they_ran_alike(transport, baseline, asked):
    own = a_result("chain", transport, [0.001] * 3, **asked)
    alike = a_result("chain", baseline, [0.004] * 3, "store", **asked)
    unlike = a_result("chain", "refs", [0.009] * 3, "store", flags={"episode": 7})
    assert [line["over references"] for line in table(own, unlike, alike)] == ["4x", "-", "-"]


def test_without_references_nothing_is_claimed():
    others = a_result("chain", "shm", [0.001]), a_result("chain", "ref-queue", [0.002], "store")
    assert [line["over references"] for line in table(*others)] == ["-", "-"]


def test_mapped_references_are_not_the_baseline():
    mapped = a_result("chain", "refs", [0.002], "store", flags={"zero_copy": True})
    assert [line["over references"] for line in table(mapped, a_result("chain", "shm", [0.001]))] == ["-", "-"]


def test_the_claims_stand_above_the_tables_and_that_for_gpus_below():
    text = small_messages.markdown([a_result("round-trip", "shm", [0.001]), a_result("chain", "shm", [0.001])])
    for name in ("round-trip", "chain"):
        assert f"; the article: {CLAIMS[name]}.\n" in text
    assert text.endswith(f"{GPU_CLAIM}; here: not measured.")
    on_gpu = a_result("round-trip", "nccl", [0.001], device="cuda", payload_bytes=40_000_000)
    assert small_messages.markdown([on_gpu]).endswith("here: see above.")
    small = a_result("round-trip", "nccl", [0.001], device="cuda")
    assert small_messages.markdown([small]).endswith("here: not measured.")


def test_every_microbenchmark_has_its_claim():
    assert set(CLAIMS) == set(MICROBENCHMARKS)
