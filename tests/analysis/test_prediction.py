"""Test which configurations are possible for a workload, and the times that are measured or interpolated for it."""

import re

import pytest
from conftest import ROOT
from made_records import make_record, make_run, make_sweep, write_record

import choose_transport
from common.analysis.prediction import Request, rank, rule_out
from common.analysis.result import Result
from common.errors import UsageError
from common.records.environment import describe_environment
from common.transports.catalogue import CONFIGURATIONS

SIZES = [2**power for power in range(13, 30, 4)]
HERE = describe_environment()


def sweep(runtime, transport, start, seconds_per_byte, **changes):
    """Return the records of a sweep over payloads in which an iteration takes a time per edge and per byte."""
    points = {size: make_run([5 * start + seconds_per_byte * size] * 3) for size in SIZES}
    return make_sweep(transport, "payload", points, runtime=runtime, **changes)


def results_of(*records):
    return [Result([record]) for record in records]


@pytest.fixture
def results():
    """Fast for small messages, or for large ones; one gives views; one has a single size."""
    return results_of(
        *sweep("torch", "gloo", 1e-4, 3e-10), *sweep("graph", "shm", 5e-4, 1e-10), *sweep("graph", "mapped", 5e-4, 0.0),
        make_record("refs", [0.7]),
    )  # fmt: skip


def make_request(machines=None, **workload):
    result = Result([make_record("refs", [1.0], **workload)])
    return Request(result.workload, result.flow, **machines or {})


def rank_names(results, machines=None, **workload):
    """Return the choices by name, and the reason of each other configuration."""
    choices, others = rank(make_request(machines, **workload), results)
    reasons = {name: reason for reason, names in others.items() for name in names}
    return {choice.name: choice for choice in choices}, reasons


def test_the_size_decides_which_is_the_fastest(results):
    assert list(rank_names(results, payload=10**5)[0]) == ["torch gloo", "graph shm"]
    assert list(rank_names(results, payload=10**8)[0]) == ["graph shm", "torch gloo"]
    assert next(iter(rank_names(results, {"copies": False}, payload=10**8)[0])) == "graph mapped"


def test_times_between_measured_points_are_interpolated_in_logarithms(results):
    ends = [rank_names(results, payload=size)[0]["graph shm"] for size in SIZES[1:3]]
    between = rank_names(results, payload=2**19)[0]["graph shm"]
    assert between.seconds == pytest.approx((ends[0].seconds * ends[1].seconds) ** 0.5, rel=1e-3)
    assert ends[0].result and not between.result


@pytest.mark.parametrize(
    ("name", "workload", "words"),
    [
        ("graph shm", {"payload": 2**30}, "measured only from 7.992 KiB to 512 MiB"),
        ("graph shm", {"flow": "chain", "actors": 2}, "no flow of this shape"),
        ("store bytes", {}, "no record"),
        ("graph shm", {"flow": "grpo", "batch_size": 8}, "additional tensors: at most 0"),
        ("graph shm", {"message": "packed", "batch_size": 8}, "only messages of fields are interpolated"),
        ("graph shm", {"message": "fields", "as_sent": True, "batch_size": 8}, "only messages of fields"),
    ],
)  # fmt: skip
def test_outside_of_the_measured_points_there_is_a_reason_instead_of_a_time(results, name, workload, words):
    assert words in rank_names(results, **workload)[1][name]


def test_additional_tensors_have_the_measured_cost(results):
    cut = {count: [3e-3 + 5 * (count - 1) * 2e-6] for count in (1, 8, 64)}
    results += results_of(*make_sweep("shm", "fields", cut, runtime="graph", payload=2**20))
    flat, some = (rank_names(results, payload=2**20, **cut)[0]["graph shm"] for cut in ({}, {"fields": 32}))
    assert some.seconds - flat.seconds == pytest.approx(155 * 2e-6)
    many = rank_names(results, flow="grpo", batch_size=64)[1]["graph shm"]
    assert "additional tensors: at most 315" in many


