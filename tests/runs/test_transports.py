"""Run every transport that works without a GPU, as a user starts it, with fields and with iterations in flight."""

import re

import pytest
from conftest import KILOBYTES

from dataflow.catalogue.catalogue import CHATLEARN, TRANSPORTS, readers_get_views
from dataflow.flows.catalogue import build_flow

# Lists, strings, booleans and views; an actor that reads from two others.
GRPO = ("--flow", "grpo", "--batch-size", "2", "--prompt-len", "8", "--response-len", "8")
DPO = ("--flow", "dpo", "--batch-size", "2", "--seq-length", "255")  # with one actor
PPO = ("--flow", "ppo", *GRPO[2:])  # with a fourth model, and a third message for the reward model
# Messages of more than 100 KiB, which Ray does not put into its calls.
LARGE = ("--flow", "grpo", "--batch-size", "64", "--prompt-len", "256", "--response-len", "256")
PACKED = ("--message", "packed")
# Bytes that do not fill whole words.
CHAIN_ODD = ("--flow", "chain", "--payload-bytes", "13", "--actors", "2")
CHANNEL = "SharedMemoryType over BufferedSharedMemoryChannel"

# The data path between actors, for each transport. Nothing shows that of small messages over the store.
DATA_PATHS = {
    "store payload-queue": "object store, payload by Queue (as requested)",
    "store driver-queue": "object store, driver (as requested)",
    "store ref-queue": "object store, reference by Queue (as requested)",
    "store refs": "inlined in a call (as requested)",
    "store bytes": "inlined in a call (as requested)",
    "store numpy": "object store, reference",
    "rdt nixl": "NIXL over UCX, cma/memory",
    "rdt gloo": "Ray Direct Transport, GLOO",
    "rdt mapped": "Ray Direct Transport, MAPPED",
    "graph pickle": CHANNEL,
    "graph bytes": CHANNEL,
    "graph shm": "TorchTensorType over BufferedSharedMemoryChannel",
    "graph zero-copy": CHANNEL,
    "graph mapped": f"mapped /dev/shm, handle by {CHANNEL}",
    "torch gloo": "torch.distributed, cpu:gloo,cuda:gloo",
    "torch multiprocessing": "SimpleQueue, file_descriptor",
    "torch mapped": "mapped /dev/shm, sequence number by pipe",
    "torch memcpy": "memcpy in one process",
}
DRIVER_PATHS = {  # of transports that send the driver's own messages in another way
    "store driver-queue": {"argument of a call (as requested)", "object store, driver (as requested)"},
    "rdt gloo": {"argument or answer of a call"},
}
# Their flows are in tests/studies/.
ELSEWHERE = ("store by-value", "store replay-buffer", "store transfer-queue", "rdt broadcast", "rdt collectives",
             "torch broadcast", "torch collectives", "peers zmq-ipc",
             "peers zmq-tcp", "peers arrow-flight")  # fmt: skip
# A transport that is added to the catalogue is run here without another edit.
ON_CPU = [t for t in TRANSPORTS.values() if not t.requirements.gpus and not t.requirements.gpu_per_actor
          and t.label not in ELSEWHERE]  # fmt: skip
# To save time.
ONE_ACTOR = ("store payload-queue", "store driver-queue", "store ref-queue", "store bytes", "rdt nixl", "graph pickle",
             "graph bytes", "graph zero-copy")  # fmt: skip
WITH_FLAGS = [
    ("store", "driver-queue", "--zero-copy", "--copy-out", "--batch-size", "16", "--prompt-seq-len", "1024"),
    ("store", "refs", "--retain-memory", "--preallocate-store", "--batch-size", "64"),
    ("torch", "mapped", "--copy-in", "--copy-out", *GRPO),
    ("torch", "gloo", *PACKED, *PPO),
    pytest.param(("torch", "gloo", "--message", "jagged", *GRPO), marks=pytest.mark.long),
    ("store", "ref-queue", "--message", "tensordict", *DPO, "--batch-size", "64"),
    pytest.param(("graph", "pickle", "--message", "tensordict", *LARGE), marks=pytest.mark.long),
    ("graph", "shm", "--reuse-buffers", "--in-flight", "5", *GRPO),
    ("torch", "multiprocessing", "--copy-in", "--copy-out", "--check-every", "2", "--resources", *CHAIN_ODD),
]


