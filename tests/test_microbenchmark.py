"""The table of the microbenchmarks, from made-up records."""

import pytest
from made_records import a_record

from common.flow import flow as flows
from common.view import markdown as readme
from common.view import small_messages as microbenchmark
from common.view.small_messages import CLAIMS, GPU_CLAIM


def a_row(name, transport, seconds, runtime="graph", device="cpu", **asked):
    """A (record, case) of a microbenchmark flow."""
    given = {"flow": name, "payload_bytes": 1000, **asked}
    made = flows.build_flow(given)
    edges = [{"from": edge.source, "to": edge.reader, "bytes": edge.bytes} for edge in made.edges]
    case = {"flow": made.name, "edges": edges, "bytes_per_trip": made.bytes_per_trip, "device": device}
    record = a_record(transport, seconds, runtime, arguments=given, **case)
    return record, record["cases"][0]


def table(*rows):
    """The lines, each by the names of its columns."""
    header, lines = microbenchmark.table(list(rows))
    return [dict(zip(header, line, strict=True)) for line in lines]


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
    (line,) = table(a_row(name, "shm", [0.003, 0.003, 0.009], **asked))
    assert (line["median µs"], line["trips"], line["bytes"]) == ("3,000", "3", "1,000")
    assert line["µs a hop"] == f"{3000 / hops:,.0f}"


def test_the_factor_is_that_over_references_of_the_same_flow_and_size():
    lines = table(
        a_row("chain", "refs", [0.002] * 3, "store"),
        a_row("chain", "shm", [0.0005] * 3),
        a_row("chain", "refs", [0.9] * 3, "store", payload_bytes=2000),
        a_row("chain", "refs", [0.7] * 3, "store", roles=2),
        a_row("round-trip", "refs", [0.8] * 3, "store"),
    )
    assert [line["over references"] for line in lines] == ["-", "4x (4 to 4)", "-", "-", "-"]


def test_the_factor_has_an_interval_that_holds_it():
    baseline = a_row("chain", "refs", [0.9, 1.0, 1.1, 1.0, 0.95], "store")
    slower = a_row("chain", "pickle", [2.2, 1.8, 2.0, 2.0, 2.1])
    text = table(baseline, slower)[1]["over references"]
    ratio, low, high = (
        float(part.rstrip("x")) for part in text.replace("(", "").replace(")", "").split() if part != "to"
    )
    assert ratio == 0.5
    assert low <= ratio <= high


def test_without_references_nothing_is_claimed():
    others = a_row("chain", "shm", [0.001]), a_row("chain", "ref-queue", [0.002], "store")
    assert [line["over references"] for line in table(*others)] == ["-", "-"]


def test_mapped_references_are_not_the_baseline():
    mapped = a_row("chain", "refs", [0.002], "store", zero_copy=True)
    assert [line["over references"] for line in table(mapped, a_row("chain", "shm", [0.001]))] == ["-", "-"]


def test_the_claims_stand_above_the_tables_and_that_for_gpus_below():
    rows = [a_row("round-trip", "shm", [0.001]), a_row("chain", "shm", [0.001])]
    text = readme.hops_markdown(rows)
    for name in ("round-trip", "chain"):
        assert f"; the article: {CLAIMS[name]}.\n" in text
    assert text.endswith(f"{GPU_CLAIM}; here: not measured.")
    on_gpu = a_row("round-trip", "nccl", [0.001], device="cuda", payload_bytes=40_000_000)
    assert readme.hops_markdown([on_gpu]).endswith("here: see above.")
    small = a_row("round-trip", "nccl", [0.001], device="cuda")
    assert readme.hops_markdown([small]).endswith("here: not measured.")


def test_every_microbenchmark_has_its_claim():
    assert set(CLAIMS) == set(flows.MICROBENCHMARKS)
