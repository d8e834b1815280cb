# SPDX-License-Identifier: Apache-2.0
"""Test which functions --trace replaces, what it records of them, and the spans of a run, also as a file."""

import json
import mmap
import sys
import time
from types import SimpleNamespace

import pytest

from dataflow.flows.flow import DRIVER
from dataflow.records.schema import RecordedEdge, Run
from dataflow.trace import spans

KINDS = ("functions", "gpu_functions")
FUNCTIONS = [
    name for stage in spans.STAGES.values() for kind in KINDS for name in stage.get(kind, ())
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_that_tracing_replaces_exists(function):
    """A new version of Ray or torch may have moved it; then a traced run would silently lack its stage."""
    owner, name = spans.find_owner(function)
    assert callable(getattr(owner, name))


def test_a_study_adds_to_a_stage_what_is_timed():
    stages = {"copy": {"cause": "copying", "functions": ["a:f"]}, "make": {}}
    spans.add_to_stages(stages, {"copy": {"functions": ["b:g"], "gpu_functions": ["b:h"]}})
    spans.add_to_stages(stages, {"make": {"methods": ["make_batch"]}})
    copy = {"cause": "copying", "functions": ["a:f", "b:g"], "gpu_functions": ["b:h"]}
    assert stages == {"copy": copy, "make": {"methods": ["make_batch"]}}


@pytest.mark.parametrize(
    ("study", "error"),
    [
        ({"copi": {"functions": []}}, "there is no stage copi: use copy, make"),
        ({"copy": {"cause": "waiting"}}, "stage copy has cause: use methods, functions"),
    ],
)
def test_an_unknown_stage_or_key_of_a_study_is_named(study, error):
    with pytest.raises(ValueError, match=error):
        spans.add_to_stages({"copy": {}, "make": {}}, study)


@pytest.fixture
def record(monkeypatch):
    """record(endpoint, functions: stage -> function) -> a library with these functions, which are recorded."""

    def install(endpoint, **functions):
        library = SimpleNamespace(**functions)
        monkeypatch.setitem(sys.modules, "a_library", library)
        replaced = {
            stage: spans.STAGES[stage] | {"functions": [f"a_library:{stage}"]}
            for stage in functions
        }
        methods_only = {
            stage: {"methods": of.get("methods", [])} for stage, of in spans.STAGES.items()
        }
        monkeypatch.setattr(spans, "STAGES", methods_only | replaced)
        monkeypatch.setattr(spans, "recorded", [])
        monkeypatch.setattr(spans, "wrapped_functions", [])
        for _ in range(2):  # the second endpoint of a process must not wrap the library again
            spans.install(endpoint)
        return library

    return install


def make_endpoint(**methods):
    return SimpleNamespace(parts=[], outboxes={}, device=SimpleNamespace(type="cpu"), **methods)


def test_calls_are_recorded_with_their_thread_and_time_even_if_they_raise(record):
    def fail():
        raise ValueError

    endpoint = make_endpoint(receive=lambda: 7)
    library = record(endpoint, wait=lambda: time.sleep(0.01), write=fail)
    before = time.perf_counter()
    library.wait()
    with pytest.raises(ValueError):
        library.write()
    (thread, stage, start, end, _), (other_thread, other_stage, *_) = spans.recorded
    assert (stage, other_stage, thread == other_thread) == ("wait", "write", True)
    assert before <= start <= end - 0.01 <= time.perf_counter()
    assert endpoint.receive() == 7 and {span[1] for span in spans.recorded[2:]} == {
        "sequence number"
    }


def test_page_faults_count_for_the_innermost_span(record):
    def touch(pages):
        memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1

    def outer():
        touch(3000)
        library.serialise()

    library = record(make_endpoint(), write=outer, serialise=lambda: touch(10_000))
    library.write()
    faults = {stage: count for _, stage, _, _, count in spans.recorded}
    assert 10_000 <= faults["serialise"] < 10_500 and 3000 <= faults["write"] < 3500


def test_spans_are_cut_to_their_iterations_and_those_of_one_process_are_there_once():
    of_driver = [(7, "submit", 9.9, 10.1, 50), (7, "wait", 10.1, 11.5, 140), (7, "make", 11.1, 11.2, 9),
                 (8, "copy", 5.0, 6.0, 9)]  # fmt: skip
    recorded = {DRIVER: of_driver, "policy": of_driver, "reward": [(9, "copy", 11.4, 11.5, 0)]}
    iterations_us, collected = spans.collect_spans(recorded, [(10.0, 11.0), (11.3, 12.0)])
    assert iterations_us == [(0, 1e6), (1.3e6, 2e6)]
    assert collected == [
        (DRIVER, 0, "submit", 0, 0, 1e5, 25),  # with the page faults in proportion
        (DRIVER, 0, "wait", 0, 1e5, 1e6, 90),
        (DRIVER, 0, "wait", 1, 1.3e6, 1.5e6, 20),
        ("reward", 0, "copy", 1, 1.4e6, 1.5e6, 0),
    ]


def test_the_time_to_assign_spans_is_linear_in_the_iterations():
    def seconds_per_iteration(count):
        iterations = [(float(number), number + 0.9) for number in range(count)]
        recorded = [(1, "wait", number + 0.1, number + 0.5, 0) for number in range(count)]
        begin = time.process_time()
        _, collected = spans.collect_spans({DRIVER: recorded}, iterations)
        took = time.process_time() - begin
        assert [span[3] for span in collected] == [*range(count)]
        return took / count

    small = min(seconds_per_iteration(count) for count in (500, 501, 502))
    assert min(seconds_per_iteration(count) for count in (7000, 7001)) < 4 * small


EDGES = [
    RecordedEdge(source=DRIVER, reader="a", bytes=8),
    RecordedEdge(source="a", reader=DRIVER, bytes=8),
]
SPANS = [
    ("a", 0, "sequence number", 0, 20.0, 30.0, 7), ("a", 0, "make", 0, 30.0, 40.0, 0),
    ("driver", 0, "sequence number", 0, 90.0, 100.0, 0), ("driver", 0, "wait", 0, 0.0, 90.0, 0),
]  # fmt: skip
RUN = Run(seconds=[1e-4], spans=SPANS, iterations_us=[(0.0, 100.0)])


def test_the_chrome_file_has_a_track_per_process_and_an_arrow_per_edge_and_iteration(tmp_path):
    spans.write_chrome(tmp_path / "trace.json", RUN, EDGES)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert (set(tracks.values()), list(processes.values())) == ({"driver", "a"}, ["a", "driver"])
    assert {(e["pid"], e["tid"]) for e in events} == set(tracks)  # no track without a name
    slices = [(processes[e["pid"]], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    of_stages = [
        (process, stage, start, end - start) for process, _, stage, _, start, end, _ in SPANS
    ]
    assert slices == [("driver", "iteration 0", 0, 100), *of_stages]
    assert [e["args"]["page faults"] for e in events if e.get("cat") == "stage"] == [7, 0, 0, 0]
    arrows = [
        (e["ph"], e["id"], e["name"], processes[e["pid"]], e["ts"])
        for e in events
        if e["ph"] in "sf"
    ]
    assert arrows == [
        ("s", 0, "driver -> a", "driver", 0.0), ("f", 0, "driver -> a", "a", 20.0),
        ("s", 1, "a -> driver", "a", 40.0), ("f", 1, "a -> driver", "driver", 90.0),
    ]  # fmt: skip
    spans.write_chrome(
        tmp_path / "groups.json", Run(seconds=[1e-4] * 2, iterations_us=RUN.iterations_us), EDGES
    )
    events = json.loads((tmp_path / "groups.json").read_text())["traceEvents"]
    assert [e["name"] for e in events if e.get("cat") == "iteration"] == [
        "group 0"
    ]  # iterations that overlap
