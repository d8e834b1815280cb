# SPDX-License-Identifier: Apache-2.0
"""Run flows over other systems, as a user starts them, and compare every byte. `make peers` installs the systems."""

import http.client
import socket
import threading
import time
from collections import Counter
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from conftest import KILOBYTES, reject_options, require_nixl
from in_process import LocalEndpoints, on_edge

from dataflow.errors import RunFailed
from dataflow.flows.catalogue import build_flow
from dataflow.flows.flow import DRIVER
from dataflow.studies.external_systems.agentic import ENCODINGS, FilePeer, HttpPeer
from dataflow.studies.external_systems.one_sided import NixlPeer
from dataflow.trace import spans

PPO = ("--flow", "ppo", "--batch-size", "2")
PEERS = [
    ("peers zmq-ipc", "zmq", *PPO, "--in-flight", "3"),
    ("peers zmq-tcp", "zmq", *PPO, "--message", "packed"),
    ("peers arrow-flight", "pyarrow", *PPO, "--in-flight", "3"),
    ("peers http-json", "aiohttp", *PPO, "--in-flight", "3"),
    ("peers http-base64", "aiohttp", *PPO),
    ("peers http-msgpack", "aiohttp", *PPO, "--in-flight", "3"),
    ("peers http-raw", "aiohttp", *PPO, "--message", "packed"),
    ("peers iceoryx2", "iceoryx2", *PPO, "--in-flight", "3", "--copy-out"),
    ("peers nixl-read", "nixl", *PPO, "--in-flight", "3", "--message", "packed"),
    (
        "peers nixl-write",
        "nixl",
        "--flow",
        "a, b -> c: x uint8 13B, y 3 x int64 16B; c -> d: 64kB",
        "--in-flight",
        "2",
    ),
    (
        "store transfer-queue",
        "transfer_queue",
        "--flow",
        "grpo",
        "--batch-size",
        "4",
        "--message",
        "tensordict",
    ),
]


@pytest.mark.optional
@pytest.mark.parametrize("names", PEERS, ids=lambda names: names[0])
def test_fields_arrive_over_other_systems(measure, names):
    configuration, module, *flags = names
    if module == "nixl":  # which make peers does not install
        require_nixl()
    pytest.importorskip(module, reason=f"{module}: it is not installed: make peers")
    (run,) = measure(configuration, *flags, "--iterations", "4", "--warmup", "1").runs
    assert run.readers_own_a_copy


@pytest.mark.slow  # a test below traces both within a process
@pytest.mark.optional
@pytest.mark.parametrize("transport", ["nixl-read", "nixl-write"])
def test_a_trace_shows_who_copies_by_nixl(measure, transport):
    """A reader reads each of its messages, or a sender writes to each of its readers."""
    require_nixl()
    record = measure(
        f"peers {transport}", *KILOBYTES, "--iterations", "4", "--warmup", "1", "--trace"
    )
    (run,) = record.runs
    copies = Counter((span[0], span[3]) for span in run.spans if span[2] == "copy")
    side = "reader" if transport == "nixl-read" else "source"
    of_flow = Counter(getattr(edge, side) for edge in record.workload.edges)
    places = product(of_flow, range(4))  # worker and iteration
    assert copies == {place: of_flow[place[0]] for place in places}


