"""The answer: from records and fits of one machine, for the flow that is asked about, and what it does not know."""

import pytest
from made_records import a_record, a_run, a_sweep, written
from msgspec.structs import replace

import choose_transport
from common.analysis.machine import KEYS
from common.analysis.results import results_of
from common.cost.choice import Wanted, check, choices, reason, ruled_out
from common.cost.costs import costs_of
from common.errors import RecordError, UsageError
from common.flow.catalogue import build_flow
from common.record.environment import describe_environment
from common.record.rows import LADDER
from common.record.schema import Edge

SIZES = [2**power for power in range(13, 30, 4)]
HERE = {key: value for key, value in describe_environment().items() if key in KEYS}


def swept(runtime, transport, message, byte, environment=None, **asked):
    """A sweep of payloads by a made cost: seconds a message, and a byte."""
    flow = asked.get("flow", "online-dpo")
    trips = {n: a_trip_run(build_flow(flow, {"payload": n}), message, byte) for n in SIZES}
    return a_sweep(transport, "payload", trips, runtime=runtime, environment=environment or HERE, **asked)


def a_trip_run(flow, message, byte):
    return a_run([message * len(flow.edges) + byte * flow.bytes_per_trip] * 3)


@pytest.fixture
def records():
    """Quick for small messages, or for large ones; one that maps; one of a single size."""
    return [
        swept("torch", "gloo", 1e-4, 3e-10),
        swept("graph", "shm", 5e-4, 1e-10),
        swept("graph", "mapped", 5e-4, 0.0),
        a_record("refs", [0.7], environment=HERE),
    ]


def ranked(records, **wanted):
    results = [result for record in records for result in results_of([record])]
    costs = costs_of(results_of(record for record in records if record.sweep))
    flow = wanted.pop("flow", None) or build_flow("online-dpo", wanted.pop("sizes", {}))
    return [(choice.row.name, choice) for choice in choices(Wanted(flow, **wanted), results, costs) if choice.seconds]


def test_the_size_decides_which_is_the_best(records):
    assert [name for name, _ in ranked(records, sizes={"payload": 10**5})] == ["torch gloo", "graph shm"]
    assert [name for name, _ in ranked(records, sizes={"payload": 10**8})] == ["graph shm", "torch gloo"]


def test_views_are_for_readers_that_may_hold_them(records):
    large = {"payload": 10**8}
    assert next(name for name, _ in ranked(records, sizes=large, own_bytes=False)) == "graph mapped"
    assert "graph mapped" not in dict(ranked(records, sizes=large))


def test_what_was_measured_counts_more_than_what_is_expected_and_the_newest_most(records):
    at = {"environment": HERE, "runtime": "graph"}
    records += [
        a_record("shm", a_run([0.9], started_at="2026-01-02T00:00:00+00:00"), **at),
        a_record("shm", a_run([0.2], started_at="2026-01-01T00:00:00+00:00"), **at),
    ]
    found = dict(ranked(records))
    assert found["graph shm"].seconds == 0.9
    assert found["graph shm"].predicted.value == pytest.approx(5 * 5e-4 + 448 * 2**20 * 1e-10, rel=0.01)
    assert (found["store refs"].seconds, found["store refs"].predicted) == (0.7, None)
    assert found["torch gloo"].measured is None


def test_another_flow_is_foretold_by_its_messages_tensors_and_bytes(records):
    found = dict(ranked(records, flow=build_flow("chain", {"roles": 2, "payload_bytes": 10**6})))
    gloo = found["torch gloo"]
    assert gloo.predicted.value == pytest.approx(3 * 1e-4 + 3e6 * 3e-10, rel=0.01)
    assert gloo.beyond == ["messages"]
    assert dict(ranked(records, flow=build_flow("grpo", {"rows": 8})))["torch gloo"].beyond == ["tensors"]


