"""Every script with every transport that runs without a GPU, as a user starts it."""

import importlib
import re

import pytest
from common.run.options import build_flow
from conftest import KILOBYTES, ROOT, SCRIPTS

from common.run import options as command_line

# How each transport's edges travel. A script or a transport that is not named here fails a test.
ARRAY_CHANNEL = "SharedMemoryType over BufferedSharedMemoryChannel"
PATHS = {
    "simulate_chat_learn_data_flow": {
        "ref-queue": "object store, Queue",
        "driver-queue": "object store, DriverQueue",
        "payload-queue": "object store, Queue",
        "refs": "object store, reference",
        "bytes": "object store, reference",
    },
    "ray_cg_simulate_chat_learn_data_flow": {
        "shm": "TorchTensorType over BufferedSharedMemoryChannel",
        "pickle": ARRAY_CHANNEL,
        "bytes": ARRAY_CHANNEL,
        "zero-copy": ARRAY_CHANNEL,
        "mapped": f"mapped /dev/shm, handle by {ARRAY_CHANNEL}",
    },
    "ray_rdt_simulate_chat_learn_data_flow": {
        "gloo": "Ray Direct Transport, GLOO",
        "nixl": "Ray Direct Transport, NIXL",
        "mapped": "Ray Direct Transport, MAPPED",
    },
    "torch_simulate_chat_learn_data_flow": {
        "gloo": "torch.distributed, cpu:gloo,cuda:gloo",
        "multiprocessing": "SimpleQueue, file_descriptor",
        "memcpy": "memcpy in one process",
    },
}
MAPPED = {"zero-copy", "mapped", "multiprocessing"}  # readers of these, and with --zero-copy, hold views
ON_GPUS_ALONE = {"nccl", "cuda-ipc", "nccl-one-gpu"}  # the graph's nccl: test_nccl_mock.py
OPTIONAL = {"nixl"}  # libraries that requirements.txt does not have
SCATTER_ODD = ("--flow", "scatter-gather", "--payload-bytes", "1001", "--roles", "2")
CHAIN_ODD = ("--flow", "chain", "--payload-bytes", "13", "--roles", "2")
OVER_100_KIB = ("--batch-size", "16", "--prompt-seq-len", "1024")  # Ray inlines, and so copies, what is smaller

ROWS = [
    (script.stem, transport, *flags)
    for script in SCRIPTS
    for transport in importlib.import_module(script.stem).TRANSPORTS
    if transport not in ON_GPUS_ALONE
    for flags in [KILOBYTES]
] + [
    ("simulate_chat_learn_data_flow", "refs", "--zero-copy", *OVER_100_KIB),
    ("simulate_chat_learn_data_flow", "driver-queue", "--zero-copy", *OVER_100_KIB),
    ("simulate_chat_learn_data_flow", "refs", "--zero-copy", "--copy-out", *OVER_100_KIB),
    # Bytes that are no whole words, in flows of another shape.
    ("ray_cg_simulate_chat_learn_data_flow", "mapped", "--copy-out", *SCATTER_ODD),
    ("torch_simulate_chat_learn_data_flow", "gloo", *CHAIN_ODD),
]


def test_every_script_and_transport_is_covered():
    covered = {script: set(paths) for script, paths in PATHS.items()}
    existing = {script.stem: set(importlib.import_module(script.stem).TRANSPORTS) for script in SCRIPTS}
    assert {script: transports - ON_GPUS_ALONE for script, transports in existing.items()} == covered
    assert set().union(*existing.values()) >= ON_GPUS_ALONE


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(part for part in row[:4] if part not in KILOBYTES))
def test_a_run_is_right_leaves_a_valid_record_and_nothing_else(run_script, row):
    script, transport, *flags = row
    if transport in OPTIONAL:
        pytest.importorskip(transport)
    finished = run_script(ROOT / f"{script}.py", "--transport", transport, *flags, "--iterations", "3", "--warmup", "1")
    assert finished.code == 0, finished.stderr
    if "--zero-copy" not in flags:  # Ray and torch warn that mapped tensors are shared
        assert finished.stderr == ""

    flow = build_flow(command_line.parse_arguments("", (transport,), transport, flags))
    record, case = finished.record, finished.case
    assert record["script"] == f"{script}.py"
    assert record["arguments"]["transport"] == case["transport"] == transport
    assert (case["status"], case["reason"], case["wrong_bytes"]) == ("ok", None, 0)
    assert (case["flow"], case["device"], case["warmup"], len(case["seconds"])) == (flow.name, "cpu", 1, 3)
    assert case["first_seconds"] > 0
    assert case["edges"] == [{"from": e.source, "to": e.reader, "bytes": e.bytes} for e in flow.edges]
    assert case["bytes_per_trip"] == sum(edge["bytes"] for edge in case["edges"])
    assert case["path"] == {str(edge): PATHS[script][transport] for edge in flow.edges}
    assert case["payload_copied"] is ("--copy-out" in flags or not (transport in MAPPED or "--zero-copy" in flags))
    assert case["spilled_bytes"] == 0
    if "--zero-copy" in flags:
        # What of 448 MiB a trip the store takes in: all that the driver sends by value and all results
        # with the demo's baseline, each message once with references.
        share = {"driver-queue": 608 / 448, "refs": 352 / 448}[transport]
        assert case["stored_bytes"] / 3 == pytest.approx(share * case["bytes_per_trip"], rel=0.05)
    if script == "ray_rdt_simulate_chat_learn_data_flow":  # what says where the payload lies is an object itself
        assert case["stored_bytes"] / 3 < min(edge["bytes"] for edge in case["edges"])
    elif script != "simulate_chat_learn_data_flow":
        assert case["stored_bytes"] == 0
    assert case["peak_memory_bytes"] > 0
    assert case["harness_seconds"] > 0
    assert case["placement"] == {"driver": 0} | {role.name: 0 for role in flow.roles}

    last_line = re.fullmatch(r"Execution time: (\d+\.\d+(?:e-\d+)?) seconds", finished.stdout.splitlines()[-1])
    assert float(last_line[1]) == sum(case["seconds"])
    assert f"record: {finished.output}" in finished.stdout


def test_roles_on_two_nodes_are_right_and_leave_nothing_behind(run_script):
    """The second raylet is on this machine too, so what goes between nodes goes over loopback."""
    flags = ("--flow", "round-trip", "--transport", "bytes", "--placement", "spread", "--iterations", "3")
    finished = run_script(ROOT / "ray_cg_simulate_chat_learn_data_flow.py", *flags, "--warmup", "1")
    assert (finished.code, finished.stderr) == (0, "")
    case = finished.case
    assert (case["status"], case["wrong_bytes"], len(case["seconds"])) == ("ok", 0, 3)
    assert case["placement"] == {"driver": 0, "role-1": 1}
    assert finished.record["arguments"]["placement"] == "spread"