def make_nixl_peers(transport, folder, message):
    """Return the peers of the driver and of an actor; each waits for the addresses of the other one."""
    flow = build_flow("chain", {"message_bytes": 13, "actors": 1})
    options = SimpleNamespace(in_flight=1)
    plan = SimpleNamespace(
        transport=SimpleNamespace(name=transport), options=options, run_folder=folder
    )
    peers = {}

    def make(name):
        endpoint = SimpleNamespace(
            name=name,
            plan=plan,
            sent_flow=flow,
            device=torch.device("cpu"),
            outboxes={name: SimpleNamespace(buffers=[], pool=[message])},
        )
        peers[name] = NixlPeer(endpoint)

    threads = [threading.Thread(target=make, args=(name,)) for name in (DRIVER, "actor-1")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return peers[DRIVER], peers["actor-1"]


@pytest.mark.parametrize("transport", ["nixl-read", "nixl-write"])
def test_a_trace_has_the_copy_and_the_wait_of_a_message_over_nixl(monkeypatch, tmp_path, transport):
    """Traced functions are restored, because other tests of this process use them."""
    require_nixl()
    own = {}
    for stage, described in spans.STAGES.items():
        names = [name for name in described.get("functions", ()) if NixlPeer.__module__ in name]
        own[stage] = {"functions": names}
        for name in names:
            owner, attribute = spans.find_owner(name)
            monkeypatch.setattr(owner, attribute, getattr(owner, attribute))
    monkeypatch.setattr(spans, "STAGES", own)
    monkeypatch.setattr(spans, "wrapped_functions", [])
    monkeypatch.setattr(spans, "recorded", [])
    spans.install(SimpleNamespace(parts=[], outboxes={}, device=torch.device("cpu")))
    message = torch.arange(13, dtype=torch.uint8)
    driver, actor = make_nixl_peers(transport, tmp_path, message)
    received = []

    def send_and_receive():
        driver.send(DRIVER, message)
        received.extend(driver.receive_all(DRIVER))

    thread = threading.Thread(target=send_and_receive, daemon=True)
    thread.start()
    (arrived,) = actor.receive_all("actor-1")
    actor.send("actor-1", message)
    while thread.is_alive():
        actor.take_notifications()  # NIXL sends only while it is called
    assert all(torch.equal(tensor, message) for tensor in (arrived, *received))
    stages = Counter(stage for _, stage, *_ in spans.recorded)
    # A peer that sends is not in a stage of copying: it only submits what `copy` does.
    assert stages == {"submit": 2, "wait": 2, "copy": 2}


@pytest.mark.optional
def test_readers_of_iceoryx2_get_views_of_its_shared_memory(measure):
    """The check of the data path finds the memory of the readers in a file of /dev/shm."""
    pytest.importorskip("iceoryx2", reason="iceoryx2: it is not installed: make peers")
    (run,) = measure(
        "peers iceoryx2", "--flow", "a -> b: 1MB", "--iterations", "30", "--check-every", "10"
    ).runs
    assert run.readers_own_a_copy is False and "as requested" not in run.data_paths["a -> b"]


def test_a_run_of_iceoryx2_that_does_not_fit_into_shared_memory_is_rejected(monkeypatch):
    flags = ("--transport", "iceoryx2", "--flow", "a -> b: 1MiB")  # of 2 + 2 + 1 messages
    monkeypatch.setattr(psutil, "disk_usage", lambda path: SimpleNamespace(free=5 * 2**20))
    reason = "iceoryx2 may need 5 MiB of /dev/shm, which has less: send smaller messages"
    assert reason in reject_options("peers", *flags)


@pytest.mark.runs  # it is not quick either: tensordict imports the compiler of torch
@pytest.mark.parametrize("response_len", [4, "uniform:2:9"], ids=str)
def test_every_byte_of_a_tensordict_is_compared(response_len):
    """Samples of equal lengths are stacked, others are nested tensors."""
    flow = build_flow(
        "ppo", {"batch_size": 3, "prompt_len": 5, "response_len": response_len}, "tensordict"
    )
    endpoints = LocalEndpoints(flow, message="tensordict")
    endpoints.run(1)
    assert endpoints.verify(1) == {}

    def change(received):
        (values,) = [value for name, value in received.items() if name == "action_logprobs"]
        values = values.values() if values.is_nested else values
        values.view(torch.uint8).reshape(-1)[-1] ^= 1
        return received

    endpoints.run(2, on_edge("reward -> driver", change))
    assert endpoints.verify(2) == {"reward -> driver, action_logprobs": 1}
    with pytest.raises(RunFailed, match="expected a TensorDict for policy -> reference; got dict"):
        endpoints.actors["reference"].receive([{}], "reference")


@pytest.mark.runs
@pytest.mark.parametrize("name", [pytest.param("file-disk", marks=pytest.mark.long), "file-shm"])
def test_fields_arrive_in_files(measure, name):
    (run,) = measure(
        f"peers {name}", *PPO, "--iterations", "4", "--warmup", "1", "--in-flight", "3"
    ).runs
    assert run.readers_own_a_copy


@pytest.fixture
def sender_and_reader(tmp_path):
    plan = SimpleNamespace(transport=SimpleNamespace(name="file-disk"), run_folder=tmp_path)
    flow = SimpleNamespace(
        sent_flow=build_flow("chain", {"message_bytes": 13, "actors": 1}), plan=plan, device="cpu"
    )
    return [FilePeer(SimpleNamespace(name=name, **vars(flow))) for name in (DRIVER, "actor-1")]


@pytest.mark.parametrize(("damage", "text"), [
    (lambda path: path.write_bytes(path.read_bytes()[:-1]), "the message is cut: "),
    (lambda path: path.unlink(), "No such file"),  # a marker without a file
])  # fmt: skip
def test_a_damaged_file_is_an_error_that_names_the_edge(sender_and_reader, tmp_path, damage, text):
    sender, reader = sender_and_reader
    sender.send(DRIVER, torch.ones(13, dtype=torch.uint8))
    (path,) = [path for path in tmp_path.iterdir() if not path.name.endswith("-ready")]
    damage(path)
    with pytest.raises(
        RunFailed, match=f"driver -> actor-1: actor-1 cannot read its message: .*{text}"
    ):
        reader.receive_all("actor-1")


def test_a_full_disk_is_an_error_that_names_the_edge(sender_and_reader, monkeypatch):
    sender, _ = sender_and_reader
    sender.folder = Path("/dev/full/none")
    with pytest.raises(RunFailed, match="driver -> actor-1: driver cannot send its message: "):
        sender.send(DRIVER, torch.ones(13, dtype=torch.uint8))


@pytest.mark.optional
@pytest.mark.parametrize(("answer", "text"), [
    (b"HTTP/1.1 500 Error\r\nContent-Length: 0\r\n\r\n", "the HTTP server of actor-1 answered 500"),
    # The system resets a connection that is closed before the whole message was read.
    (b"", "(Remote end closed connection|.*Connection reset by peer)"), (None, "timed out"),
])  # fmt: skip
def test_a_server_that_dies_or_is_slow_is_an_error_that_names_the_edge(answer, text):
    flow = build_flow("chain", {"message_bytes": 13, "actors": 1})
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = HttpPeer.__new__(HttpPeer)
        peer.flow, peer.encode = flow, ENCODINGS["http-raw"][0]
        port = server.getsockname()[1]
        peer.connections = {
            edge: http.client.HTTPConnection("127.0.0.1", port, timeout=1) for edge in flow.edges
        }

        def serve():
            connection, _ = server.accept()
            connection.recv(10_000)
            if answer is None:
                time.sleep(2)
            connection.sendall(answer or b"")
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(
            RunFailed, match=f"driver -> actor-1: driver cannot send its message: {text}"
        ):
            peer.send(DRIVER, torch.ones(13, dtype=torch.uint8))
        thread.join()
