"""Where the time goes: from hand-made spans to the stages of a trip, and the pictures of both."""

import json

import pytest
from conftest import KILOBYTES, ROOT
from made_records import a_chain, a_record, a_run, written

import plot_results
from common.analysis import stages
from common.analysis.results import results_of
from common.charts import stage_chart
from common.errors import UsageError
from common.flow.catalogue import online_dpo
from common.flow.flow import DRIVER, Flow, Task, with_trainer
from common.flow.message import flat
from common.pages import generated
from common.plan import command_line
from common.record.rows import LADDER
from common.record.schema import Edge
from common.trace import recorder
from common.trace.chrome import write_chrome
from common.trace.edges import collect

GRAPH = ROOT / "ray_cg_simulate_chat_learn_data_flow.py"
TORCH = ROOT / "torch_simulate_chat_learn_data_flow.py"
FLOW = online_dpo(batch_size=4, prompt_seq_len=256)


def traced(*trips):
    """A traced run: of each trip its microseconds and its spans, each (process, thread, stage, start, end)."""
    spans, times, begin = [], [], 0
    for number, (length, found) in enumerate(trips):
        for process, thread, stage, start, end in found:
            spans.append((process, thread, stage, "in one process", number, begin + start, begin + end))
        times.append((begin, begin + length))
        begin += length + 1000
    return a_run([length * 1e-6 for length, _ in trips], spans=spans, trips_us=times)


def microseconds(run):
    found, explained = stages.attribute(run)
    return {stage: pytest.approx(seconds * 1e6) for stage, seconds in found.items()}, pytest.approx(explained)


def test_the_innermost_span_of_a_thread_wins():
    spans = [("a", 0, "write", 0, 100), ("a", 0, "serialise", 20, 50), ("a", 0, "copy", 30, 40)]
    assert microseconds(traced((100, spans))) == ({"write": 70, "serialise": 20, "copy": 10}, 1)


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_the_spans_does_not_matter(order):
    spans = [("a", 0, "loop", 0, 100), ("a", 0, "write", 10, 60), ("a", 0, "serialise", 20, 30)][::order]
    assert microseconds(traced((100, spans))) == ({"serialise": 10, "write": 40, "loop": 50}, 1)


def test_of_two_spans_that_were_cut_at_the_trips_start_the_inner_one_wins():
    """As a record has them: sorted by when they began, which was before the trip."""
    found = {DRIVER: [(1, "serialise", 9.7, 10.4), (1, "write", 9.6, 11.0)]}  # as they ended
    fields = collect(found, [(10.0, 11.0)], FLOW)
    assert microseconds(a_run([1.0], **fields)) == ({"serialise": 0.4e6, "write": 0.6e6}, 1)


@pytest.mark.parametrize("other", [("b", 0), ("a", 1)], ids=["processes", "threads of a process"])
def test_those_who_work_at_the_same_time_share_it(other):
    spans = [("a", 0, "write", 0, 100), (*other, "copy", 50, 150)]
    assert microseconds(traced((150, spans))) == ({"write": 75, "copy": 75}, 1)


def test_three_who_work_at_the_same_time_share_it_by_heads():
    spans = [("a", 0, "write", 0, 90), ("b", 0, "write", 0, 90), ("c", 0, "copy", 0, 90)]
    assert microseconds(traced((90, spans))) == ({"write": 60, "copy": 30}, 1)


@pytest.mark.parametrize("idle", stages.LAST)
def test_waiting_counts_only_while_nobody_works(idle):
    spans = [("a", 0, idle, 0, 100), ("b", 0, idle, 10, 100), ("c", 0, "write", 20, 60)]
    assert microseconds(traced((100, spans))) == ({idle: 60, "write": 40}, 1)


def test_of_those_who_do_not_work_the_first_of_the_list_counts():
    first, second, third = stages.LAST
    spans = [("a", 0, third, 0, 90), ("b", 0, second, 30, 90), ("c", 0, first, 60, 90)]
    assert microseconds(traced((90, spans))) == ({third: 30, second: 30, first: 30}, 1)


def test_work_inside_a_wait_of_the_same_thread_is_work():
    spans = [("a", 0, "wait", 0, 100), ("a", 0, "deserialise", 70, 90)]
    assert microseconds(traced((100, spans))) == ({"wait": 80, "deserialise": 20}, 1)


