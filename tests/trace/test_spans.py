"""From what each process recorded to the spans of a run, and to a file for Perfetto."""

import json

from dataflow.flows.catalogue import online_dpo
from dataflow.flows.flow import DRIVER, PROXY, Flow, Task
from dataflow.flows.message import flat_message
from dataflow.records.schema import Edge, Run
from dataflow.trace.spans import collect_spans, write_chrome

FLOW = online_dpo(batch_size=4, prompt_seq_len=256)


def collect(recorded, iterations=((0.0, 1.0),), flow=FLOW, actors=None):
    return collect_spans(recorded, iterations, flow, actors or {})


def stages_and_edges(recorded, **options):
    return [(process, stage, edge) for process, _, stage, edge, *_ in collect(recorded, **options)[1]]


def in_turn(*stages):
    """Return recorded spans of 0.1 s each, one after the other."""
    return [(1, stage, index / 10, index / 10 + 0.1, 0) for index, stage in enumerate(stages)]


def test_spans_are_cut_to_their_iterations():
    spans = [(7, "submit", 9.9, 10.1, 50), (7, "wait", 10.1, 11.5, 140), (7, "make", 11.1, 11.2, 9),
             (8, "copy", 5.0, 6.0, 9)]  # fmt: skip
    iterations_us, spans = collect({DRIVER: spans}, [(10.0, 11.0), (11.3, 12.0)])
    assert iterations_us == [(0, 1e6), (1.3e6, 2e6)]
    assert [[stage, *times] for _, _, stage, _, *times in spans] == [
        ["submit", 0, 0, 1e5, 25],  # with the page faults in proportion
        ["wait", 0, 1e5, 1e6, 90],
        ["wait", 1, 1.3e6, 1.5e6, 20],
    ]
    assert {tuple(span[:2]) for span in spans} == {(DRIVER, 0)}


def test_a_span_names_the_edge_that_its_process_worked_on():
    reward = in_turn("deserialise", "deserialise", "sequence number", "make", "write")
    assert [edge for *_, edge in stages_and_edges({DRIVER: [], "reward": reward})] == [
        "policy -> reward",
        "reference -> reward",
        "-> reward",
        "reward -> driver",
        "reward -> driver",
    ]
    policy = in_turn("wait", "sequence number", "write")
    edges = [edge for *_, edge in stages_and_edges({DRIVER: [], "policy": policy})]
    assert edges == ["driver -> policy", "driver -> policy", "policy ->"]


def test_a_process_with_all_actors_has_each_span_once_and_no_edges():
    spans = in_turn("copy", "sequence number")
    assert stages_and_edges({DRIVER: spans, "policy": spans, "reward": spans}) == [
        (DRIVER, "copy", "in one process"),
        (DRIVER, "sequence number", "in one process"),
    ]


def test_an_actors_transfer_is_incoming_until_it_has_its_inputs():
    policy = in_turn("transfer", "sequence number", "transfer")
    edges = [edge for *_, edge in stages_and_edges({DRIVER: [], "policy": policy})]
    assert edges == ["driver -> policy", "driver -> policy", "policy ->"]


def test_the_driver_sends_first_and_reads_the_edge_that_returns():
    edges = dict.fromkeys(["submit", "write"], "driver -> policy")
    edges |= dict.fromkeys(["wait", "deserialise", "sequence number", "synchronise"], "reward -> driver")
    assert {stage: edge for _, stage, edge in stages_and_edges({DRIVER: in_turn(*edges)})} == edges


def test_a_process_of_an_actor_with_two_tasks_has_the_edges_of_both():
    message = flat_message(8)
    tasks = (
        Task("a", (DRIVER,), message, actor="one"),
        Task("b", ("a",), message),
        Task("c", ("b",), message, actor="one"),
    )
    flow = Flow("three", "three", message, tasks, returns=("c",))
    spans = in_turn("deserialise", "make", "deserialise", "make")
    result = stages_and_edges({DRIVER: [], "one.0": spans}, flow=flow, actors={"one.0": "one"})
    assert [edge for *_, edge in result] == ["driver -> a", "one ->", "b -> c", "one ->"]


def test_the_proxy_actor_has_the_edges_of_the_driver():
    spans = in_turn("make", "wait", "sequence number")
    edges = [edge for *_, edge in stages_and_edges({DRIVER: [], PROXY: spans})]
    assert edges == ["driver -> policy", "reward -> driver", "reward -> driver"]


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


def test_iterations_that_overlap_are_shown_as_groups(tmp_path):
    write_chrome(tmp_path / "trace.json", Run(seconds=[1e-4] * 2, spans=SPANS, iterations_us=[(0.0, 100.0)]), EDGES)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events if e.get("cat") == "iteration"] == ["group 0"]
