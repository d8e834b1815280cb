"""Where the time goes: from hand-made spans to the stages of a trip, and the pictures of both."""

import json

import pytest
from conftest import KILOBYTES, ROOT
from made_records import a_chain, a_record

import plot_results
from common.analysis import stages
from common.flow.demo_sizes import Sizes
from common.flow.flow import DRIVER, online_dpo
from common.run import options as command_line
from common.trace import recorder as trace
from common.view import stage_chart
from common.view import tables as report

GRAPH = ROOT / "ray_cg_simulate_chat_learn_data_flow.py"
TORCH = ROOT / "torch_simulate_chat_learn_data_flow.py"
FLOW = online_dpo(Sizes(batch_size=4, prompt_seq_len=256))


def a_case(*trips):
    """A traced case: of each trip its microseconds and its spans, each (process, thread, stage, start, end)."""
    spans, times, begin = [], [], 0
    for number, (length, found) in enumerate(trips):
        for process, thread, stage, start, end in found:
            spans.append([process, thread, stage, "in one process", number, begin + start, begin + end])
        times.append([begin, begin + length])
        begin += length + 1000
    return {"spans": spans, "trips_us": times, "seconds": [length * 1e-6 for length, _ in trips]}


def microseconds(case):
    found, explained = stages.attribute(case)
    return {stage: pytest.approx(seconds * 1e6) for stage, seconds in found.items()}, pytest.approx(explained)


def test_the_innermost_span_of_a_thread_wins():
    spans = [("a", 0, "write", 0, 100), ("a", 0, "serialise", 20, 50), ("a", 0, "copy", 30, 40)]
    assert microseconds(a_case((100, spans))) == ({"write": 70, "serialise": 20, "copy": 10}, 1)


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_the_spans_does_not_matter(order):
    spans = [("a", 0, "loop", 0, 100), ("a", 0, "write", 10, 60), ("a", 0, "serialise", 20, 30)][::order]
    assert microseconds(a_case((100, spans))) == ({"serialise": 10, "write": 40, "loop": 50}, 1)


def test_of_two_spans_that_were_cut_at_the_trips_start_the_inner_one_wins():
    """As a record has them: sorted by when they began, which was before the trip."""
    found = {DRIVER: [(1, "serialise", 9.7, 10.4), (1, "write", 9.6, 11.0)]}  # as they ended
    fields = trace.collect(found, [(10.0, 11.0)], FLOW)
    assert microseconds(fields | {"seconds": [1.0]}) == ({"serialise": 0.4e6, "write": 0.6e6}, 1)


@pytest.mark.parametrize("other", [("b", 0), ("a", 1)], ids=["processes", "threads of a process"])
def test_those_who_work_at_the_same_time_share_it(other):
    spans = [("a", 0, "write", 0, 100), (*other, "copy", 50, 150)]
    assert microseconds(a_case((150, spans))) == ({"write": 75, "copy": 75}, 1)


def test_three_who_work_at_the_same_time_share_it_by_heads():
    spans = [("a", 0, "write", 0, 90), ("b", 0, "write", 0, 90), ("c", 0, "copy", 0, 90)]
    assert microseconds(a_case((90, spans))) == ({"write": 60, "copy": 30}, 1)


@pytest.mark.parametrize("idle", stages.LAST)
def test_waiting_counts_only_while_nobody_works(idle):
    spans = [("a", 0, idle, 0, 100), ("b", 0, idle, 10, 100), ("c", 0, "write", 20, 60)]
    assert microseconds(a_case((100, spans))) == ({idle: 60, "write": 40}, 1)


def test_of_those_who_do_not_work_the_first_of_the_list_counts():
    first, second, third = stages.LAST
    spans = [("a", 0, third, 0, 90), ("b", 0, second, 30, 90), ("c", 0, first, 60, 90)]
    assert microseconds(a_case((90, spans))) == ({third: 30, second: 30, first: 30}, 1)


