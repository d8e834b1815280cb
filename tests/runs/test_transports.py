# SPDX-License-Identifier: Apache-2.0
"""Run every transport that works without a GPU, as a user starts it, with fields and with iterations in flight."""

import re

import pytest
from conftest import KILOBYTES, require_nixl

from dataflow.catalogue.catalogue import TRANSPORTS, readers_get_views

# Lists, strings, booleans and views; an actor that reads from two others.
GRPO = ("--flow", "grpo", "--batch-size", "2", "--prompt-len", "8", "--response-len", "8")
ONE_TASK = (
    "--flow",
    "driver -> reference: x int64 8kB; reference -> driver: 300 x float32 12B, z bool 5B",
)
# Messages of more than 100 KiB, which Ray does not put into its calls.
LARGE = ("--flow", "grpo", "--batch-size", "64", "--prompt-len", "256", "--response-len", "256")
# Bytes that do not fill whole words.
CHAIN_ODD = ("--flow", "chain", "--message-bytes", "13", "--actors", "2")

# The data path between actors, of transports that read it or that mark it as requested: nothing shows that of small
# messages over the store.
DATA_PATHS = {
    "store driver-queue": "object store, driver (as requested)",
    "store refs": "inlined in a call (as requested)",
    "store numpy": "object store, reference",
    "rdt nixl": "NIXL over UCX, cma/memory",
    "rdt nixl-pull": "NIXL over UCX, cma/memory",
    "graph shm": "TorchTensorType over BufferedSharedMemoryChannel",
    "graph nixl-read": "NIXL over UCX, cma/memory, handle by SharedMemoryType over BufferedSharedMemoryChannel",
    "graph mapped": "mapped /dev/shm, handle by SharedMemoryType over BufferedSharedMemoryChannel",
    "torch gloo": "torch.distributed, cpu:gloo,cuda:gloo",
}
DRIVER_PATHS = {  # of transports that send the driver's own messages in another way
    "store driver-queue": {
        "argument of a call (as requested)",
        "object store, driver (as requested)",
    },
    "rdt gloo": {"argument or answer of a call"},
}
# A transport that is added to the catalogue is run here without another edit. Studies run theirs, also torch broadcast.
ON_CPU = [t for t in TRANSPORTS.values() if not t.requirements.gpus and not t.requirements.gpu_per_actor
          and t.module.startswith("transports.") and t.name not in ("broadcast", "collectives")]  # fmt: skip
# Others of their runtime send in nearly the same way.
SIMILAR = (
    "store bytes",
    "store numpy",
    "graph bytes",
    "graph pickle",
    "graph mapped",
    "graph zero-copy",
    "rdt nixl",
    "rdt nixl-pull",
    "torch multiprocessing",
)
# These take half a minute each. Quick tests read by NIXL within a process, and over `peers nixl-read`.
SLOW = ("rdt gloo", "graph shm", "graph nixl-read", "store refs", "store driver-queue")
ONE_ACTOR = (
    "store driver-queue",
    "store bytes",
    "rdt nixl",
    "graph pickle",
    "graph bytes",
    "graph zero-copy",
)
WITH_FLAGS = [
    pytest.param(
        (
            "store",
            "refs",
            "--zero-copy",
            "--copy-out",
            "--batch-size",
            "16",
            "--prompt-seq-len",
            "1024",
        ),
        marks=pytest.mark.long,
    ),
    pytest.param(
        ("store", "refs", "--retain-memory", "--preallocate-store", "--batch-size", "64"),
        marks=pytest.mark.slow,
    ),
    pytest.param(
        ("store", "refs", "--changing-sizes", "0.5", "--batch-size", "64"),
        marks=pytest.mark.slow,
    ),
    pytest.param(
        ("graph", "shm", "--changing-sizes", "0.5", "--batch-size", "64"),
        marks=pytest.mark.long,
    ),
    ("torch", "mapped", "--copy-in", "--copy-out", "--message", "jagged", *GRPO),
    pytest.param(
        (
            "rdt",
            "nixl-pull",
            "--reuse-buffers",
            "--in-flight",
            "2",
            "--flow",
            "a -> b: x uint8 13B, y int64 16B, z uint8 3B",
        ),
        marks=pytest.mark.long,
    ),
    pytest.param(
        (
            "graph",
            "nixl-read",
            "--keep",
            "--in-flight",
            "2",
            "--flow",
            "a -> b: x uint8 13B, y int64 16B, z uint8 3B",
        ),
        marks=pytest.mark.long,
    ),
    pytest.param(
        ("torch", "multiprocessing", "--copy-in", "--copy-out", "--check-every", "2", *CHAIN_ODD),
        marks=pytest.mark.long,
    ),
]