def test_what_no_span_says_is_not_explained():
    spans = [("a", 0, "write", 0, 40), ("b", 0, "copy", 50, 100)]
    assert microseconds(traced((100, spans))) == ({"write": 40, "copy": 50}, 0.9)


def test_stages_are_the_mean_of_the_trips_in_the_order_of_a_messages_way():
    run = traced((100, [("a", 0, "copy", 0, 100)]), (300, [("a", 0, "copy", 0, 100), ("a", 0, "make", 100, 300)]))
    assert microseconds(run) == ({"make": 100, "copy": 100}, 1)
    assert list(stages.attribute(run)[0]) == ["make", "copy"]


def test_every_stage_that_is_traced_has_its_place_and_its_look():
    known = {stage for *_, stage in (*recorder.POINTS, *recorder.ON_GPUS)}
    assert known <= set(stages.STAGES)
    assert set(stages.STAGES) == set(stage_chart.STYLES)
    assert set(stages.LAST) <= set(stages.STAGES)


def a_traced(transport, runtime, *trips):
    return a_record(transport, traced(*trips), runtime=runtime)


WHOLE = (100_000, [("a", 0, "write", 0, 60_000), ("b", 0, "copy", 60_000, 100_000)])
LOST = (100_000, WHOLE[1][:1])
TWICE = (100_000, [("b", 0, "copy", 0, 120_000)])  # as when the clocks of two processes disagree


def test_stages_that_add_up_to_the_trip_have_no_problem():
    assert stage_chart.problems(results_of([a_traced("shm", "graph", WHOLE)])) == []


@pytest.mark.parametrize(("trip", "share"), [(LOST, "60.0%"), (TWICE, "120.0%")], ids=["lost", "too long"])
def test_stages_that_do_not_add_up_are_a_problem_by_the_name_of_the_row(trip, share):
    found = stage_chart.problems(results_of([a_traced("shm", "graph", trip), a_traced("pickle", "graph", WHOLE)]))
    assert found == [f"graph shm: the stages add up to {share} of the trip"]


EDGES = [Edge(source=DRIVER, reader="a", bytes=8), Edge(source="a", reader=DRIVER, bytes=8)]


def a_seen_run(change=lambda spans: spans):
    """A run of the two EDGES, whose ends were all seen; `change` may spoil its spans."""
    spans = [
        ("a", 0, "stamp", "driver -> a", 0, 20.0, 30.0),
        ("a", 0, "make", "a -> driver", 0, 30.0, 40.0),
        ("driver", 0, "stamp", "a -> driver", 0, 90.0, 100.0),
        ("driver", 0, "wait", "a -> driver", 0, 0.0, 90.0),
    ]
    return a_run([1e-4], spans=change(spans), trips_us=[(0.0, 100.0)])


def test_a_trace_in_which_every_edge_was_seen_at_both_ends_has_no_defect():
    assert stages.defect(a_seen_run(), EDGES) is None


@pytest.mark.parametrize("lost", [0, 1, 2], ids=["reader", "sender", "driver"])
def test_a_lost_end_of_an_edge_is_a_defect_though_the_drivers_waiting_covers_the_trip(lost):
    run = a_seen_run(lambda spans: spans[:lost] + spans[lost + 1 :])
    assert stages.defect(run, EDGES).startswith("nobody saw ")


def test_an_edge_that_was_read_before_it_was_sent_is_a_defect():
    late = a_seen_run(
        lambda spans: [(*span[:5], span[5] + 80, span[6] + 80) if span[0] == "a" else span for span in spans]
    )
    assert "a -> driver in trip 0 was read before it was sent" in stages.defect(late, EDGES)


def test_a_file_for_perfetto_has_a_track_for_each_process_and_an_arrow_for_each_edge_of_a_trip(tmp_path):
    write_chrome(tmp_path / "trace.json", a_seen_run(), EDGES)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    groups = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert (set(tracks.values()), list(groups.values())) == ({"driver", "a"}, ["a", "driver"])
    slices = [e for e in events if e["ph"] == "X"]
    assert {(e["pid"], e["tid"]) for e in events} == set(tracks)  # none without a name
    assert [(e["name"], groups[e["pid"]], e["ts"], e["dur"]) for e in slices if e["cat"] == "trip"] == [
        ("trip 0", "driver", *a_seen_run().trips_us[0])
    ]
    spans = [(groups[e["pid"]], e["name"], e["args"]["edge"], e["ts"], e["dur"]) for e in slices if e["cat"] == "stage"]
    assert spans == [(process, stage, edge, start, end - start)
                     for process, _, stage, edge, _, start, end in a_seen_run().spans]  # fmt: skip
    arrows = [(e["ph"], e["id"], e["name"], groups[e["pid"]], e["ts"]) for e in events if e["ph"] in "sf"]
    assert arrows == [
        ("s", 0, "driver -> a", "driver", 0.0),
        ("f", 0, "driver -> a", "a", 20.0),
        ("s", 1, "a -> driver", "a", 40.0),
        ("f", 1, "a -> driver", "driver", 90.0),
    ]