def test_the_newest_measurement_of_exactly_this_workload_counts(results):
    for seconds, day in ((0.9, 2), (0.2, 1)):
        run = make_run([seconds], started_at=f"2026-01-0{day}T00:00:00+00:00")
        results += results_of(make_record("shm", run, runtime="graph"))
    timed, _ = rank_names(results)
    assert timed["graph shm"].seconds == timed["graph shm"].result.typical_seconds == pytest.approx(0.9)
    assert not timed["torch gloo"].result


def test_a_message_of_fields_can_be_packed(results):
    fields = {"flow": "grpo", "batch_size": 4}
    results += results_of(make_record("shm", [0.3], runtime="graph", **fields),
                          make_record("shm", [0.1], runtime="graph", message="packed", **fields))  # fmt: skip
    assert list(rank_names(results, **fields)[0]) == ["graph shm --message packed", "graph shm"]
    assert make_request().forms.keys() == {""}


def test_weights_can_be_sent_in_messages_of_any_size_and_form():
    weights = {"flow": "weights", "model": "gpt2", "scale": 0.01}
    results = results_of(
        make_record("broadcast", [0.3], runtime="torch", **weights),
        make_record("broadcast", [0.1], runtime="torch", bucket_size=2**20, message="packed", **weights),
        make_record("refs", [0.05], **weights | {"scale": 0.02}),
    )  # fmt: skip
    names, _ = rank_names(results, **weights)
    assert list(names) == ["torch broadcast --message packed --bucket-size 1MiB", "torch broadcast"]


def test_other_measurements_tell_nothing(results):
    before = {name: choice.seconds for name, choice in rank_names(results)[0].items()}
    changes = ({"traced": True}, {"device": "cuda"}, {"flags": {"inject": "policy:1:delay=1s"}},
               {"layout": {"placement": "spread"}})  # fmt: skip
    results += results_of(*(make_record("refs", [0.001], **change) for change in changes))
    results += results_of(
        *(make_record("refs", make_run([0.001], **run)) for run in ({"pair": "x"}, {"status": "failed"}))
    )
    assert {name: choice.seconds for name, choice in rank_names(results)[0].items()} == before
    layout = {"placement": "spread", "existing_cluster": True, "place": "reward=1"}
    run = make_run([0.9], nodes={"driver": 0, "reward": 1})
    results += results_of(make_record("refs", run, layout=layout))
    timed, reasons = rank_names(results, {"nodes": 2})
    assert list(timed) == ["store refs"] and reasons["graph shm"] == "not measured, no record of 2 nodes"


@pytest.mark.parametrize(
    ("name", "machines", "words"),
    [
        ("torch memcpy", {}, "not a transport"),
        ("torch mapped --check-every 100", {"copies": False}, "not a transport"),
        ("graph mapped", {}, "readers get a view"), ("graph mapped", {"copies": False}, None),
        ("graph mapped --copy-out", {"nodes": 2}, "one machine"), ("torch gloo", {"nodes": 2}, None),
        ("torch multiprocessing --copy-out", {"nodes": 2}, "one machine"), ("graph shm", {"nodes": 2}, None),
        ("graph nccl", {"gpus": 2}, "too few GPUs"), ("graph nccl", {"gpus": 3}, None),
        ("rdt cuda-ipc", {"copies": False}, "too few GPUs"), ("rdt gloo", {"gpus": 1}, "host memory"),
        ("torch gloo", {"on_ray": True}, "without Ray"), ("graph shm", {"on_ray": True}, None),
    ],
)  # fmt: skip
def test_impossible_configurations_are_ruled_out_with_the_reason(name, machines, words):
    variant = CONFIGURATIONS[name]
    reason = rule_out(variant.transport, variant.flags, make_request(machines))
    assert reason is None if words is None else words in reason


