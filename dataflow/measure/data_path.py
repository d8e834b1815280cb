"""Verify that the bytes of a run took the data path of its transport, from what the kernel and Ray have counted."""

from collections.abc import Mapping, Sequence

from dataflow.catalogue.catalogue import INLINED_BYTES
from dataflow.flows.flow import DRIVER, Edge
from dataflow.flows.message import ACKNOWLEDGEMENT, Message
from dataflow.plan.plan import Plan, bytes_by_link
from dataflow.records.schema import AS_REQUESTED, NodeCosts, Run
from dataflow.units import format_bytes

MAX_STORED_SHARE = 0.5  # of the payload, by transports that only store handles and metadata
PICKLED_TENSOR_BYTES = 1024  # of each tensor besides its data, at most
MIN_SOCKET_SHARE = 0.95  # of the payload, by transports that use sockets


def find_other_data_path(
    plan: Plan, run: Run, worker_nodes: Mapping[str, int], numbers: range
) -> str | None:
    """Return which counter shows another data path than expected: of the object store, the loopback interface, a node.

    numbers: the timed iterations. Ray may keep messages of up to INLINED_BYTES out of the store. Other jobs may use the
    store of an existing cluster. Some transports bypass the kernel, and the interface of a node can be unknown.
    """
    flow = plan.sent_flow
    received: list[
        tuple[str, int | None, int]
    ] = []  # by whom, in all iterations, and what an iteration sent to it
    if not plan.options.address:
        stored, expected = (
            run.stored_bytes / len(numbers),
            expected_stored_bytes(plan, INLINED_BYTES),
        )
        low, high = 0.0, MAX_STORED_SHARE * sum(edge.bytes for edge in flow.edges)
        if stores_messages(plan):
            headers_bytes = PICKLED_TENSOR_BYTES * sum(
                len(edge.message.tensor_bytes) for edge in flow.edges
            )
            high = 1.1 * (expected_stored_bytes(plan) + plan.added.store_bytes) + headers_bytes
            least_bytes, all_bytes = (
                sum(getattr(m, n) for m in flow.messages) for n in ("least_bytes", "bytes")
            )
            low = 0.99 * expected * least_bytes / all_bytes
        has_large = any(stored_size(plan, message) > INLINED_BYTES for message in flow.messages)
        if has_large and not low <= stored <= high:
            took_in, name = format_bytes(round(stored)), plan.configuration.name
            return (f"the object store took in {took_in} per iteration, and {format_bytes(expected)} are expected of "
                    f"{name}: another data path was used")  # fmt: skip
        if plan.transport.uses_sockets and not plan.beside:  # whose bytes would count
            sent = sum(edge.message.least_bytes for edge in flow.edges) + sum(
                task.other_bytes for task in flow.tasks
            )
            received.append(("the loopback interface", run.loopback_bytes or 0, sent))
    if not plan.transport.bypasses_kernel:
        for node, cost in run.node_costs.items():
            crossed = bytes_by_link(plan.crossings(worker_nodes)).items()
            sent = sum(count for (_, reader), count in crossed if reader == int(node))
            received.append((f"node {node}", cost.received_bytes, sent))
    for name, count, sent in received:
        if count is not None and count < MIN_SOCKET_SHARE * sent * len(numbers):
            return (f"{name} received {format_bytes(round(count / len(numbers)))} per iteration, and "
                    f"{format_bytes(sent)} were sent to it: another data path was used")  # fmt: skip
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
    counted: dict[
        Edge, bool
    ] = {}  # edge between nodes -> whether the node that receives it counts its bytes
    for edges, _, reader in plan.crossings(worker_nodes):
        cost = run.node_costs.get(str(reader), NodeCosts())
        counted |= dict.fromkeys(edges, cost.received_bytes is not None)
    for edge in plan.sent_flow.edges:
        is_seen = counted.get(edge, False) or bool(plan.expects_views and views.get(str(edge)))
        if not plan.options.address and not is_seen:
            is_stored = stores_messages(plan) and stored_size(plan, edge.message) > INLINED_BYTES
            is_seen = is_stored or transport.uses_sockets
        if (
            not is_seen
            and edge.message != ACKNOWLEDGEMENT
            and AS_REQUESTED not in run.data_paths[str(edge)]
        ):
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
    stored: dict[str, Sequence[Message]] = {
        "messages": flow.messages,
        "arguments": [task.sends for task in flow.tasks]
        + [e.message for e in flow.edges if e.reader != DRIVER],
        "calls": by_value,
        "buffers": by_value,
    }
    sizes = [stored_size(plan, message) for message in stored.get(plan.transport.stores, ())]
    if plan.transport.stores == "buffers":  # they hold batches, and no views with their storage
        messages = [
            edge.message for edge in plan.task_flow.edges if edge.message != ACKNOWLEDGEMENT
        ]
        sizes += 2 * [message.bytes for message in messages if not message.is_parameters]
    return sum(size for size in sizes if size > larger_than)