def test_work_inside_a_wait_of_the_same_thread_is_work():
    spans = [("a", 0, "wait", 0, 100), ("a", 0, "deserialise", 70, 90)]
    assert microseconds(a_case((100, spans))) == ({"wait": 80, "deserialise": 20}, 1)


def test_what_no_span_says_is_not_explained():
    spans = [("a", 0, "write", 0, 40), ("b", 0, "copy", 50, 100)]
    assert microseconds(a_case((100, spans))) == ({"write": 40, "copy": 50}, 0.9)


def test_stages_are_the_mean_of_the_trips_in_the_order_of_a_messages_way():
    case = a_case((100, [("a", 0, "copy", 0, 100)]), (300, [("a", 0, "copy", 0, 100), ("a", 0, "make", 100, 300)]))
    assert microseconds(case) == ({"make": 100, "copy": 100}, 1)
    assert list(stages.attribute(case)[0]) == ["make", "copy"]


def test_every_stage_that_is_traced_has_its_place_and_its_look():
    traced = {stage for *_, stage in (*trace.POINTS, *trace.ON_GPUS)}
    assert traced <= set(stages.STAGES)
    assert set(stages.STAGES) == set(stage_chart.STYLES)
    assert set(stages.LAST) <= set(stages.STAGES)


def a_traced(transport, runtime, *trips):
    return a_record(transport, runtime=runtime, setup_seconds={}, arguments={"trace": True}, **a_case(*trips))


WHOLE = (100_000, [("a", 0, "write", 0, 60_000), ("b", 0, "copy", 60_000, 100_000)])
LOST = (100_000, WHOLE[1][:1])
TWICE = (100_000, [("b", 0, "copy", 0, 120_000)])  # as when the clocks of two processes disagree


def rows(*records):
    return [(record, case) for record in records for case in record["cases"]]


def test_stages_that_add_up_to_the_trip_have_no_problem():
    assert stage_chart.problems(rows(a_traced("shm", "graph", WHOLE))) == []


@pytest.mark.parametrize(("trip", "share"), [(LOST, "60.0%"), (TWICE, "120.0%")], ids=["lost", "too long"])
def test_stages_that_do_not_add_up_are_a_problem_by_the_name_of_the_row(trip, share):
    found = stage_chart.problems(rows(a_traced("shm", "graph", trip), a_traced("pickle", "graph", WHOLE)))
    assert found == [f"graph shm: the stages add up to {share} of the trip"]


def a_seen_case(change=lambda spans: spans):
    """A case of two edges, driver -> a -> driver, whose ends were all seen; `change` may spoil its spans."""
    spans = [
        ["a", 0, "stamp", "driver -> a", 0, 20, 30],
        ["a", 0, "make", "a -> driver", 0, 30, 40],
        ["driver", 0, "stamp", "a -> driver", 0, 90, 100],
        ["driver", 0, "wait", "a -> driver", 0, 0, 90],
    ]
    edges = [{"from": "driver", "to": "a", "bytes": 8}, {"from": "a", "to": "driver", "bytes": 8}]
    return {"spans": change(spans), "trips_us": [[0, 100]], "seconds": [1e-4], "edges": edges}


def test_a_trace_in_which_every_edge_was_seen_at_both_ends_has_no_defect():
    assert stages.defect(a_seen_case()) is None


@pytest.mark.parametrize("lost", [0, 1, 2], ids=["reader", "sender", "driver"])
def test_a_lost_end_of_an_edge_is_a_defect_though_the_drivers_waiting_covers_the_trip(lost):
    case = a_seen_case(lambda spans: spans[:lost] + spans[lost + 1 :])
    assert stages.defect(case).startswith("nobody saw ")


def test_an_edge_that_was_read_before_it_was_sent_is_a_defect():
    late = a_seen_case(
        lambda spans: [[*span[:5], span[5] + 80, span[6] + 80] if span[0] == "a" else span for span in spans]
    )
    assert "a -> driver in trip 0 was read before it was sent" in stages.defect(late)