@pytest.mark.parametrize(
    ("row", "wanted", "why"),
    [
        ("torch memcpy", {}, "no transport of its own"),
        ("graph mapped --episode 100", {"own_bytes": False}, "no transport of its own"),
        ("graph mapped", {}, "views of another's memory"),
        ("graph mapped", {"own_bytes": False}, None),
        ("graph mapped --copy-out", {}, None),
        ("graph mapped --copy-out", {"nodes": 2}, "one machine's memory"),
        ("torch multiprocessing --copy-out", {"nodes": 2}, "one machine's memory"),
        ("rdt gloo", {"nodes": 2}, None),
        ("graph nccl", {"gpus": 2}, "too few GPUs"),
        ("graph nccl", {"gpus": 3}, None),
        ("rdt cuda-ipc", {"own_bytes": False}, "too few GPUs"),
        ("rdt gloo", {"gpus": 1}, "host's memory"),
        ("torch gloo", {"nodes": 2}, "start on one machine"),
        ("graph shm", {"nodes": 2}, None),
    ],
)
def test_rows_that_cannot_be_taken_are_ruled_out_with_the_reason(row, wanted, why):
    found = ruled_out(LADDER[row], Wanted(build_flow("online-dpo", {}), **wanted))
    assert (why in found) if why else (found is None)


def test_of_several_nodes_only_records_of_several_nodes_tell_anything(records):
    assert ranked(records, nodes=2) == []
    records.append(a_record("refs", [0.8], environment=HERE, layout={"placement": "spread"}))  # on one machine
    assert ranked(records, nodes=2) == []
    records.append(a_record("refs", [0.9], environment=HERE, layout={"placement": "spread", "address": True}))
    assert [(name, choice.seconds) for name, choice in ranked(records, nodes=2)] == [("store refs", 0.9)]
    assert dict(ranked(records))["store refs"].seconds == 0.7


def test_rows_that_alternated_tell_nothing_of_rows_by_themselves(records):
    before = [(name, choice.seconds) for name, choice in ranked(records)]
    records.append(a_record("refs", a_run([0.001], alternation="x"), environment=HERE))
    assert [(name, choice.seconds) for name, choice in ranked(records)] == before