def check(finished, transport):
    """Check that a run is ok, with every sample and cost, and with the properties of its transport."""
    assert (finished.code, finished.stderr) == (0, "")
    record, run = finished.record, finished.run
    configuration = record.configuration
    assert (configuration.runtime, configuration.transport) == (
        transport.runtime.name,
        transport.name,
    )
    assert (run.status, run.reason, run.wrong_bytes, run.spilled_bytes) == ("ok", None, 0, 0)
    assert run.unsent_wrong_bytes.keys() == run.data_paths.keys()
    assert (
        min(run.unsent_wrong_bytes.values()) > 0
    )  # the check of every edge has failed before the first message
    assert run.readers_own_a_copy is not readers_get_views(transport, configuration.flags)
    group = max(record.arguments["check_every"] or 1, record.arguments["in_flight"])
    iterations = record.arguments["iterations"]
    assert (len(run.seconds), len(run.group_seconds)) == (iterations, -(-iterations // group))
    for seconds in (run.null_transport_seconds, run.memcpy_before_seconds, run.memcpy_after_seconds,
                    run.cold_copy_before_seconds, run.cold_copy_after_seconds, [run.first_seconds]):  # fmt: skip
        assert min(seconds) > 0
    is_private = transport.runtime.uses_ray and not configuration.layout.existing_cluster
    assert ("raylet" in run.processes, run.other_cores is None) == (
        is_private,
        configuration.layout.existing_cluster,
    )
    workers = {name: cost for name, cost in run.processes.items() if name != "raylet"}
    assert {name for names in workers for name in names.split("+")} == set(run.nodes)
    assert len(workers) == (1 if transport.name == "memcpy" else len(run.nodes))
    assert min(cost.peak_memory_bytes for cost in workers.values()) > 2**20
    assert run.stored_bytes == 0 or transport.runtime.name not in ("graph", "torch")
    last_line = re.fullmatch(
        r"Execution time: ([\d,]+(?:\.\d+)?) seconds", finished.stdout.splitlines()[-1]
    )
    assert float(last_line[1].replace(",", "")) == pytest.approx(sum(run.group_seconds), rel=0.01)
    assert str(finished.output) in finished.stdout


def mark_similar(transport):
    """Leave a transport to --all if another one of its runtime is like it, and slow ones to make test-slow."""
    marks = ()
    if transport.label in SIMILAR:
        marks = pytest.mark.long
    elif transport.label in SLOW:
        marks = pytest.mark.slow
    return pytest.param(transport, id=transport.label, marks=marks)


@pytest.mark.parametrize("transport", [mark_similar(transport) for transport in ON_CPU])
def test_fields_arrive_with_the_most_iterations_in_flight(run_script, join_cluster, transport):
    if "nixl" in transport.requirements.modules:
        require_nixl()
    flow = ONE_TASK if transport.label in ONE_ACTOR else GRPO
    if transport.gives_views and transport.stores == "messages":  # small ones are not mapped
        flow = LARGE
    flags = ("--transport", transport.name, *flow, "--iterations", "12", "--warmup", "2")
    if transport.carries_contiguous_only:  # the flow has strings
        flags += ("--message", "packed")
    if (
        transport.max_in_flight is None
    ):  # more than a path holds, and a second group, which meets held readers
        flags += (
            "--in-flight",
            "5" if transport.requirements.single_buffer_channels else "6",
            "--check-every",
            "12",
        )
    if not transport.requirements.single_host:
        flags += join_cluster(transport.runtime.name)
    finished = run_script(transport.runtime.name, *flags)
    check(finished, transport)
    data_paths = finished.run.data_paths
    with_driver = {path for edge, path in data_paths.items() if "driver" in edge}
    paths = {path for edge, path in data_paths.items() if "driver" not in edge} or {
        data_paths["reference -> driver"]
    }
    assert paths == {DATA_PATHS.get(transport.label, *paths)}
    assert with_driver == DRIVER_PATHS.get(transport.label, paths)


@pytest.mark.parametrize("flags", WITH_FLAGS, ids=" ".join)
def test_flags_change_a_transport_as_they_say(run_script, join_cluster, flags):
    runtime, name, *more = flags
    transport = TRANSPORTS[f"{runtime} {name}"]
    # A cluster that runs already began without these settings.
    is_alone = "--retain-memory" in more or transport.requirements.single_host
    shared = () if is_alone else join_cluster(runtime)
    finished = run_script(
        runtime, "--transport", name, *more, "--iterations", "4", "--warmup", "1", *shared
    )
    check(finished, transport)
    run, bytes_per_iteration = finished.run, finished.record.workload.bytes_per_iteration
    is_counted = "--zero-copy" in more or (name == "refs" and "--changing-sizes" in more)
    if is_counted:
        # Of 448 bytes that readers get, the store takes in each message once: one of them has two readers.
        assert run.stored_bytes / 4 == pytest.approx(352 / 448 * bytes_per_iteration, rel=0.05)
    if (
        "--retain-memory" in more
    ):  # without the flag, there are more than three page faults per page of the messages
        faults = sum(cost.minor_faults for cost in run.processes.values())
        assert faults < 2 * bytes_per_iteration / 4096 * len(run.seconds)
        assert len(run.group_faults) == len(run.seconds)
        # Only the raylet has page faults after the last verification.
        assert 0 <= faults - sum(run.group_faults) < 1_000


@pytest.mark.slow
def test_an_existing_cluster_keeps_nothing_of_a_failed_run(run_script, cluster):
    flags = (
        "--transport",
        "zero-copy",
        "--iterations",
        "30",
        *cluster,
        *KILOBYTES,
        "--inject",
        "policy:6:die",
    )
    broken = run_script("graph", *flags)
    assert (broken.code, broken.run.status) == (1, "failed")
    assert "policy" in broken.run.reason and "died" in broken.run.reason
    assert broken.record.configuration.layout.existing_cluster


def test_a_token_that_the_existing_cluster_does_not_know_is_explained(
    run_script, cluster, monkeypatch
):
    """Ray finds a token in the home folder of a user who once started a cluster with one."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    finished = run_script("store", "--transport", "refs", "--iterations", "1", *cluster, *KILOBYTES)
    assert finished.code == 1
    assert finished.stderr.endswith(
        "Set RAY_AUTH_MODE=disabled if the cluster was started without a token.\n"
    )
