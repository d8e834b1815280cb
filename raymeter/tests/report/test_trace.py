# SPDX-License-Identifier: Apache-2.0
"""The timeline of a program, its trace for Perfetto, and the critical path of a step."""

import itertools
import json

import pytest
from made_programs import (
    LINE,
    STEP_SECONDS,
    make_loop,
    make_loop_profile,
    make_random_profile,
    make_steps,
)
from raymeter.profile.events import Store
from raymeter.report import perfetto
from raymeter.report.critical import PathFinder
from raymeter.report.timeline import make_timeline
from raymeter.simulate.graph import build


def read_trace(profile, path) -> list[dict]:
    perfetto.write(profile, path)
    return json.loads(path.read_text())["traceEvents"]


def test_the_trace_has_all_processes_tasks_calls_and_messages(tmp_path):
    events = read_trace(make_loop_profile(), tmp_path / "trace.json")
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {"driver (node-1)", "Trainer (node-Trainer-0)"}
    kinds = [event["cat"] for event in events if event["ph"] == "X"]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "task": 6, "phase": 12, "call": 6, "wait": 6, "send": 6, "read": 6,
    }  # fmt: skip


def test_each_arrow_of_the_trace_begins_and_ends_in_a_span(tmp_path):
    events = read_trace(make_loop_profile(), tmp_path / "trace.json")
    spans = [event for event in events if event["ph"] == "X"]
    ends = [event for event in events if event["ph"] in "sf"]
    assert len(ends) == 12
    for end in ends:
        around = [
            span["cat"] for span in spans
            if (span["pid"], span["tid"]) == (end["pid"], end["tid"])
            and span["ts"] <= end["ts"] <= span["ts"] + span["dur"]
        ]  # fmt: skip
        assert around == ["send" if end["ph"] == "s" else "read"]


@pytest.mark.parametrize("seed", range(20))
def test_spans_of_a_row_do_not_overlap(tmp_path, seed):
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in read_trace(make_random_profile(seed), tmp_path / "trace.json"):
        if event["ph"] == "X":
            times = event["ts"], event["ts"] + event["dur"]
            rows.setdefault((event["pid"], event["tid"]), []).append(times)
    for times in rows.values():
        times.sort()
        for (_, end), (start, _) in itertools.pairwise(times):
            assert start >= end - 0.2  # rounded to 0.1 microseconds


def test_the_memory_of_the_store_is_a_counter(tmp_path):
    profile = make_loop_profile()
    sample = Store(time=1.5, used=10, capacity=20, spilled=5)
    profile.program.recording.stores = [sample]
    events = read_trace(profile, tmp_path / "trace.json")
    (counter,) = [event for event in events if event["ph"] == "C"]
    assert counter["args"] == {"used": 10, "spilled": 5}
    assert counter["ts"] == 1.5e6


def find_path(program, step: int):
    steps = make_steps()
    return PathFinder(build(program), steps, make_timeline(program)).find(step)


def test_the_critical_path_is_as_long_as_the_step():
    path = find_path(make_loop(), 2)
    assert sum(link.seconds for link in path) == pytest.approx(STEP_SECONDS, rel=0.01)
    for earlier, later in itertools.pairwise(path):
        assert later.start == pytest.approx(earlier.end, abs=1e-5)


def test_the_critical_path_goes_through_the_task_that_the_driver_waits_for():
    path = find_path(make_loop(), 2)
    work = [(link.process, link.part) for link in path if link.part]
    assert work == [
        ("node-1", "call"),
        ("node-Trainer-0", "deserialise"),
        ("node-Trainer-0", "execute"),
        ("node-Trainer-0", "store"),
        ("node-1", "deserialise"),
        ("node-1", "execute"),
    ]
    assert path[0].span.line == LINE