def write(folder, records):
    folder.mkdir()
    for index, record in enumerate(records):
        write_record(folder / f"{index}.json", record)
    return str(folder)


def test_the_answer_has_what_was_measured_then_what_is_interpolated_then_the_reasons(tmp_path, capsys):
    sweeps = [
        *sweep("torch", "gloo", 1e-4, 3e-10, environment=HERE),
        *sweep("graph", "shm", 5e-4, 1e-10, environment=HERE),
    ]
    folder = write(tmp_path / "known", sweeps)
    (tmp_path / "known" / "broken.json").write_text("{")
    argv = ["--payload", "100MB", "--records", folder]
    assert choose_transport.main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    workload = "online-dpo (95.37 MiB per iteration, readers own a copy)"
    assert lines[0] == f"Perhaps graph shm, for {workload}: nothing was measured with exactly this flow."
    assert lines[1].startswith("graph shm needs: a compiled graph; a core for each of its actors")
    assert lines[3].startswith("Interpolated between measured sizes")
    assert [line.split()[:2] for line in lines[5:7]] == [["graph", "shm"], ["torch", "gloo"]]
    text = " ".join(" ".join(lines).split())
    assert "not measured, no record: store payload-queue" in text
    assert "ruled out, not a transport of its own: torch memcpy" in text
    own, times = {"environment": HERE, "payload": 10**8}, ([1.0], [1.1], [1.2])
    equal = [make_record(transport, *times, **own) for transport in ("refs", "bytes")]
    argv.append(write(tmp_path / "own", [*equal, make_record("numpy", [0.1], **own)]))
    assert choose_transport.main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    start = "Use store refs or store bytes, whose 95 % intervals overlap: the fastest of 2 that were measured with "
    assert lines[0] == f"{start}{workload}."
    assert lines[3] == "Measured with exactly this flow:" and re.split("  +", lines[5])[2:] == [
        "1", "874.6 to 1,376", "3", "0", "2026-01-01",
    ]  # fmt: skip
    for machines in ("--gpus", "--nodes"):
        assert choose_transport.main([machines, "2", "--records", folder]) == 1
        assert capsys.readouterr().out.startswith("No record has a time for online-dpo")


def test_another_machine_answers_only_with_a_flag_however_many_own_records_there_are(tmp_path, capsys):
    other = write(tmp_path / "other", sweep("graph", "shm", 5e-4, 1e-10))
    assert choose_transport.main(["--records", other]) == 1
    assert "--any-machine" in capsys.readouterr().out
    own = write(
        tmp_path / "own", [make_record("refs", [1.0], environment=HERE, batch_size=size) for size in range(1, 9)]
    )
    for folders in ([other], [other, own]):
        assert choose_transport.main(["--payload", "100MB", "--any-machine", "--records", *folders]) == 0
        text = capsys.readouterr().out
        assert text.startswith("The records are of another machine: 2 cores of Test CPU")
        assert "Perhaps graph shm" in text
    assert choose_transport.main(["--batch-size", "1", "--any-machine", "--records", other, own]) == 0
    assert capsys.readouterr().out.startswith("Use store refs")


def test_records_of_experiments_with_settings_are_not_used(tmp_path, capsys):
    folder = write(tmp_path / "evidence", [make_record("refs", [1.0], environment=HERE)])
    assert choose_transport.main(["--records", folder]) == 1


def test_the_command_of_readme_has_an_answer(capsys):
    command = re.search(r"choose_transport\.py (--.*)", (ROOT / "README.md").read_text())[1]
    assert choose_transport.main(command.split()) == 0
    assert re.search("^(Use|Perhaps) (graph|torch) mapped", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("flag", ["--prompt-len 8", "--flow gpro", "--reads none", "--sweep payload=1MiB,2MiB"])
def test_what_is_no_workload_is_rejected(flag):
    with pytest.raises(UsageError, match=r"is a size of|unknown flow|invalid choice|give one size"):
        choose_transport.main(flag.split())
