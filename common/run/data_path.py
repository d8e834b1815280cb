"""Verify that the bytes of a run took the data path of its transport, from what the kernel and Ray have counted."""

from collections.abc import Mapping

from common.flows.flow import DRIVER
from common.flows.message import ACKNOWLEDGEMENT
from common.plan.plan import Plan
from common.records.schema import NodeCosts, Run
from common.transports.catalogue import INLINED_BYTES
from common.units import format_bytes

MAX_STORED_SHARE = 0.5  # of the payload, by transports that only store handles and metadata
PICKLED_TENSOR_BYTES = 1024  # of each tensor besides its data, at most
MIN_SOCKET_SHARE = 0.95  # of the payload, by transports that use sockets


def find_other_data_path(plan: Plan, run: Run, iterations: int) -> str | None:
    """Return how the bytes in the object store or on the loopback interface differ from those that are expected.

    Small messages do not use the store. Other jobs may use the store of an existing cluster, and ranks share results.
    """
    sizes = [edge.bytes for edge in plan.sent_flow.edges if edge.message != ACKNOWLEDGEMENT]
    is_small = min(sizes, default=0) <= INLINED_BYTES
    if plan.options.address or plan.options.ranks or is_small or run.free_run:
        return None
    stored, expected = run.stored_bytes / iterations, expected_stored_bytes(plan)
    payload_bytes = sum(edge.bytes for edge in plan.sent_flow.edges)
    headers_bytes = PICKLED_TENSOR_BYTES * sum(len(edge.message.tensor_bytes) for edge in plan.sent_flow.edges)
    low, high = (0.99 * expected, 1.1 * expected + headers_bytes) if expected else (0, MAX_STORED_SHARE * payload_bytes)
    if not low <= stored <= high:
        return (f"the object store took in {format_bytes(round(stored))} per iteration, and {format_bytes(expected)} "
                f"are expected of {plan.configuration.name}: another data path was used")  # fmt: skip
    received = (run.loopback_bytes or 0) / iterations
    if plan.transport.uses_sockets and received < MIN_SOCKET_SHARE * payload_bytes:
        return (f"the loopback interface received {format_bytes(round(received))} per iteration, and "
                f"{format_bytes(payload_bytes)} were sent: another data path was used")  # fmt: skip
    return None


def find_missing_bytes(
    plan: Plan, costs: Mapping[str, NodeCosts], worker_nodes: Mapping[str, int], iterations: int
) -> str | None:
    """Return which node has received fewer bytes than messages crossed to it; None if none has.

    A message that several actors of a node read may cross once.
    """
    for node, cost in costs.items():
        expected = sum(crossing_messages(plan, worker_nodes, int(node)).values())
        received = cost.received_bytes / iterations
        if received < MIN_SOCKET_SHARE * expected:
            return (f"node {node} received {format_bytes(round(received))} per iteration, and {format_bytes(expected)} "
                    "were sent to it: another data path was used")  # fmt: skip
    return None


def crossing_messages(plan: Plan, worker_nodes: Mapping[str, int], reader_node: int) -> dict[str, int]:
    """Return the bytes of each message that crosses to a node, by its sender."""
    flow = plan.sent_flow
    node_of = {worker.actor: worker_nodes[name] for name, worker in plan.workers.items()}
    nodes = {edge: (node_of[flow.actor(edge.source)], node_of[flow.actor(edge.reader)]) for edge in flow.edges}
    return {edge.source: edge.bytes for edge in flow.edges
            if nodes[edge][0] != reader_node and nodes[edge][1] == reader_node}  # fmt: skip


def expected_stored_bytes(plan: Plan) -> int:
    """Return the bytes that the object store takes in per iteration; 0 if messages do not pass through it."""
    flow = plan.sent_flow
    messages = flow.serialised_bytes
    if plan.transport.stores == "arguments":  # the query only as an argument
        messages -= flow.query.serialised_bytes
        return messages + sum(e.message.serialised_bytes for e in flow.edges if e.reader != DRIVER)
    if plan.transport.stores in ("calls", "queues"):
        copies = 2 if plan.transport.stores == "queues" else 1
        return copies * sum(edge.message.serialised_bytes for edge in flow.edges)
    if plan.transport.stores == "buffers":
        buffered = sum(2 * edge.bytes for edge in plan.task_flow.edges if edge.message.is_experience)
        return buffered + sum(edge.message.serialised_bytes for edge in flow.edges)
    return messages if plan.transport.stores == "messages" else 0
