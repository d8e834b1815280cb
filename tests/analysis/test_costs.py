"""Fits of records: which points they are of, how far they reach, and what ends the line, named from the records."""

import re

import pytest
from made_records import a_record, a_run, a_sweep

from common.analysis.results import results_of
from common.cost.costs import costs_of, held_out, knee_cause
from common.record.schema import Cost
from common.text import sweep_table

SIZES = [2**power for power in range(13, 30, 2)]
MIB = 2**20


def trip(count, message=1e-4, byte=1e-10, beyond=1e-10, knee=2**40):
    return 5 * message + byte * min(count, knee) + beyond * max(0, count - knee)


def a_trip_run(count, faulted=0.0, **terms):
    """Ten trips, of whose bytes some were pages new to their process."""
    faults = round(faulted * count * 11 / 4096)
    return a_run([trip(count, **terms)] * 10, processes={"driver": Cost(minor_faults=faults, harness_seconds=1e-9)})


def swept(runtime="graph", transport="shm", faulted=lambda count: 0.0, changes=None, **terms):
    environment = terms.pop("environment", {})
    points = {count: a_trip_run(count, faulted(count), **terms) for count in SIZES} | (changes or {})
    return a_sweep(transport, "payload", points, runtime=runtime, environment=environment)


def fitted(*records):
    costs = costs_of(results_of(records))
    assert len(costs) == 1
    return next(iter(costs.values()))


def test_payloads_and_fields_of_one_transport_are_one_fit():
    cut = a_sweep("shm", "fields", {n: [trip(MIB) + 5 * (n - 1) * 2e-5] for n in (1, 8, 64)}, runtime="graph",
                  payload=MIB)  # fmt: skip
    found = fitted(swept(), cut).fit
    assert len(found.points) == len(SIZES) + 3
    assert found.estimate("tensor").value == pytest.approx(2e-5, rel=1e-3)
    assert found.estimate("message").value == pytest.approx(1e-4, rel=1e-3)


def test_what_is_no_sweep_of_that_transport_is_not_in_its_fit():
    packed = a_sweep("shm", "payload", {n: [1.0] for n in SIZES[:4]}, runtime="graph", fields=2, message="packed")
    costs = costs_of(results_of([swept(), packed, swept("store", "refs"), swept("graph", "shm")]))
    assert list(costs) == ["store refs", "graph shm", "graph shm --message packed"]
    assert {name: own.fit.steps for name, own in costs.items()} == {
        "store refs": ("stored message",), "graph shm": ("threaded tensor",),
        "graph shm --message packed": ("threaded tensor",),
    }  # fmt: skip
    assert costs_of(results_of([a_record("refs", [0.5])])) == {}


def test_what_is_foretold_beyond_64_mib_stands_beside_what_was_measured():
    words = held_out(fitted(swept()))
    found = re.findall(r"(\d+ MiB): (\S+) ms foretold, (\S+) ms measured \([+-]0%\)", words)
    assert [(size, float(said)) for size, said, _ in found] == [("128 MiB", 13.9), ("512 MiB", 54.2)]
    assert all(said == measured for _, said, measured in found)
    few = a_sweep("shm", "payload", {n: [trip(n)] for n in SIZES[:-2]}, runtime="graph")
    assert held_out(fitted(few)) is None


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            {"faulted": lambda count: 1.0 if count > 2**25 else 0.02},
            "fresh pages: 100% of the bytes are faulted in, 2%",
        ),
        ({"environment": {"cache_bytes": 32 * MIB}}, "outgrow the processor's cache of 32 MiB"),
        ({"environment": {"cache_bytes": 256 * 1024}}, "of unknown cause"),
        ({}, "of unknown cause"),
    ],
)
def test_what_bends_the_line_is_named_where_the_record_can_tell(made, words):
    costs = fitted(swept(beyond=6e-10, knee=2**25, **made))
    assert costs.fit.knee_bytes == pytest.approx(2**25, rel=1e-6)
    assert words in knee_cause(costs)
    assert "the line broke" in held_out(costs) and words in held_out(costs)


@pytest.mark.parametrize(
    ("runtime", "busy", "cores", "said"),
    [("graph", 0.95, 2, True), ("graph", 0.5, 2, False), ("graph", 0.95, 8, False), ("torch", 0.95, 2, False)],
)
def test_readers_that_spin_are_named_where_they_outnumber_the_cores_and_keep_them_busy(runtime, busy, cores, said):
    record = swept(runtime, "mapped", beyond=6e-10, knee=2**25, environment={"logical_cpus": cores})
    for run in record.runs:
        run.cpu_seconds = busy * cores * sum(run.seconds)
    words = knee_cause(fitted(record))
    assert ("4 processes on 2 cores that are 95% busy" in words) == said and ("of unknown cause" in words) != said


def test_a_point_that_spilled_is_in_no_fit_and_is_what_ended_the_line():
    slow = a_run([9.0], spilled_bytes=10**9)
    costs = fitted(swept("store", "refs", changes={SIZES[-1]: slow}))
    assert len(costs.fit.points) == len(SIZES) - 1
    assert knee_cause(costs) == "the store spilled to disk from 512 MiB on"


def test_the_table_says_what_was_measured_and_what_was_not():
    shm, mapped = swept(), swept("graph", "mapped", byte=0.0)
    for run in mapped.runs:
        run.payload_copied = False
    costs = costs_of(results_of([shm, mapped]))
    (header, *lines) = sweep_table.markdown(costs).splitlines()
    cells = [line.split(" | ") for line in lines[1:3]]
    row = dict(zip(header.split(" | "), cells[0], strict=True))
    assert row["µs a tensor more"] == "-"  # no point had a second one
    assert row["µs a message"].startswith("100 (")
    assert float(row["B, GB/s"]) == pytest.approx(10, rel=0.01)
    assert "mapped" in cells[1] and "none seen" in cells[1]
