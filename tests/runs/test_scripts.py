"""Every transport that runs without a GPU, as a user starts it, with fields and with trips in flight."""

import re

import pytest
from conftest import SCRIPTS

from common.flow.catalogue import build_flow
from common.record.rows import ROWS, readers_hold_views, transports

# Lists, strings, booleans and views; two results; a role that reads from three.
GRPO = ("--flow", "grpo", "--rows", "2", "--prompt-len", "8", "--response-len", "8")
PPO = ("--flow", "ppo", *GRPO[2:])  # with a fourth model, and a third message for the reward model
OVER_100_KIB = ("--flow", "grpo", "--rows", "64", "--prompt-len", "256", "--response-len", "256")  # Ray inlines less
PACKED = ("--message", "packed")
# Bytes that are no whole words, in flows of another shape.
SCATTER_ODD = ("--flow", "scatter-gather", "--payload-bytes", "1001", "--roles", "2")
CHAIN_ODD = ("--flow", "chain", "--payload-bytes", "13", "--roles", "2")
CHANNEL = "SharedMemoryType over BufferedSharedMemoryChannel"

# How the edges of a transport travel, where that is known beforehand.
PATHS = {
    "store payload-queue": "object store, payload by Queue",
    "store driver-queue": "object store, driver",
    "store ref-queue": "object store, reference by Queue",
    "store refs": "inlined in a call",
    "store bytes": "inlined in a call",
    "store numpy": "object store, reference",
    "rdt nixl": "Ray Direct Transport, NIXL",
    "rdt gloo": "Ray Direct Transport, GLOO",
    "rdt mapped": "Ray Direct Transport, MAPPED",
    "graph pickle": CHANNEL,
    "graph bytes": CHANNEL,
    "graph shm": "TorchTensorType over BufferedSharedMemoryChannel",
    "graph zero-copy": CHANNEL,
    "graph mapped": f"mapped /dev/shm, handle by {CHANNEL}",
    "torch gloo": "torch.distributed, cpu:gloo,cuda:gloo",
    "torch multiprocessing": "SimpleQueue, file_descriptor",
    "torch memcpy": "memcpy in one process",
}
# A transport that is new in the catalogue is run here without a word about it.
CPU = [row for row in ROWS if row.says and not row.needs.gpus and not row.needs.gpu_each]
MORE = [
    ("store", "refs", "--zero-copy", *OVER_100_KIB),
    ("store", "driver-queue", "--zero-copy", "--copy-out", "--batch-size", "16", "--prompt-seq-len", "1024"),
    ("rdt", "mapped", "--copy-out", *PACKED, *PPO),
    ("graph", "mapped", "--copy-out", *SCATTER_ODD),
    ("torch", "gloo", *PACKED, *PPO),
    ("graph", "shm", *PPO),
    ("torch", "multiprocessing", "--copy-out", "--episode", "2", *CHAIN_ODD),
]


