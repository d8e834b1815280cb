# SPDX-License-Identifier: Apache-2.0
"""Test messages whose size changes in each iteration: how large they are, and that each byte is still verified."""

import pickle
from collections import ChainMap, Counter
from math import log
from statistics import fmean, stdev

import numpy as np
import pytest
import torch
from conftest import ROOT, reject_options
from in_process import LocalEndpoints, flip_bit, on_edge

from dataflow.endpoints import tensors
from dataflow.endpoints.payload import digest, digest_parts, make_field, raw_bytes
from dataflow.flows.catalogue import chain, online_dpo
from dataflow.flows.changing_sizes import MAX_SIZES, change_sizes, count_sizes, draw_factors
from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, ITEM_BYTES, PYTHON_DTYPES, Field, Message
from dataflow.measure.data_path import find_other_data_path
from dataflow.plan import validate
from dataflow.records.schema import Run
from dataflow.transports.graph import largest_message

pytestmark = pytest.mark.usefixtures("no_gpu")
DEMO = online_dpo(batch_size=4, prompt_seq_len=256)
MATRIX = Message((Field("", "bfloat16", (600, 5)),))
FLOWS = {
    "demo": DEMO,
    "bytes": chain(1013, 2),
    "matrix": Flow(
        "matrix", "matrix", MATRIX, (Task("policy", (DRIVER,), ACKNOWLEDGEMENT),), ("policy",)
    ),
}


@pytest.mark.parametrize("sigma", [0.1, 0.5, 2])
def test_the_factors_are_log_normal_with_a_mean_of_1(sigma):
    factors = draw_factors(sigma, 100)
    assert fmean(factors) == pytest.approx(1)
    assert stdev(map(log, factors)) == pytest.approx(sigma, rel=0.03)
    assert abs(sum(map(log, factors)) / 100 + sigma**2 / 2) < 0.1 * sigma**2


def test_every_process_draws_the_same_sizes_in_the_same_order():
    assert [round(factor, 4) for factor in draw_factors(0.5, 5)] == [
        1.1829,
        0.9101,
        1.7273,
        0.7002,
        0.4795,
    ]


def test_the_page_says_how_many_sizes_are_near_the_mean():
    text = " ".join((ROOT / "docs" / "own-flow.md").read_text().split())
    assert "nearly three of four iterations have 0.5 to 1.5 times the mean size" in text
    near = [factor for factor in draw_factors(0.5, 500) if 0.5 <= factor <= 1.5]
    assert 0.7 < len(near) / 500 < 0.75


@pytest.mark.parametrize(
    ("iterations", "count"),
    [(1, 1), (2, 2), (30, 30), (MAX_SIZES, MAX_SIZES), (501, 250), (1000, 500), (10**6, 500)],
)
def test_the_timed_iterations_have_each_size_once_or_equally_often(iterations, count):
    assert count_sizes(iterations) == count
    assert iterations % count < iterations / count


@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)
def test_all_messages_of_an_iteration_change_alike_and_their_mean_stays(flow):
    changed = change_sizes(flow, 0.5, 20)
    for first in (2, 13):  # wherever the warm-up ended
        for edge, original in zip(changed.edges, flow.edges, strict=True):
            sizes = [edge.message.at(number).bytes for number in range(first, first + 20)]
            assert fmean(sizes) == original.bytes == edge.bytes
            if original.message != ACKNOWLEDGEMENT:
                assert len(set(sizes)) == 20
                assert edge.message.largest.bytes == max(sizes)
    for number in range(20):
        shares = {
            edge.message.at(number).bytes / edge.bytes for edge in changed.edges if edge.bytes > 8
        }
        assert max(shares) - min(shares) < 0.02  # whole rows