def test_trips_that_stalled_are_left_out():
    whole = [(100, [("a", 0, "copy", 0, 100)])] * 3
    stalled = (90_000, [("a", 0, "wait", 0, 90_000)])
    assert microseconds(a_case(*whole, stalled)) == ({"copy": 100}, 1)


@pytest.fixture
def write(monkeypatch, tmp_path):
    """write(name, record) -> its file. Nothing in the repository can be drawn over."""
    monkeypatch.setattr(plot_results, "ROOT", tmp_path)

    def write(name, record):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(record))
        return str(path)

    return write


def test_a_trace_that_does_not_add_up_is_not_drawn(write, tmp_path, capsys):
    path = write("lost", a_traced("shm", "graph", LOST))
    assert plot_results.main([path, "--output-dir", str(tmp_path / "img")]) == 2
    said = capsys.readouterr().err
    assert "graph shm: the stages add up to 60.0% of the trip: trace it again" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "img" / "stages.png").exists()


def test_ladder_traces_and_microbenchmarks_are_drawn_in_one_call(write, tmp_path, capsys):
    paths = [
        write("traced", a_traced("shm", "graph", WHOLE, WHOLE)),
        write("traced-queue", a_traced("driver-queue", "store", WHOLE)),
        write("untraced", a_record("shm", [0.08, 0.08, 0.08], "graph")),
        write("queue", a_record("driver-queue", [0.5, 0.5])),
        write("chain", a_chain("shm", [0.001, 0.0011], "graph")),
    ]
    assert plot_results.main([*paths, "--output-dir", str(tmp_path / "img")]) == 0
    drawn = {path.name for path in (tmp_path / "img").iterdir()}
    assert {"benchmark_result.png", "stages.png"} <= drawn
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "img").iterdir())
    shown = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown.count("graph shm") == 1  # the traced run is no rung
    assert shown.count("chain-2") == 1


def test_traces_alone_leave_the_pictures_of_the_ladder_alone(write, tmp_path):
    path = write("traced", a_traced("shm", "graph", WHOLE))
    assert plot_results.main([path, "--output-dir", str(tmp_path / "img")]) == 0
    assert [path.name for path in (tmp_path / "img").iterdir()] == ["stages.png"]


def test_the_caption_says_how_well_the_stages_fit_and_what_tracing_cost():
    traced = rows(
        a_traced("shm", "graph", WHOLE), a_traced("pickle", "graph", (100_000, [("a", 0, "copy", 0, 97_000)]))
    )
    untraced = rows(a_record("shm", [0.08, 0.08, 0.08], "graph"))
    said = stage_chart.caption(traced, untraced)
    assert "The stages add up to 97.0% of the trip where they fit worst (graph pickle)." in said
    assert "graph shm 1.25." in said
    assert "another run: unknown." in stage_chart.caption(traced, [])


def test_spans_are_cut_to_the_trips_that_they_lie_in():
    found = {
        DRIVER: [(7, "submit", 9.9, 10.1), (7, "wait", 10.1, 11.5), (7, "make", 11.1, 11.2), (8, "copy", 5.0, 6.0)],
    }
    fields = trace.collect(found, [(10.0, 11.0), (11.3, 12.0)], FLOW)
    assert fields["trips_us"] == [[0, 1e6], [1.3e6, 2e6]]
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
    fields = trace.collect({DRIVER: [], "reward": reward, "policy": policy}, [(0.0, 1.0)], FLOW)
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
    fields = trace.collect({DRIVER: own, "policy": own, "reward": own}, [(0.0, 1.0)], FLOW)
    assert [(span[0], span[2], span[3]) for span in fields["spans"]] == [
        (DRIVER, "copy", "in one process"),
        (DRIVER, "stamp", "in one process"),
    ]


def test_a_transfer_of_a_role_is_of_what_comes_in_until_it_holds_it():
    policy = [(1, "transfer", 0.0, 0.1), (1, "stamp", 0.2, 0.3), (1, "transfer", 0.4, 0.5)]
    fields = trace.collect({DRIVER: [], "policy": policy}, [(0.0, 1.0)], FLOW)
    edges = [span[3] for span in fields["spans"] if span[2] == "transfer"]
    assert edges == ["driver -> policy", "policy ->"]


