"""Verify that the bytes of a run took the data path of its transport, from what the kernel and Ray have counted."""

from collections.abc import Mapping, Sequence

from dataflow.catalogue.catalogue import INLINED_BYTES
from dataflow.flows.flow import DRIVER, Edge
from dataflow.flows.message import ACKNOWLEDGEMENT, Message
from dataflow.plan.plan import Plan
from dataflow.records.schema import AS_REQUESTED, NodeCosts, Run
from dataflow.units import format_bytes

MAX_STORED_SHARE = 0.5  # of the payload, by transports that only store handles and metadata
PICKLED_TENSOR_BYTES = 1024  # of each tensor besides its data, at most
MIN_SOCKET_SHARE = 0.95  # of the payload, by transports that use sockets


def find_other_data_path(plan: Plan, run: Run, numbers: range) -> str | None:
    """Return how the bytes in the object store or on the loopback interface differ from those that are expected.

    numbers: the timed iterations. Ray may keep messages of up to INLINED_BYTES out of the store.
    """
    if plan.options.address:  # other jobs may use an existing cluster
        return None
    flow, stored, expected = plan.sent_flow, run.stored_bytes / len(numbers), expected_stored_bytes(plan, INLINED_BYTES)
    low, high = 0.0, MAX_STORED_SHARE * sum(edge.bytes for edge in flow.edges)
    if stores_messages(plan):
        headers_bytes = PICKLED_TENSOR_BYTES * sum(len(edge.message.tensor_bytes) for edge in flow.edges)
        high = 1.1 * (expected_stored_bytes(plan) + plan.added.store_bytes) + headers_bytes
        low = 0.99 * expected
    has_large = any(stored_size(plan, message) > INLINED_BYTES for message in flow.messages)
    if has_large and not low <= stored <= high:
        return (f"the object store took in {format_bytes(round(stored))} per iteration, and {format_bytes(expected)} "
                f"are expected of {plan.configuration.name}: another data path was used")  # fmt: skip
    received = (run.loopback_bytes or 0) / len(numbers)
    sent = sum(edge.bytes for edge in flow.edges) + sum(task.other_bytes for task in flow.tasks)
    if plan.transport.uses_sockets and received < MIN_SOCKET_SHARE * sent:
        return (f"the loopback interface received {format_bytes(round(received))} per iteration, and "
                f"{format_bytes(round(sent))} were sent: another data path was used")  # fmt: skip
    return None


def find_missing_bytes(
    plan: Plan, costs: Mapping[str, NodeCosts], worker_nodes: Mapping[str, int], numbers: range
) -> str | None:
    """Return which node received fewer bytes in these iterations than messages crossed to it; None if none did.

    Nothing is known of a node whose interface is unknown, and of transports that bypass the kernel.
    """
    if plan.transport.bypasses_kernel:
        return None
    sent = plan.crossings(worker_nodes).bytes_by_link
    for node, cost in costs.items():
        expected = len(numbers) * sum(count for (_, reader), count in sent.items() if reader == int(node))
        if cost.received_bytes is not None and cost.received_bytes < MIN_SOCKET_SHARE * expected:
            received, crossed = (format_bytes(round(n / len(numbers))) for n in (cost.received_bytes, expected))
            return (f"node {node} received {received} per iteration, and {crossed} were sent to it: another data path "
                    "was used")  # fmt: skip
    return None


def mark_requested_paths(
    plan: Plan, run: Run, worker_nodes: Mapping[str, int], views: Mapping[str, bool | None]
) -> None:
    """Add AS_REQUESTED to the data path of each message that no counter and no view of shared memory shows.

    Ray shows the channels of its graphs. Transports that read the log of a library add the words themselves.
    """
    transport = plan.transport
    can_be_shown = stores_messages(plan) or transport.uses_sockets or transport.gives_views
    if transport.stores == "channels" or transport.bypasses_kernel or not can_be_shown:
        return
    counted: dict[Edge, bool] = {}  # edge between nodes -> whether the node that receives it counts its bytes
    for edges, _, reader in plan.crossings(worker_nodes).messages:
        cost = run.node_costs.get(str(reader), NodeCosts())
        counted |= dict.fromkeys(edges, cost.received_bytes is not None)
    for edge in plan.sent_flow.edges:
        is_seen = counted.get(edge, False) or bool(plan.expects_views and views.get(str(edge)))
        if not plan.options.address and not is_seen:
            is_stored = stores_messages(plan) and stored_size(plan, edge.message) > INLINED_BYTES
            is_seen = is_stored or transport.uses_sockets
        if not is_seen and edge.message != ACKNOWLEDGEMENT and AS_REQUESTED not in run.data_paths[str(edge)]:
            run.data_paths[str(edge)] += AS_REQUESTED


def stores_messages(plan: Plan) -> bool:
    return plan.transport.stores not in ("", "channels")


def stored_size(plan: Plan, message: Message) -> int:
    """Return the bytes of a message in the store. Pickle writes each view with its full storage."""
    return message.serialised_bytes if plan.transport.carries_objects else message.bytes


def expected_stored_bytes(plan: Plan, larger_than: int = 0) -> int:
    """Return the bytes of messages of more than so many bytes that the object store takes in per iteration.

    The result is 0 if messages do not pass through the store.
    """
    flow = plan.sent_flow
    by_value = [edge.message for edge in flow.edges]
    kept = [edge.message for edge in plan.task_flow.edges if not edge.message.is_parameters]
    stored: dict[str, Sequence[Message]] = {
        "messages": flow.messages,
        "arguments": [task.sends for task in flow.tasks] + [e.message for e in flow.edges if e.reader != DRIVER],
        "calls": by_value,
        "buffers": by_value,
    }
    sizes = [stored_size(plan, message) for message in stored.get(plan.transport.stores, ())]
    if plan.transport.stores == "buffers":  # they hold batches, and no views with their storage
        sizes += 2 * [message.bytes for message in kept if message != ACKNOWLEDGEMENT]
    return sum(size for size in sizes if size > larger_than)