@pytest.mark.parametrize(("runtime", "flags", "reason"), [
    ("torch", ["--transport", "gloo"], "torch gloo sends messages of one size: use store driver-queue, store refs, "
     "graph pickle, graph shm, store ref-queue"),
    ("graph", ["--transport", "zero-copy"], "graph zero-copy sends messages of one size"),
    ("store", ["--transport", "refs", "--zero-copy"], "leave --zero-copy and --copy-out out"),
    ("store", ["--message", "fields"], "has messages that are no flat tensor: give another --flow"),
    ("store", ["--flow", "grpo"], "has messages that are no flat tensor: give another --flow"),
    ("store", ["--flow", "chain", "--message-bytes", "16B"], "would have 1 rows, and 8 are needed: give larger"),
    ("store", ["--transport", "refs", "--message", "tensordict"], "tensordict messages have one size"),
])  # fmt: skip
def test_what_sends_one_size_only_is_rejected_in_one_line(runtime, flags, reason):
    assert reason in reject_options(runtime, "--changing-sizes", "0.5", *flags)


@pytest.mark.parametrize("value", ["0", "2.1", "-1"])
def test_sigma_has_bounds(value):
    error = reject_options("store", "--changing-sizes", value)
    assert "give more than 0 and at most 2" in error


def endpoints_of(flow, **options):
    return LocalEndpoints(flow, changing_sizes=0.5, iterations=10, **options)


@pytest.mark.parametrize("in_flight", [1, 4])
@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)
def test_right_messages_of_all_sizes_have_no_wrong_bytes(flow, in_flight):
    endpoints = endpoints_of(flow, in_flight=in_flight)
    sent = Counter()

    def count_bytes(edge, payload):
        sent[edge] += payload.nbytes
        return payload

    for first in range(1, 41, in_flight):
        for number in range(first, first + in_flight):
            endpoints.run(number, count_bytes)
        assert endpoints.verify(first, number) == {}
    assert sent == {str(edge): 40 * edge.bytes for edge in flow.edges}


@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)
def test_the_last_byte_of_each_size_is_compared(flow):
    endpoints = endpoints_of(flow)
    edge = str(flow.edges[0])
    for number in range(1, 31):
        endpoints.run(number, on_edge(edge, flip_bit))
        assert endpoints.verify(number) == {edge: 1}


@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)
def test_memory_to_which_nobody_has_sent_is_wrong_because_of_its_bytes(flow, monkeypatch):
    endpoints = endpoints_of(flow)
    compared = []
    has_type = type(endpoints.driver.inboxes[DRIVER])._has_type

    def noting(inbox, items, field):
        compared.append(has_type(inbox, items, field))
        return compared[-1]

    monkeypatch.setattr("dataflow.endpoints.inbox.Inbox._has_type", noting)
    found = ChainMap(*(endpoint.try_on_unsent_memory() for endpoint in endpoints.all))
    assert all(found[str(edge)] for edge in flow.edges)
    assert set(compared) == {True}  # the size alone is right


@pytest.mark.parametrize("age", range(1, 12))
def test_a_message_of_an_earlier_iteration_is_wrong(age):
    endpoints = endpoints_of(DEMO)
    kept = {}

    def send_old(edge, payload):
        kept[endpoints.number, edge] = payload
        return kept.get((endpoints.number - age, edge), payload)

    for endpoints.number in range(1, 13):
        endpoints.run(endpoints.number, send_old)
        wrong = endpoints.verify(endpoints.number)
        assert bool(wrong) == (endpoints.number > age)


@pytest.mark.parametrize(
    "change", [lambda tensor: tensor[:-1], lambda tensor: torch.cat([tensor, tensor[:1]])]
)
def test_all_bytes_of_a_message_of_another_size_are_wrong(change):
    endpoints = endpoints_of(DEMO)
    endpoints.run(1, on_edge("policy -> reward", change))
    expected = endpoints.plan.task_flow.message("policy").at(1).bytes
    assert endpoints.verify(1) == {"policy -> reward": expected}


def test_pickle_writes_no_more_than_the_rows_that_are_sent():
    for dtype in ("int64", "bfloat16", "uint8"):
        whole = torch.ones((1000, 7), dtype=getattr(torch, dtype))
        part = tensors.first_rows(whole, 10)
        assert (part.shape, part.dtype) == ((10, 7), whole.dtype)
        assert part.data_ptr() == whole.data_ptr()
        assert part.untyped_storage().nbytes() == part.nbytes
        assert len(pickle.dumps(part)) < part.nbytes + 1000