def check(finished, runtime, transport):
    """A row that is right, with every sample and cost, and the path that its transport stands for."""
    assert finished.code == 0, finished.stderr
    assert finished.stderr == ""
    record, run = finished.record, finished.run
    row, key = transports(runtime)[transport], record.row
    assert (key.runtime, key.transport, key.device) == (runtime, transport, "cpu")
    assert (run.status, run.reason, run.wrong_bytes, run.wrong_bytes_by_field) == ("ok", None, 0, {})
    flow = build_flow(key.flow, key.sizes, key.message)
    assert [f"{edge.source} -> {edge.reader}" for edge in record.edges] == [str(edge) for edge in flow.edges]
    assert [edge.bytes for edge in record.edges] == [edge.bytes for edge in flow.edges]
    assert run.payload_copied is not readers_hold_views(row, key.flags)
    assert (len(run.seconds), run.first_seconds > 0, run.spilled_bytes) == (record.arguments["iterations"], True, 0)
    assert len(run.episode_seconds) == -(-len(run.seconds) // record.arguments["episode"])
    assert len(run.ceiling_before_seconds) == len(run.ceiling_after_seconds) > 0
    assert {name for names in run.processes for name in names.split("+")} == set(key.layout.nodes)
    assert len(run.processes) == (1 if transport == "memcpy" else len(key.layout.nodes))
    for cost in run.processes.values():
        assert cost.peak_memory_bytes > 2**20
        assert cost.harness_seconds > 0
        assert cost.minor_faults >= 0
    assert set(key.layout.nodes.values()) == {0}
    if runtime in ("graph", "torch"):
        assert run.stored_bytes == 0
    if transport in ("driver-queue", "payload-queue"):
        assert {name: count for name, count in run.operations.items() if count} == operations(
            transport, flow, record.arguments["episode"]
        )
        assert set(run.message_bytes) == {"driver", *(task.name for task in flow.tasks)}
        for sender, sizes in run.message_bytes.items():
            assert len(sizes) == record.arguments["episode"] and min(sizes) > flow.message(sender).shipped_bytes
    last_line = re.fullmatch(r"Execution time: (\d+(?:\.\d+)?) seconds", finished.stdout.splitlines()[-1])
    assert float(last_line[1]) == pytest.approx(sum(run.seconds), rel=0.01)
    assert f"record: {finished.output}" in finished.stdout


def operations(transport, flow, count):
    """Of an episode of so many messages what the driver does, other than nothing."""
    asked, answers = flow.edges_from("driver"), flow.edges_to("driver")
    of_driver = [edge for edge in flow.edges if edge not in asked] if transport == "driver-queue" else answers
    return {
        "driver_put": count * len(of_driver if transport == "driver-queue" else asked),
        "driver_get": count * len(of_driver),
        "driver_payload_gets": count * len(of_driver),
        "driver_payload_bytes": count * sum(edge.bytes for edge in of_driver),
        "model_tasks": count * len(flow.tasks),
    }


@pytest.mark.parametrize("row", CPU, ids=lambda row: row.name)
def test_fields_arrive_with_as_many_trips_in_flight_as_there_may_be(run_script, row):
    if "nixl" in row.needs.modules:
        pytest.importorskip("nixl")
    # More than a path has places, and again as many: readers hold all that they may, and are handed others.
    many = "5" if row.needs.single_buffers else "6"
    more = ("--in-flight", many, *(() if row.is_chatlearns else ("--episode", "12"))) if row.depth is None else ()
    of_store = row.views and row.needs.store == "messages"  # where small messages are inlined, and not mapped
    fields = OVER_100_KIB if of_store else GRPO
    flags = ("--transport", row.transport, *fields, *more, "--iterations", "12", "--warmup", "2")
    finished = run_script(SCRIPTS[row.runtime], *flags)
    check(finished, row.runtime, row.transport)
    edges = [f"{edge.source} -> {edge.reader}" for edge in finished.record.edges]
    found = {finished.run.path[edge] for edge in edges if "driver" not in edge}
    assert found == {PATHS.get(row.name, *found)}


@pytest.mark.parametrize("row", MORE, ids=" ".join)
def test_flags_that_make_another_row_keep_their_promise(run_script, row):
    runtime, transport, *flags = row
    finished = run_script(SCRIPTS[runtime], "--transport", transport, *flags, "--iterations", "4", "--warmup", "1")
    check(finished, runtime, transport)
    if "--zero-copy" in flags and transport == "driver-queue":
        # Of 448 MiB a trip the store takes in all that the driver sends by value, and all results.
        assert finished.run.stored_bytes / 4 == pytest.approx(608 / 448 * finished.record.bytes_per_trip, rel=0.05)


def test_actors_on_two_nodes_are_right_and_leave_nothing_behind(run_script):
    """The second raylet is on this machine too, so what goes between nodes goes over loopback."""
    flags = ("--flow", "round-trip", "--transport", "bytes", "--placement", "spread", "--iterations", "3")
    finished = run_script(SCRIPTS["graph"], *flags, "--warmup", "1")
    assert (finished.code, finished.stderr) == (0, "")
    layout, run = finished.record.row.layout, finished.run
    assert (run.status, run.wrong_bytes, len(run.seconds)) == ("ok", 0, 3)
    assert (layout.placement, layout.nodes) == ("spread", {"driver": 0, "role-1": 1})
