# SPDX-License-Identifier: Apache-2.0
"""Test the messages, the verification and the record of the two scripts, without Ray."""

import argparse
import json
import os
import shutil
import tempfile
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from common import RecordError, SuiteError, record_files
from common import record as records
from common.sizes import EDGES, message_bytes
from common.timing import ScriptEndpoint, count_iterations, time_group
from dataflow.analysis.result import Result
from dataflow.records import files

SIZES = message_bytes(4, 256)


@pytest.fixture(scope="module")
def endpoints():
    threads = torch.get_num_threads()
    yield {
        name: ScriptEndpoint(name, SIZES) for name in ("driver", "policy", "reference", "reward")
    }
    torch.set_num_threads(threads)


def send(endpoints, number):
    """Move the messages of an iteration by calls, each as a copy."""
    query = endpoints["driver"].message(number).clone()
    policy = endpoints["policy"].message(endpoints["policy"].receive(query)).clone()
    reference = (
        endpoints["reference"].message(endpoints["reference"].receive(policy.clone())).clone()
    )
    reward = endpoints["reward"].message(endpoints["reward"].receive(policy, reference)).clone()
    return endpoints["driver"].receive(reward)


def test_every_reader_finds_the_messages_of_every_iteration_right(endpoints):
    first, second, third = (tensor[1:].view(torch.uint8) for tensor in endpoints["policy"].pool)
    assert all((a != b).all() for a, b in ((first, second), (first, third), (second, third)))
    for number in range(1, 9):
        assert send(endpoints, number) == number
        for endpoint in endpoints.values():
            endpoint.verify(number)


@pytest.mark.parametrize(("sender", "reader"), EDGES)
def test_a_single_wrong_byte_is_found_and_its_edge_is_named(endpoints, sender, reader):
    send(endpoints, 4)
    endpoint = endpoints[reader]
    tensor, _ = endpoint.held[[*endpoint.expected].index(sender)]
    tensor.view(torch.uint8)[-1] ^= 1
    with pytest.raises(
        SuiteError, match=rf"^{sender} -> {reader}: 1 bytes of message 4 differ .* number 4$"
    ):
        endpoint.verify(4)


def test_the_message_of_another_iteration_is_found_also_if_the_right_one_arrives_later(endpoints):
    send(endpoints, 5)
    with pytest.raises(SuiteError, match=r"driver -> policy: .* of message 6 differ .* number 5"):
        endpoints["policy"].verify(6)
    endpoints["policy"].held[0][0].copy_(endpoints["driver"].message(6))
    with pytest.raises(
        SuiteError, match=r"driver -> policy: 0 bytes of message 6 differ .* number 5"
    ):
        endpoints["policy"].verify(6)


@pytest.mark.parametrize(
    "data", [torch.zeros(3, dtype=torch.int64), RuntimeError("lost"), None], ids=str
)
def test_anything_but_a_tensor_of_the_right_size_is_an_error(endpoints, data):
    with pytest.raises(SuiteError, match=rf"driver -> policy: expected {SIZES['driver']} bytes"):
        endpoints["policy"].receive(data)


def test_messages_are_held_on_the_device_of_their_reader(endpoints, monkeypatch):
    """The query of a compiled graph can arrive in host memory, and the clock has its copy to the GPU."""
    moved, move = [], torch.Tensor.to
    reader = ScriptEndpoint("policy", SIZES)
    reader.device = "cuda"

    def note_move(tensor, device):
        moved.append((tensor.nbytes, device))
        return move(tensor, "cpu").clone()

    monkeypatch.setattr(torch.Tensor, "to", note_move)
    query = endpoints["driver"].message(7)
    assert reader.receive(query) == 7
    assert moved == [(SIZES["driver"], "cuda")]
    assert reader.held[0].tensor is not query


def test_a_direct_message_between_models_that_arrives_on_a_cpu_fails_the_run(
    endpoints, monkeypatch
):
    query, policy = endpoints["driver"].message(1), endpoints["policy"].message(1)
    assert (
        ScriptEndpoint("policy", SIZES, is_direct=True).receive(query) == 1
    )  # the driver is no rank
    assert (
        ScriptEndpoint("driver", SIZES, is_direct=True).receive(endpoints["reward"].message(1)) == 1
    )
    reader = ScriptEndpoint("reference", SIZES, is_direct=True)
    with pytest.raises(SuiteError, match=r"^policy -> reference: .* arrived on the CPU"):
        reader.receive(policy)
    monkeypatch.setattr(torch.Tensor, "device", torch.device("cuda"))
    assert reader.receive(policy) == 1