@pytest.mark.parametrize("dtype", sorted(ITEM_BYTES.keys() - PYTHON_DTYPES.keys()))
def test_a_smaller_field_has_the_first_rows_of_a_larger_one_and_their_hash(dtype):
    (large,) = make_field(Field("", dtype, (100, 3)), "policy", 1)
    counts = [17, 100, 3, 17]
    digests = digest_parts(large, 3, counts)
    for rows, expected in zip(counts, digests, strict=True):
        (small,) = make_field(Field("", dtype, (rows, 3)), "policy", 1)
        assert bytes(raw_bytes(small)) == bytes(raw_bytes(large[:rows]))
        assert digest([small], 3) == expected


def test_memory_and_channels_hold_the_largest_message(make_plan):
    flags = ("--iteration-bytes", "16MiB", "--iterations", "10")
    for runtime, transport in (("store", "refs"), ("graph", "shm")):
        plain = make_plan(runtime, "--transport", transport, *flags)
        changing = make_plan(runtime, "--transport", transport, *flags, "--changing-sizes", "1")
        largest = max(changing.relative_bytes(range(n, n + 1)) for n in range(10))
        assert largest > 3
        assert changing.resident_bytes == pytest.approx(largest * plain.resident_bytes, rel=0.05)
    message = changing.task_flow.message("reward")
    endpoints = LocalEndpoints(DEMO, changing_sizes=1.0, iterations=10)
    expected = endpoints.plan.task_flow.message("reward").largest.bytes
    assert message.largest.bytes > 3 * message.bytes
    assert largest_message(endpoints.actors["reward"]) >= expected


@pytest.mark.parametrize("transport", ["refs", "driver-queue"])
def test_the_store_must_take_in_the_bytes_of_the_iterations_that_were_timed(make_plan, transport):
    plan = make_plan(
        "store", "--transport", transport, "--iterations", "10", "--changing-sizes", "1"
    )
    flow = plan.task_flow
    messages = [*flow.messages]
    if transport == "driver-queue":  # each argument once more
        messages += [edge.message for edge in flow.edges if edge.reader != DRIVER]
        messages.remove(flow.query)
    for numbers in (range(12, 22), range(3, 6), range(7, 8)):
        stored = sum(message.at(number).bytes for message in messages for number in numbers)
        for share, is_right in ((1.0, True), (1.05, True), (0.97, False), (1.2, False)):
            run = Run(stored_bytes=round(share * stored))
            assert (find_other_data_path(plan, run, {}, numbers) is None) == is_right


def test_results_of_equal_edges_are_kept_apart(make_plan):
    flags = ("--transport", "refs", "--iterations", "10")
    plain = make_plan("store", *flags).workload
    changing = make_plan("store", *flags, "--changing-sizes", "0.5").workload
    assert (plain.edges, plain.bytes_per_iteration) == (
        changing.edges,
        changing.bytes_per_iteration,
    )
    assert plain != changing and plain.messages != changing.messages


def test_the_warm_up_compares_times_per_byte(make_plan):
    plan = make_plan("store", "--iterations", "10", "--changing-sizes", "0.5")
    shares = [plan.relative_bytes(range(number, number + 1)) for number in range(10)]
    assert np.mean(shares) == pytest.approx(1)
    assert plan.relative_bytes(range(3, 13)) == pytest.approx(1)
    assert plan.relative_bytes(range(2, 4)) == pytest.approx((shares[2] + shares[3]) / 2)
    assert make_plan("store").relative_bytes(range(5)) == 1


def test_tensors_of_gpus_keep_their_size(monkeypatch):
    monkeypatch.setattr(validate, "count_gpus", lambda: 1)
    assert "give --device cpu" in reject_options("store", "--changing-sizes", "0.5")