def test_a_flow_of_a_file_is_known_again_by_who_read_how_much(records, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def mine(models, query):\n    return models.reward(models.policy(query))\n")
    flow = build_flow(f"{path}:mine", {})
    edges = [Edge(edge.source, edge.reader, edge.bytes) for edge in flow.edges]
    record = replace(a_record("refs", [0.3], environment=HERE), edges=edges)
    record.row.flow = "mine.py:mine"
    assert dict(ranked([*records, record], flow=flow))["store refs"].seconds == 0.3
    record.edges[0].bytes += 1
    assert "store refs" not in dict(ranked([*records, record], flow=flow))


def test_why_one_is_slower_is_what_the_rungs_between_them_do():
    assert reason(LADDER["store ref-queue"], LADDER["store refs"]) == LADDER["store refs"].because
    both = f"{LADDER['store refs'].because}; {LADDER['store bytes'].because}"
    assert reason(LADDER["store ref-queue"], LADDER["store bytes"]) == both
    assert reason(LADDER["torch gloo"], LADDER["graph shm"]) is None
    assert "nothing is copied out" in reason(LADDER["graph mapped --copy-out"], LADDER["graph mapped"])


def folder(tmp_path, records, name="records"):
    (tmp_path / name).mkdir()
    for index, record in enumerate(records):
        written(tmp_path / name / f"{index}.json", record)
    return tmp_path / name


def test_the_answer_comes_first_with_its_needs_and_what_is_not_known(tmp_path, capsys, records):
    where = folder(tmp_path, [*records, a_record("shm", [1.0], runtime="graph", environment={"cpu_model": "other"})])
    (where / "broken.json").write_text("{")
    assert choose_transport.main(["--payload", "100MB", "--records", str(where)]) == 0
    text = capsys.readouterr().out
    first, second, *_ = text.splitlines()
    asked = "online-dpo (100 MB a trip; readers end with bytes of their own)"
    assert first.startswith(f"Take `graph shm` for {asked}: 12.5 ms expected (95 %: 12.5 to 12.5).")
    assert second.startswith("  1. graph shm: ")
    flat = " ".join(text.split())
    assert "needs a compiled graph, buffers sized beforehand; breaks: Ray is winding" in flat
    assert "2. torch gloo: 30.5 ms expected" in flat and "2.44 times" in flat
    assert "not known, no record: store payload-queue" in flat
    assert "ruled out, no transport of its own: torch memcpy" in flat
    assert "1 files are no records that can be read: left out" in flat
    assert "1 records of other machines: left out" in flat


def test_what_is_as_fast_is_named_and_an_interval_that_tells_nothing_is_none(tmp_path, capsys):
    noisy = swept("graph", "zero-copy", 5e-2, 1e-8, flags={"copy_out": True})
    for run, factor in zip(noisy.runs, (0.2, 5, 0.2, 5, 0.2), strict=True):
        run.seconds = [second * factor for second in run.seconds]
    where = folder(tmp_path, [swept("graph", "shm", 5e-4, 1e-10), swept("torch", "gloo", 5e-4, 1.05e-10), noisy])
    assert choose_transport.main(["--payload", "1GB", "--records", str(where)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("Take `graph shm`") and "Within 10 % of it: `torch gloo`. 1. graph shm" in text
    assert "its samples lie too far apart" in text


def test_records_of_another_machine_are_refused_unless_they_are_asked_for(tmp_path, capsys, records):
    where = folder(tmp_path, [swept("graph", "shm", 5e-4, 1e-10, environment=HERE | {"cpu_model": "another CPU"})])
    with pytest.raises(RecordError, match=r"none of 1 records is of this machine.*--any-machine") as error:
        choose_transport.main(["--records", str(where)])
    assert "\n" not in str(error.value)
    assert choose_transport.main(["--records", str(where), "--any-machine"]) == 0
    assert "of another machine than this: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--transport", "shm"], "--transport does not say what is sent: leave it out"),
        (["--placement", "spread"], "give --nodes 2"),
        (["--in-flight", "2"], "--in-flight does not say what is sent"),
        (["--rows", "8"], "--rows is for ppo"),
        (["--flow", "gpro"], "there is no flow gpro"),
        (["--nodes", "0"], "give at least 1"),
        (["--reads", "none"], "invalid choice"),
        (["--gpus", "2"], "no record tells anything of such rows"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_answered_is_refused_in_one_line(tmp_path, records, flags, reason):
    with pytest.raises(UsageError) as error:
        choose_transport.main([*flags, "--records", str(folder(tmp_path, records))])
    assert reason in str(error.value) and "\n" not in str(error.value)


def test_a_folder_without_records_or_none_at_all_is_told(tmp_path):
    with pytest.raises(RecordError, match="holds no record"):
        choose_transport.main(["--records", str(tmp_path)])
    with pytest.raises(RecordError, match="does not exist"):
        choose_transport.main(["--records", str(tmp_path / "nowhere")])


def chains(gloo_message=1e-4):
    """Another flow, measured as the fits say, but for what is asked."""
    cost = {"flow": "chain", "roles": 2}
    return [swept("torch", "gloo", gloo_message, 3e-10, **cost), swept("graph", "shm", 5e-4, 1e-10, **cost)]


def test_what_is_foretold_is_checked_with_flows_that_the_fits_do_not_know(tmp_path, capsys, records):
    known, other = folder(tmp_path, records), folder(tmp_path, chains(), "held-out")
    assert choose_transport.main(["--records", str(known), "--check", str(other)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"{2 * len(SIZES)} of {2 * len(SIZES)} right: the best, or within 10 % of it"
    assert sum("right" in line for line in lines[1:-1]) == 2 * len(SIZES)


def test_a_choice_that_is_worse_is_told_and_ends_with_1(tmp_path, capsys, records):
    known, other = folder(tmp_path, records), folder(tmp_path, chains(gloo_message=5e-3), "held-out")
    assert choose_transport.main(["--records", str(known), "--check", str(other)]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_a_check_never_looks_at_the_times_of_the_flow_itself(records):
    (small, *_) = check(results_of(chains(gloo_message=5e-3)), costs_of(results_of(records)))
    assert (small.foretold, small.best, small.right) == ("torch gloo", "graph shm", False)
    assert small.times == pytest.approx(5e-3 / 5e-4, rel=0.05)


def test_it_imports_neither_ray_nor_torch():
    import subprocess
    import sys

    code = "import sys, choose_transport; sys.exit(bool({'ray', 'torch', 'matplotlib'} & set(sys.modules)))"
    where = choose_transport.RESULTS.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=where, timeout=60).returncode == 0