@pytest.fixture
def flags(tmp_path, monkeypatch):
    monkeypatch.setenv("DATA_FLOW_LOCK", str(tmp_path))
    values = {
        "batch_size": 4,
        "prompt_seq_len": 256,
        "sizes": SIZES,
        "address": None,
        "runtime": "store",
    }
    more = {"transport": "refs", "device": "cpu", "warmup": 2, "output": tmp_path / "record.json"}
    return argparse.Namespace(**values, **more)


def test_a_record_has_every_sample_in_its_place(flags):
    with records.recorded_run(flags) as run:
        for number in count_iterations(warmup=2, iterations=3):
            readings = iter([10.0, 10.0 + number])
            time_group([number], 1, str, str, run.save_times, readings.__next__)
    (run,) = record_files.load(flags.output).runs
    assert (run.status, run.first_seconds, run.warmup_seconds, run.seconds) == (
        "ok",
        1,
        [2, 3],
        [4, 5, 6],
    )
    record = json.loads(flags.output.read_text())
    assert record["workload"]["edges"][0] == {
        "from": "driver",
        "to": "policy",
        "bytes": SIZES["driver"],
    }
    assert (
        record["configuration"]["transport"] == "refs"
        and record["environments"]["0"]["versions"]["ray"]
    )


def test_a_disturbed_run_of_a_script_counts_beside_those_of_the_suite_and_is_counted(flags):
    """As one of a call of the suite with one configuration, because a script is not repeated."""
    with records.recorded_run(flags) as run:
        run.seconds = [0.5]
        run.other_cores = 1.0
    result = Result((files.load(flags.output),))
    assert (result.status, result.run_seconds, result.quiet_count) == ("ok", [0.5], 0)


def test_the_samples_of_a_record_whose_path_became_a_folder_are_saved_elsewhere(
    flags, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(records.tempfile, "gettempdir", lambda: str(tmp_path))
    path = flags.output
    with records.recorded_run(flags) as run:
        run.seconds.append(0.5)
        path.mkdir()
    assert flags.output.parent == tmp_path and str(flags.output) in capsys.readouterr().err
    assert record_files.load(flags.output).runs[0].seconds == [0.5]


def test_a_script_waits_while_another_one_or_the_suite_measures(flags, capsys, monkeypatch):
    with records.only_measurement():
        monkeypatch.setattr(
            records.fcntl, "flock", Mock(side_effect=[BlockingIOError, KeyboardInterrupt])
        )
        with pytest.raises(SystemExit) as ended, records.recorded_run(flags):
            pass
    printed = capsys.readouterr()
    assert printed.out.startswith("waiting until another measurement")
    assert printed.err == "error: interrupted after 0 timed iterations\n"
    assert ended.value.code == 130


def test_the_record_of_an_unexpected_error_has_its_real_reason(flags):
    with pytest.raises(ZeroDivisionError), records.recorded_run(flags) as run:
        run.seconds.append(0.5)
        raise ZeroDivisionError("no iteration")
    (run,) = record_files.load(flags.output).runs
    assert (run.status, run.reason) == ("failed", "ZeroDivisionError: no iteration")
    assert run.seconds == [0.5]


def test_a_tensor_in_memory_that_another_process_could_write_is_a_view(endpoints):
    send(endpoints, 3)
    assert endpoints["reward"].owns_messages()
    policy, reference = endpoints["reward"].held
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.write(policy.tensor.numpy().tobytes())
        file.flush()
        mapped = np.memmap(file, np.int64, "r+")
        view = policy._replace(tensor=torch.from_numpy(mapped)[5:])
        endpoints["reward"].held = [reference, view]
        assert not endpoints["reward"].owns_messages()


def test_the_newest_records_are_found_beside_files_that_are_none(flags, tmp_path):
    results = tmp_path / "results"
    assert record_files.find_newest(results) == []
    flags.output = results / "run-1" / "refs.json"
    flags.output.parent.mkdir(parents=True)
    with records.recorded_run(flags) as run:
        run.seconds.append(0.5)
    profile = results / "run-profile-20261126T203046"
    for name in ("profile.json", "trace.json"):
        later = profile / name
        later.parent.mkdir(exist_ok=True)
        later.write_text('{"steps": 3}')
        os.utime(later, (2**31, 2**31))
    assert record_files.find_newest(results) == [results / "run-1"]
    single = results / "refs.json"
    shutil.copy(flags.output, single)
    (results / "advice.json").write_text("[]")
    assert record_files.find_newest(results) == [single]


@pytest.mark.parametrize("text", ["", "{}", "[" * 10**5, '{"schema_version": 6}', "[1]", "\x00"])
def test_what_is_no_record_is_one_error(tmp_path, text):
    (tmp_path / "record.json").write_text(text)
    for name in ("record.json", "missing.json"):
        with pytest.raises(RecordError, match=r"cannot be read as a record .*: leave it out$"):
            record_files.load(tmp_path / name)