def test_every_arrow_begins_and_ends_within_a_slice_or_perfetto_drops_it(tmp_path):
    write_chrome(tmp_path / "trace.json", a_seen_run(), EDGES)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [(e["pid"], e["tid"], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"]
    for e in events:
        if e["ph"] in "sf":
            assert any((e["pid"], e["tid"]) == s[:2] and s[2] <= e["ts"] <= s[3] for s in slices)


def test_trips_that_stalled_are_left_out():
    whole = [(100, [("a", 0, "copy", 0, 100)])] * 3
    stalled = (90_000, [("a", 0, "wait", 0, 90_000)])
    assert microseconds(traced(*whole, stalled)) == ({"copy": 100}, 1)


@pytest.fixture
def write(monkeypatch, tmp_path):
    """write(*records) -> their files. Nothing in the repository can be drawn over."""
    monkeypatch.setattr(plot_results, "ROOT", tmp_path)
    return lambda *records: [written(tmp_path / f"{index}.json", record) for index, record in enumerate(records)]


def test_a_trace_that_does_not_add_up_is_not_drawn(write, tmp_path, capsys):
    paths = write(a_traced("shm", "graph", LOST))
    assert plot_results.main([*paths, "--output-dir", str(tmp_path / "img")]) == 2
    said = capsys.readouterr().err
    assert "graph shm: the stages add up to 60.0% of the trip: trace it again" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "img" / "stages.png").exists()


def test_ladder_traces_and_microbenchmarks_are_drawn_in_one_call(write, tmp_path, capsys):
    paths = write(
        a_traced("shm", "graph", WHOLE, WHOLE),
        a_traced("driver-queue", "store", WHOLE),
        a_record("shm", [0.08, 0.08, 0.08], runtime="graph"),
        a_record("driver-queue", [0.5, 0.5]),
        a_chain("shm", [0.001, 0.0011], "graph"),
    )
    assert plot_results.main([*paths, "--output-dir", str(tmp_path / "img")]) == 0
    drawn = {path.name for path in (tmp_path / "img").iterdir()}
    assert {"benchmark_result.png", "stages.png"} <= drawn
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "img").iterdir())
    shown = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown.count("graph shm") == 1  # the traced run is no rung
    assert shown.count("chain-2") == 1


def test_traces_of_fields_have_a_picture_and_a_table_of_their_own_beside_a_ladder(write, tmp_path):
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "chatlearn.md"
    page.write_text("{}\n{}".format(*generated.markers("chatlearn-stages")))
    fields = a_record("refs", traced(WHOLE), message="fields", rows=4)
    paths = write(a_traced("shm", "graph", WHOLE), a_record("shm", [0.08] * 3, runtime="graph"), fields)
    where = ("--output-dir", str(tmp_path / "img"), "--pages", str(tmp_path))
    assert plot_results.main([*paths, *where]) == 0
    assert {"stages.png", "chatlearn_stages.png"} <= {path.name for path in (tmp_path / "img").iterdir()}
    header, _, row = page.read_text().splitlines()[1:4]
    assert header.startswith("| transport | a trip, ms | ") and row.startswith("| store refs | ")
    assert plot_results.main([paths[-1], "--output-dir", str(tmp_path / "alone")]) == 0  # then it is a trace as any
    assert [path.name for path in (tmp_path / "alone").iterdir()] == ["stages.png"]


def test_traces_alone_leave_the_pictures_of_the_ladder_alone(write, tmp_path):
    paths = write(a_traced("shm", "graph", WHOLE))
    assert plot_results.main([*paths, "--output-dir", str(tmp_path / "img")]) == 0
    assert [path.name for path in (tmp_path / "img").iterdir()] == ["stages.png"]


