"""From what each process recorded to the spans of a run, and to a file for Perfetto."""

import json

import pytest

from dataflow.flows.catalogue import online_dpo
from dataflow.flows.flow import DRIVER, PROXY, Flow, Task
from dataflow.flows.message import flat_message
from dataflow.records.schema import Edge, Run
from dataflow.trace.spans import collect_spans, write_chrome

FLOW = online_dpo(batch_size=4, prompt_seq_len=256)


def in_turn(*stages):
    """Return recorded spans of 0.1 s each, one after the other."""
    return [(1, stage, index / 10, index / 10 + 0.1, 0) for index, stage in enumerate(stages)]


def test_spans_are_cut_to_their_iterations():
    spans = [(7, "submit", 9.9, 10.1, 50), (7, "wait", 10.1, 11.5, 140), (7, "make", 11.1, 11.2, 9),
             (8, "copy", 5.0, 6.0, 9)]  # fmt: skip
    iterations_us, spans = collect_spans({DRIVER: spans}, [(10.0, 11.0), (11.3, 12.0)], FLOW, {})
    assert iterations_us == [(0, 1e6), (1.3e6, 2e6)]
    assert [[stage, *times] for _, _, stage, _, *times in spans] == [
        ["submit", 0, 0, 1e5, 25],  # with the page faults in proportion
        ["wait", 0, 1e5, 1e6, 90],
        ["wait", 1, 1.3e6, 1.5e6, 20],
    ]
    assert {tuple(span[:2]) for span in spans} == {(DRIVER, 0)}


TWO_TASKS = Flow("three", "three", flat_message(8), returns=("c",), tasks=(
    Task("a", (DRIVER,), flat_message(8), actor="one"),
    Task("b", ("a",), flat_message(8)),
    Task("c", ("b",), flat_message(8), actor="one"),
))  # fmt: skip
FROM_DRIVER, TO_DRIVER = "driver -> policy", "reward -> driver"


@pytest.mark.parametrize(("process", "edges"), [
    ("reward", [("deserialise", "policy -> reward"), ("deserialise", "reference -> reward"),
                ("sequence number", "-> reward"), ("make", TO_DRIVER), ("write", TO_DRIVER)]),
    # An actor's transfer is incoming until the actor has its inputs.
    ("policy", [("wait", FROM_DRIVER), ("transfer", FROM_DRIVER), ("sequence number", FROM_DRIVER),
                ("transfer", "policy ->"), ("write", "policy ->")]),
    # The driver and its proxy actor send first, and then read the edge that returns.
    (DRIVER, [("submit", FROM_DRIVER), ("write", FROM_DRIVER), ("wait", TO_DRIVER), ("deserialise", TO_DRIVER),
              ("sequence number", TO_DRIVER), ("synchronise", TO_DRIVER)]),
    (PROXY, [("make", FROM_DRIVER), ("wait", TO_DRIVER), ("sequence number", TO_DRIVER)]),
    ("one.0", [("deserialise", "driver -> a"), ("make", "one ->"), ("deserialise", "b -> c"), ("make", "one ->")]),
])  # fmt: skip
def test_a_span_names_the_edge_that_its_process_worked_on(process, edges):
    recorded = {DRIVER: [], process: in_turn(*(stage for stage, _ in edges))}
    flow, actors = (TWO_TASKS, {"one.0": "one"}) if process == "one.0" else (FLOW, {})
    spans = collect_spans(recorded, [(0.0, 1.0)], flow, actors)[1]
    assert [(stage, edge) for _, _, stage, edge, *_ in spans] == edges


def test_a_process_with_all_actors_has_each_span_once_and_no_edges():
    recorded = in_turn("copy", "sequence number")
    _, spans = collect_spans({DRIVER: recorded, "policy": recorded, "reward": recorded}, [(0.0, 1.0)], FLOW, {})
    assert [(process, stage, edge) for process, _, stage, edge, *_ in spans] == [
        (DRIVER, "copy", "in one process"), (DRIVER, "sequence number", "in one process"),
    ]  # fmt: skip


EDGES = [Edge(source=DRIVER, reader="a", bytes=8), Edge(source="a", reader=DRIVER, bytes=8)]
SPANS = [
    ("a", 0, "sequence number", "driver -> a", 0, 20.0, 30.0, 7),
    ("a", 0, "make", "a -> driver", 0, 30.0, 40.0, 0),
    ("driver", 0, "sequence number", "a -> driver", 0, 90.0, 100.0, 0),
    ("driver", 0, "wait", "a -> driver", 0, 0.0, 90.0, 0),
]
RUN = Run(seconds=[1e-4], spans=SPANS, iterations_us=[(0.0, 100.0)])


def test_the_chrome_file_has_a_track_per_process_and_an_arrow_per_edge_and_iteration(tmp_path):
    write_chrome(tmp_path / "trace.json", RUN, EDGES)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert (set(tracks.values()), list(processes.values())) == ({"driver", "a"}, ["a", "driver"])
    assert {(e["pid"], e["tid"]) for e in events} == set(tracks)  # no track without a name
    slices = [(processes[e["pid"]], e["name"], e["cat"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert slices == [
        ("driver", "iteration 0", "iteration", 0, 100),
        *((process, stage, "stage", start, end - start) for process, _, stage, _, _, start, end, _ in SPANS),
    ]
    assert [e["args"]["page faults"] for e in events if e.get("cat") == "stage"] == [7, 0, 0, 0]
    arrows = [(e["ph"], e["id"], e["name"], processes[e["pid"]], e["ts"]) for e in events if e["ph"] in "sf"]
    assert arrows == [
        ("s", 0, "driver -> a", "driver", 0.0),
        ("f", 0, "driver -> a", "a", 20.0),
        ("s", 1, "a -> driver", "a", 40.0),
        ("f", 1, "a -> driver", "driver", 90.0),
    ]
    for *_, process, time in arrows:  # Perfetto drops an arrow that begins or ends outside all slices of its track
        assert any(process == of and begin <= time <= begin + duration for of, _, _, begin, duration in slices)
    write_chrome(tmp_path / "groups.json", Run(seconds=[1e-4] * 2, iterations_us=RUN.iterations_us), EDGES)
    events = json.loads((tmp_path / "groups.json").read_text())["traceEvents"]
    assert [e["name"] for e in events if e.get("cat") == "iteration"] == ["group 0"]  # iterations that overlap
