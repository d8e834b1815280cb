# SPDX-License-Identifier: Apache-2.0
"""Test how the time of hand-made traces is attributed to stages and causes."""

from contextlib import nullcontext

import pytest
from made_records import make_record, make_run

from dataflow.analysis import stages
from dataflow.analysis.result import Result
from dataflow.errors import RecordError


def make_trace(length, recorded, **changes):
    """Return a traced run with an iteration of so many µs and spans (process, thread, stage, start, end, faults).

    Faults can be left out. A fault takes 1 µs: (cold copy - warm copy) / page faults of a cold copy.
    """
    spans = []
    for process, thread, stage, start, end, *faults in recorded:
        spans.append((process, thread, stage, 0, start, end, *(faults or [0])))
    price = {
        "memcpy_before_seconds": [0.02],
        "cold_copy_before_seconds": [0.021],
        "cold_copy_faults": 1000,
    }
    return make_run([length * 1e-6], spans=spans, iterations_us=[(0, length)], **price | changes)


def attribute(length, spans):
    """Return the microseconds of each stage, and the explained share."""
    seconds, explained = stages.attribute(make_trace(length, spans))
    return {stage: pytest.approx(value * 1e6) for stage, value in seconds.items()}, pytest.approx(
        explained
    )


FIRST, SECOND, THIRD = stages.LAST_STAGES
INNER = [("a", 0, "write", 0, 100), ("a", 0, "serialise", 20, 50), ("a", 0, "copy", 30, 40)]
LAST = [("a", 0, THIRD, 0, 90), ("b", 0, SECOND, 30, 90), ("c", 0, FIRST, 60, 90)]


@pytest.mark.parametrize(("length", "spans", "expected"), [
    # The innermost span of a thread gets the time, in whatever order the spans are.
    (100, INNER, {"write": 70, "serialise": 20, "copy": 10}),
    (100, INNER[::-1], {"write": 70, "serialise": 20, "copy": 10}),
    (100, [("a", 0, "write", 0, 100), ("a", 0, "serialise", 0, 40)], {"serialise": 40, "write": 60}),
    # Processes and threads that work at the same time share it.
    (150, [("a", 0, "write", 0, 100), ("b", 0, "copy", 50, 150)], {"write": 75, "copy": 75}),
    (150, [("a", 0, "write", 0, 100), ("a", 1, "copy", 50, 150)], {"write": 75, "copy": 75}),
    (90, [("a", 0, "write", 0, 90), ("b", 0, "write", 0, 90), ("c", 0, "copy", 0, 90)], {"write": 60, "copy": 30}),
    # Waiting counts only while no thread works; then the first of the last stages counts.
    *((100, [("a", 0, stage, 0, 100), ("b", 0, stage, 10, 100), ("c", 0, "write", 20, 60)], {stage: 60, "write": 40})
      for stage in stages.LAST_STAGES),
    (90, LAST, {THIRD: 30, SECOND: 30, FIRST: 30}),
    # The time of page faults is not part of the stage in which they happened.
    (100, [("a", 0, "write", 0, 100, 30)], {"write": 70, "page faults": 30}),
    (100, [("a", 0, "write", 0, 100, 6), ("a", 0, "copy", 20, 60, 20)], {"write": 54, "copy": 20, "page faults": 26}),
    (100, [("a", 0, "write", 0, 100, 500)], {"page faults": 100}),
    (100, [("a", 0, "write", 0, 100, 50), ("b", 0, "copy", 0, 100, 0)], {"write": 25, "copy": 50, "page faults": 25}),
])  # fmt: skip
def test_each_moment_belongs_to_the_stages_that_work(length, spans, expected):
    assert attribute(length, spans) == (expected, 1)


def test_the_price_of_a_page_fault_is_that_of_the_run():
    run = make_trace(100, [], cold_copy_before_seconds=[0.03, 0.04], cold_copy_after_seconds=[0.05],
                     memcpy_before_seconds=[0.02], memcpy_after_seconds=[0.04])  # fmt: skip
    assert stages.fault_seconds(run) == pytest.approx((0.04 - 0.03) / 1000)
    assert stages.fault_seconds(make_run([1.0])) == 0


def test_time_without_a_span_is_not_explained():
    assert attribute(100, [("a", 0, "write", 0, 40), ("b", 0, "copy", 50, 100)]) == (
        {"write": 40, "copy": 50},
        0.9,
    )


SPANS = [
    ("actor-1", 0, "sequence number", 0, 20.0, 30.0, 0), ("actor-1", 0, "make", 0, 30.0, 40.0, 0),
    ("driver", 0, "sequence number", 0, 90.0, 100.0, 0), ("driver", 0, "wait", 0, 0.0, 90.0, 0),
]  # fmt: skip


@pytest.mark.parametrize(("spans", "end", "words"), [
    (SPANS[1:], 100.0, "no process saw driver -> actor-1 in iteration 0"),
    ([SPANS[0], *SPANS[2:]], 100.0, "no process saw actor-1 -> driver in iteration 0"),
    ([SPANS[0], ("actor-1", 0, "make", 0, 105.0, 106.0, 0), *SPANS[2:]], 106.0, "actor-1 -> driver was read before"),
    (SPANS, 200.0, "store refs: the stages add up to 50.0% of the iteration"),
    (SPANS, 80.0, "store refs: the stages add up to 125.0% of the iteration"),
    (SPANS, 100.0, None),
], ids=["not received", "not sent", "clocks differ", "lost time", "too much time", "none"])  # fmt: skip
def test_a_trace_with_a_problem_is_named(spans, end, words):
    run = make_run([end * 1e-6], spans=spans, iterations_us=[(0.0, end)])
    result = Result([make_record("refs", run, flow="round-trip", traced=True)])
    with pytest.raises(RecordError, match=words) if words else nullcontext():
        stages.check_trace(result)


PICKLED = [("a", 0, "serialise", 0, 30, 20), ("a", 0, "deserialise", 30, 70, 30), ("a", 0, "write", 70, 75),
           ("a", 0, "wait", 75, 90), ("a", 0, "submit", 90, 96)]  # fmt: skip
COPIED = [("a", 0, "write", 0, 20), ("a", 0, "deserialise", 20, 90, 40), ("a", 0, "serialise", 90, 92),
          ("a", 0, "loop", 92, 100)]  # fmt: skip


@pytest.mark.parametrize(("spans", "path", "expected"), [
    (PICKLED, "BufferedSharedMemoryChannel",
     {"serialisation": 20, "page faults": 50, "copying": 5, "sending": 0, "waiting": 15, "other": 10}),
    (COPIED, "TorchTensorType over BufferedSharedMemoryChannel",
     {"serialisation": 2, "page faults": 40, "copying": 50, "sending": 0, "waiting": 8, "other": 0}),
], ids=["pickled", "copied by Ray"])  # fmt: skip
def test_causes_add_up_to_the_iteration(spans, path, expected):
    run = make_trace(100, spans, data_paths={"driver -> policy": path})
    causes = stages.mean_over_runs(stages.attribute_to_causes, [run, run])
    assert {cause: pytest.approx(seconds * 1e6) for cause, seconds in causes.items()} == expected
    assert sum(causes.values()) == pytest.approx(stages.iteration_seconds(run))