def test_the_caption_says_how_well_the_stages_fit_and_what_tracing_cost():
    other = a_traced("pickle", "graph", (100_000, [("a", 0, "copy", 0, 97_000)]))
    found = results_of([a_traced("shm", "graph", WHOLE), other])
    untraced = results_of([a_record("shm", [0.08, 0.08, 0.08], runtime="graph")])
    said = stage_chart.caption(found, untraced)
    assert "The stages add up to 97.0% of the trip where they fit worst (graph pickle)." in said
    assert "graph shm 1.25." in said
    assert "another run: unknown." in stage_chart.caption(found, [])


def test_spans_are_cut_to_the_trips_that_they_lie_in():
    found = {
        DRIVER: [(7, "submit", 9.9, 10.1), (7, "wait", 10.1, 11.5), (7, "make", 11.1, 11.2), (8, "copy", 5.0, 6.0)],
    }
    fields = collect(found, [(10.0, 11.0), (11.3, 12.0)], FLOW)
    assert fields["trips_us"] == [(0, 1e6), (1.3e6, 2e6)]
    assert [[span[2], *span[4:]] for span in fields["spans"]] == [
        ["submit", 0, 0, 1e5],
        ["wait", 0, 1e5, 1e6],
        ["wait", 1, 1.3e6, 1.5e6],
    ]
    assert {tuple(span[:2]) for span in fields["spans"]} == {(DRIVER, 0)}


def test_a_span_names_the_edge_that_its_process_was_busy_with():
    reward = [
        (1, "deserialise", 0.1, 0.2), (1, "deserialise", 0.3, 0.4), (1, "stamp", 0.5, 0.51),
        (1, "make", 0.52, 0.53), (1, "write", 0.6, 0.7),
    ]  # fmt: skip
    policy = [(1, "wait", 0.0, 0.01), (1, "stamp", 0.02, 0.03), (1, "write", 0.04, 0.05)]
    fields = collect({DRIVER: [], "reward": reward, "policy": policy}, [(0.0, 1.0)], FLOW)
    edges = [(process, stage, edge) for process, _, stage, edge, *_ in fields["spans"]]
    assert edges == [
        ("reward", "deserialise", "policy -> reward"),
        ("reward", "deserialise", "reference -> reward"),
        ("reward", "stamp", "-> reward"),
        ("reward", "make", "reward -> driver"),
        ("reward", "write", "reward -> driver"),
        ("policy", "wait", "driver -> policy"),
        ("policy", "stamp", "driver -> policy"),
        ("policy", "write", "policy ->"),
    ]


def test_a_process_that_is_all_roles_has_its_spans_once_and_no_edges():
    own = [(1, "copy", 0.1, 0.2), (1, "stamp", 0.3, 0.4)]
    fields = collect({DRIVER: own, "policy": own, "reward": own}, [(0.0, 1.0)], FLOW)
    assert [(span[0], span[2], span[3]) for span in fields["spans"]] == [
        (DRIVER, "copy", "in one process"),
        (DRIVER, "stamp", "in one process"),
    ]


def test_a_transfer_of_a_role_is_of_what_comes_in_until_it_holds_it():
    policy = [(1, "transfer", 0.0, 0.1), (1, "stamp", 0.2, 0.3), (1, "transfer", 0.4, 0.5)]
    fields = collect({DRIVER: [], "policy": policy}, [(0.0, 1.0)], FLOW)
    edges = [span[3] for span in fields["spans"] if span[2] == "transfer"]
    assert edges == ["driver -> policy", "policy ->"]


def test_what_the_driver_reads_is_of_the_edge_that_comes_back():
    driver = [
        (1, "submit", 0.0, 0.1), (1, "write", 0.01, 0.09), (1, "wait", 0.1, 0.6), (1, "deserialise", 0.3, 0.5),
        (1, "stamp", 0.7, 0.75), (1, "synchronise", 0.8, 0.9),
    ]  # fmt: skip
    fields = collect({DRIVER: driver}, [(0.0, 1.0)], FLOW)
    assert {stage: edge for _, _, stage, edge, *_ in fields["spans"]} == {
        "submit": "driver -> policy",
        "write": "driver -> policy",
        "wait": "reward -> driver",
        "deserialise": "reward -> driver",
        "stamp": "reward -> driver",
        "synchronise": "reward -> driver",
    }