def paths_from_actors(run):
    """Return the data paths of the edges between actors, or of one actor's answer."""
    between = {path for edge, path in run.data_paths.items() if "driver" not in edge}
    return between or {path for edge, path in run.data_paths.items() if edge.endswith("-> driver")}


@pytest.fixture
def cluster_flags(request):
    """cluster_flags(transport) -> flags that join the shared cluster, if the transport allows it (see join_cluster)."""

    def flags(transport):
        if transport.requirements.single_host or transport.runtime.name not in ("store", "graph"):
            return ()
        return request.getfixturevalue("cluster")

    return flags


def check(finished, transport):
    """Check that a run is ok, with every sample and cost, and with the properties of its transport."""
    assert finished.code == 0, finished.stderr
    assert finished.stderr == ""
    record, run = finished.record, finished.run
    workload, configuration = record.workload, record.configuration
    assert (configuration.runtime, configuration.transport) == (transport.runtime.name, transport.name)
    assert (run.status, run.reason, run.wrong_bytes, run.wrong_bytes_by_field) == ("ok", None, 0, {})
    flow = build_flow(workload.flow, workload.sizes, None if workload.message == "flat" else workload.message)
    assert [(str(edge), edge.bytes) for edge in workload.edges] == [(str(edge), edge.bytes) for edge in flow.edges]
    assert run.readers_own_a_copy is not readers_get_views(transport, configuration.flags)
    assert (len(run.seconds), run.spilled_bytes) == (record.arguments["iterations"], 0)
    group = max(record.arguments["check_every"] or 1, record.arguments["in_flight"])
    assert len(run.group_seconds) == -(-len(run.seconds) // group)
    assert run.first_seconds > 0
    assert len(run.memcpy_before_seconds) == len(run.memcpy_after_seconds) > 0
    is_private = transport.runtime.uses_ray and not configuration.layout.existing_cluster
    workers = {name: cost for name, cost in run.processes.items() if name != "raylet"}
    assert len(run.processes) - len(workers) == is_private
    assert {name for names in workers for name in names.split("+")} == set(run.nodes)
    assert len(workers) == (1 if transport.name == "memcpy" else len(run.nodes))
    assert set(run.nodes.values()) == {0}
    for cost in workers.values():
        assert cost.peak_memory_bytes > 2**20
    assert min(run.null_transport_seconds) > 0
    assert run.cold_copy_faults > 0 and len(run.cold_copy_before_seconds) == len(run.cold_copy_after_seconds) > 0
    assert (run.other_cores is None) == configuration.layout.existing_cluster
    if transport.runtime.name in ("graph", "torch"):
        assert run.stored_bytes == 0
    if transport.name in ("driver-queue", "payload-queue"):
        counts = {name: count for name, count in run.queue_operations.items() if count}
        assert counts == expected_operations(transport.name, flow, group)
        for sender, sizes in run.message_bytes.items():
            assert len(sizes) == group and min(sizes) > flow.message(sender).serialised_bytes
    last_line = re.fullmatch(r"Execution time: ([\d,]+(?:\.\d+)?) seconds", finished.stdout.splitlines()[-1])
    assert float(last_line[1].replace(",", "")) == pytest.approx(sum(run.group_seconds), rel=0.01)
    assert str(finished.output) in finished.stdout


def expected_operations(transport, flow, count):
    """Return the driver's operations in a group of `count` messages."""
    queries, results = flow.edges_from("driver"), flow.edges_to("driver")
    read = results
    if transport == "driver-queue":
        read = [edge for edge in flow.edges if edge not in queries]
    return {
        "driver_put": count * len(read if transport == "driver-queue" else queries),
        "driver_get": count * len(read),
        "driver_payload_gets": count * len(read),
        "driver_payload_bytes": count * sum(edge.bytes for edge in read),
        "model_tasks": count * len(flow.tasks),
    }


@pytest.mark.parametrize("transport", ON_CPU, ids=lambda transport: transport.label)
def test_fields_arrive_with_the_most_iterations_in_flight(run_script, cluster_flags, transport):
    if "nixl" in transport.requirements.modules:
        pytest.importorskip("nixl")
    in_flight = ()
    if transport.max_in_flight is None:  # more than a path holds, and a second group, which meets held readers
        in_flight = ("--in-flight", "5" if transport.requirements.single_buffer_channels else "6")
        in_flight += ("--check-every", "12")
    if transport.label == CHATLEARN:  # which sends a whole episode at once
        in_flight = ("--in-flight", "12", "--check-every", "12")
    needs_large = transport.gives_views and transport.stores == "messages"  # small ones are not mapped
    flow = DPO if transport.label in ONE_ACTOR else GRPO
    if needs_large:
        flow = LARGE
    flags = ("--transport", transport.name, *flow, *in_flight)
    more = ("--iterations", "12", "--warmup", "2", *cluster_flags(transport))
    finished = run_script(transport.runtime.name, *flags, *more)
    check(finished, transport)
    paths = paths_from_actors(finished.run)
    assert paths == {DATA_PATHS.get(transport.label, *paths)}
    with_driver = {path for edge, path in finished.run.data_paths.items() if "driver" in edge}
    assert with_driver == DRIVER_PATHS.get(transport.label, paths)


@pytest.mark.parametrize("flags", WITH_FLAGS, ids=" ".join)
def test_flags_change_a_transport_as_they_say(run_script, cluster_flags, flags):
    runtime, name, *more = flags
    transport = TRANSPORTS[f"{runtime} {name}"]
    shared = () if "--retain-memory" in more else cluster_flags(transport)  # which began without these settings
    counts = ("--iterations", "4", "--warmup", "1", *shared)
    finished = run_script(runtime, "--transport", name, *more, *counts)
    check(finished, transport)
    if "--resources" in more:
        assert [reading.iteration for reading in finished.run.resources] == [0, 2, 4]
        assert all(reading.memory_bytes > 2**20 and reading.descriptors > 0 for reading in finished.run.resources)
    if "--zero-copy" in more:
        # Of 448 bytes that readers get, the store takes in all that the driver sends by value, and all results.
        expected = 608 / 448 * finished.record.workload.bytes_per_iteration
        assert finished.run.stored_bytes / 4 == pytest.approx(expected, rel=0.05)
    if "--retain-memory" in more:  # without the flag, there are more than three page faults per page of the messages
        faults = sum(cost.minor_faults for cost in finished.run.processes.values())
        assert faults < 2 * finished.record.workload.bytes_per_iteration / 4096 * len(finished.run.seconds)


@pytest.mark.long
def test_actors_on_two_nodes_are_verified_and_leave_nothing_behind(run_script):
    """The second raylet is on this machine too, so the messages between nodes use loopback."""
    flags = ("--flow", "round-trip", "--transport", "bytes", "--placement", "spread", "--iterations", "3")
    finished = run_script("graph", *flags, "--warmup", "1")
    assert (finished.code, finished.stderr) == (0, "")
    run = finished.run
    assert (run.status, run.wrong_bytes, len(run.seconds)) == ("ok", 0, 3)
    assert (finished.record.configuration.layout.placement, run.nodes) == ("spread", {"driver": 0, "actor-1": 1})


def test_an_existing_cluster_keeps_nothing_of_a_failed_run(run_script, cluster):
    flags = ("--transport", "zero-copy", "--iterations", "30", *cluster, *KILOBYTES, "--inject", "policy:6:die")
    broken = run_script("graph", *flags)
    assert (broken.code, broken.run.status) == (1, "failed")
    assert "policy" in broken.run.reason and "died" in broken.run.reason
    assert broken.record.configuration.layout.existing_cluster


def test_a_token_that_the_existing_cluster_does_not_know_is_explained(run_script, cluster, monkeypatch):
    """Ray finds a token in the home folder of a user who once started a cluster with one."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    finished = run_script("store", "--transport", "refs", "--iterations", "1", *cluster, *KILOBYTES)
    assert finished.code == 1
    assert finished.stderr.endswith("Set RAY_AUTH_MODE=disabled if the cluster was started without a token.\n")