def test_what_the_driver_reads_is_of_the_edge_that_comes_back():
    driver = [
        (1, "submit", 0.0, 0.1), (1, "write", 0.01, 0.09), (1, "wait", 0.1, 0.6), (1, "deserialise", 0.3, 0.5),
        (1, "stamp", 0.7, 0.75), (1, "synchronise", 0.8, 0.9),
    ]  # fmt: skip
    fields = trace.collect({DRIVER: driver}, [(0.0, 1.0)], FLOW)
    assert {stage: edge for _, _, stage, edge, *_ in fields["spans"]} == {
        "submit": "driver -> policy",
        "write": "driver -> policy",
        "wait": "reward -> driver",
        "deserialise": "reward -> driver",
        "stamp": "reward -> driver",
        "synchronise": "reward -> driver",
    }


ITERATIONS = 20


@pytest.mark.parametrize(("script", "transport"), [(GRAPH, "shm"), (TORCH, "gloo")], ids=["graph", "torch"])
def test_a_traced_run_explains_its_trips(run_script, tmp_path, script, transport):
    file = tmp_path / "trace.json"
    flags = ("--transport", transport, "--iterations", str(ITERATIONS), "--warmup", "2", "--trace", str(file))
    finished = run_script(script, *flags, *KILOBYTES)
    assert (finished.code, finished.stderr) == (0, "")
    case = finished.case
    assert (case["status"], case["wrong_bytes"], len(case["seconds"])) == ("ok", 0, ITERATIONS)
    assert finished.record["arguments"]["trace"] is True  # and not where the file is

    lengths = [(end - start) * 1e-6 for start, end in case["trips_us"]]
    assert lengths == pytest.approx(case["seconds"], abs=1e-7)
    everybody = [DRIVER, *(role.name for role in FLOW.roles)]
    assert {(span[0], span[4]) for span in case["spans"]} == {
        (name, trip) for name in everybody for trip in range(ITERATIONS)
    }
    for *_, trip, start, end in case["spans"]:
        assert case["trips_us"][trip][0] <= start <= end <= case["trips_us"][trip][1]
    found, explained = stages.attribute(case)
    assert 0.95 <= explained <= 1.05
    assert {"stamp", "write" if script == GRAPH else "transfer"} <= set(found)
    noted = {(span[0], span[2]) for span in case["spans"]}
    assert noted >= {(name, "stamp") for name in everybody} | {(role.name, "make") for role in FLOW.roles}
    for process, _, stage, edge, *_ in case["spans"]:
        assert stage != "deserialise" or edge.endswith(f"-> {process}"), stage
    assert stage_chart.problems([(finished.record, case)]) == []
    assert report.label(finished.record, case).endswith(transport)

    events = json.loads(file.read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert names == everybody
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == len(case["spans"])
    assert {event["name"] for event in complete} <= set(stages.STAGES)
    assert all(set(event["args"]) == {"edge", "trip"} and event["dur"] >= 0 for event in complete)
    arrows = {phase: [event for event in events if event["ph"] == phase] for phase in "sf"}
    assert len(arrows["s"]) == len(arrows["f"]) == len(case["edges"]) * ITERATIONS
    for start, finish in zip(arrows["s"], arrows["f"], strict=True):
        assert (start["id"], start["name"]) == (finish["id"], finish["name"])
        assert start["ts"] <= finish["ts"]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--placement", "spread"], "leave --placement spread out"),
        (["--address", "127.0.0.1:6379", "--placement", "pack"], "leave --address out"),
        (["--address", "127.0.0.1:6379"], "argument --trace"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_trace_of_several_clocks_is_refused(tmp_path, flags, reason):
    with pytest.raises(command_line.UsageError, match=reason):
        command_line.parse_arguments("", ("shm",), "shm", ["--trace", str(tmp_path / "trace.json"), *flags])