def test_an_actor_of_two_tasks_has_the_edges_of_both():
    tasks = (
        Task("a", (DRIVER,), flat(8), actor="one"),
        Task("b", ("a",), flat(8)),
        Task("c", ("b",), flat(8), actor="one"),
    )
    flow = Flow("three", "three", flat(8), tasks, returns=("c",))
    own = [(1, "deserialise", 0.1, 0.2), (1, "make", 0.3, 0.4), (1, "deserialise", 0.5, 0.6), (1, "make", 0.7, 0.8)]
    fields = collect({DRIVER: [], "one": own}, [(0.0, 1.0)], flow)
    assert [span[3] for span in fields["spans"]] == ["driver -> a", "one ->", "b -> c", "one ->"]


def test_the_edges_of_the_drivers_stand_in_are_those_that_the_driver_has_in_pictures():
    assert with_trainer(FLOW).actors[0] == "stand-in"
    own = [(1, "make", 0.1, 0.2), (1, "wait", 0.3, 0.4), (1, "stamp", 0.5, 0.6)]
    fields = collect({DRIVER: [(1, "wait", 0.0, 1.0)], "stand-in": own}, [(0.0, 1.0)], FLOW)
    assert [(span[0], span[3]) for span in fields["spans"]] == [
        (DRIVER, "reward -> driver"), ("stand-in", "driver -> policy"), *[("stand-in", "reward -> driver")] * 2,
    ]  # fmt: skip


ITERATIONS = 20


@pytest.mark.parametrize(("script", "transport"), [(GRAPH, "shm"), (TORCH, "gloo")], ids=["graph", "torch"])
def test_a_traced_run_explains_its_trips(run_script, tmp_path, script, transport):
    file = tmp_path / "trace.json"
    flags = ("--transport", transport, "--iterations", str(ITERATIONS), "--warmup", "2", "--trace", str(file))
    finished = run_script(script, *flags, *KILOBYTES)
    assert (finished.code, finished.stderr) == (0, "")
    record = finished.record
    (run,) = record.runs
    assert (run.status, run.wrong_bytes, len(run.seconds)) == ("ok", 0, ITERATIONS)
    assert record.arguments["trace"] is True  # and not where the file is

    lengths = [(end - start) * 1e-6 for start, end in run.trips_us]
    assert lengths == pytest.approx(run.seconds, abs=1e-7)
    everybody = [DRIVER, *FLOW.actors]
    assert {(span[0], span[4]) for span in run.spans} == {
        (name, trip) for name in everybody for trip in range(ITERATIONS)
    }
    for *_, trip, start, end in run.spans:
        assert run.trips_us[trip][0] <= start <= end <= run.trips_us[trip][1]
    found, explained = stages.attribute(run)
    assert 0.95 <= explained <= 1.05
    assert {"stamp", "write" if script == GRAPH else "transfer"} <= set(found)
    noted = {(span[0], span[2]) for span in run.spans}
    assert noted >= {(name, "stamp") for name in everybody} | {(name, "make") for name in FLOW.actors}
    for process, _, stage, edge, *_ in run.spans:
        assert stage != "deserialise" or edge.endswith(f"-> {process}"), stage
    (result,) = results_of([record])
    assert stage_chart.problems([result]) == []
    assert result.name.endswith(transport)

    events = json.loads(file.read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == set(everybody)
    assert len([event for event in events if event.get("cat") == "trip"]) == ITERATIONS
    complete = [event for event in events if event.get("cat") == "stage"]
    assert len(complete) == len(run.spans)
    assert {event["name"] for event in complete} <= set(stages.STAGES)
    assert all(set(event["args"]) == {"edge", "trip"} and event["dur"] >= 0 for event in complete)
    arrows = {phase: [event for event in events if event["ph"] == phase] for phase in "sf"}
    assert len(arrows["s"]) == len(arrows["f"]) == len(record.edges) * ITERATIONS
    for start, finish in zip(arrows["s"], arrows["f"], strict=True):
        assert (start["id"], start["name"]) == (finish["id"], finish["name"])
        assert start["ts"] <= finish["ts"]


@pytest.mark.parametrize("flag", ["--placement=spread", "--address=127.0.0.1:6379"])
def test_a_trace_of_several_clocks_is_refused(tmp_path, flag):
    asked = command_line.parse("", "graph", ["--trace", str(tmp_path / "trace.json"), flag])
    with pytest.raises(UsageError, match="--trace"):
        asked.refuse(LADDER["graph shm"])
