# SPDX-License-Identifier: Apache-2.0
"""Verify that the bytes of a run took the data path of its transport, from what the kernel and Ray have counted."""

from collections import Counter
from collections.abc import Mapping
from statistics import fmean
from typing import NamedTuple

from dataflow.catalogue.catalogue import INLINED_BYTES
from dataflow.flows.flow import DRIVER, Edge, Flow
from dataflow.flows.message import ACKNOWLEDGEMENT, Message
from dataflow.plan.plan import Plan, bytes_by_link
from dataflow.records.schema import AS_REQUESTED, NodeCosts, Run
from dataflow.units import format_bytes

MAX_STORED_SHARE = 0.5  # of the payload, by transports that only store handles and metadata
PICKLED_TENSOR_BYTES = 1024  # of each tensor besides its data, at most
MIN_STORED_FACTOR = 0.99  # of the least bytes that the messages can have in the store
MAX_STORED_FACTOR = 1.1  # of their bytes and those of a study, without what pickle adds
MIN_SOCKET_SHARE = 0.95  # of the payload, by transports that use sockets


def find_other_data_path(
    plan: Plan, run: Run, worker_nodes: Mapping[str, int], numbers: range
) -> str | None:
    """Return which counter shows another data path than expected; None if none does.

    The counters are those of the object store, of the loopback interface or of nodes.

    numbers: the timed iterations. A counter that says nothing is left out: store and loopback on an existing cluster,
    which others use; the store if all messages have at most INLINED_BYTES, which Ray may keep out of it; loopback
    with --beside; nodes if the transport bypasses the kernel, or if their interface is unknown.
    """
    transport = plan.transport
    received: list[Received] = []
    if not plan.options.address:
        stored_bytes = run.stored_bytes / len(numbers)
        other = find_other_store_use(plan, stored_bytes, numbers)
        if other:
            return other
        # The other flow of --beside sends over the loopback interface too.
        if transport.uses_sockets and not plan.beside:
            received.append(expect_on_loopback(plan, run))
    if run.node_costs and not transport.bypasses_kernel:
        received += expect_on_nodes(plan, run, worker_nodes)
    for counted in received:
        if counted.bytes is None:
            continue
        per_iteration = counted.bytes / len(numbers)
        if per_iteration < MIN_SOCKET_SHARE * counted.expected_bytes:
            took_in = format_bytes(round(per_iteration))
            expected = format_bytes(counted.expected_bytes)
            return (
                f"{counted.by} received {took_in} per iteration, and {expected} were sent to it: "
                "another data path was used"
            )
    return None


class Received(NamedTuple):
    """What an interface has received in the timed iterations."""

    by: str
    bytes: int | None  # None: it is not known
    expected_bytes: int  # per iteration


def find_other_store_use(plan: Plan, stored_bytes: float, numbers: range) -> str | None:
    """Return that the object store took in other bytes per iteration than expected; None if it did not.

    Also return None if all messages are so small that Ray may keep them out of the store.
    """
    messages = plan.sent_flow.messages
    if all(stored_size(plan, message.largest) <= INLINED_BYTES for message in messages):
        return None
    low, high = range_of_stored_bytes(plan, numbers)
    if low <= stored_bytes <= high:
        return None
    took_in = format_bytes(round(stored_bytes))
    expected_bytes = mean_stored_bytes(plan, numbers, INLINED_BYTES)
    expected = format_bytes(round(expected_bytes))
    name = plan.configuration.name
    return (
        f"the object store took in {took_in} per iteration, and {expected} are expected of "
        f"{name}: another data path was used"
    )


def range_of_stored_bytes(plan: Plan, numbers: range) -> tuple[float, float]:
    """Return the least and the most bytes that the object store may take in per iteration, as the mean of these."""
    flow = plan.sent_flow
    if not stores_messages(plan):
        payload_bytes = sum(edge.bytes for edge in flow.edges)
        return 0.0, MAX_STORED_SHARE * payload_bytes
    # Pickle may write the numbers of a list in fewer bytes than they have in the size of the message.
    least_bytes = sum(message.least_bytes for message in flow.messages)
    message_bytes = sum(message.bytes for message in flow.messages)
    least_share = least_bytes / message_bytes
    large_bytes = mean_stored_bytes(plan, numbers, INLINED_BYTES)
    low = MIN_STORED_FACTOR * large_bytes * least_share
    tensors = sum(len(edge.message.tensor_bytes) for edge in flow.edges)
    headers_bytes = PICKLED_TENSOR_BYTES * tensors
    expected_bytes = mean_stored_bytes(plan, numbers) + plan.added.stored_bytes
    high = MAX_STORED_FACTOR * expected_bytes + headers_bytes
    return low, high


def expect_on_loopback(plan: Plan, run: Run) -> Received:
    """Return what the loopback interface has received, and what is sent over it on one machine."""
    flow = plan.sent_flow
    message_bytes = sum(edge.message.least_bytes for edge in flow.edges)
    other_bytes = sum(task.other_bytes for task in flow.tasks)
    received_bytes = run.loopback_bytes or 0
    return Received("the loopback interface", received_bytes, message_bytes + other_bytes)


def expect_on_nodes(plan: Plan, run: Run, worker_nodes: Mapping[str, int]) -> list[Received]:
    """Return what the nodes have received, and what crosses to each of them."""
    sent_bytes: Counter[int] = Counter()
    links = bytes_by_link(plan.crossings(worker_nodes))
    for (_, reader), count in links.items():
        sent_bytes[reader] += count
    received = []
    for node, costs in run.node_costs.items():
        expected_bytes = sent_bytes[int(node)]
        received.append(Received(f"node {node}", costs.received_bytes, expected_bytes))
    return received


def mark_requested_paths(
    plan: Plan, run: Run, worker_nodes: Mapping[str, int], views: Mapping[str, bool | None]
) -> None:
    """Add AS_REQUESTED to the data path of each message that no counter and no view of shared memory shows.

    Ray shows the channels of its graphs. Transports that read the log of a library add the words themselves.
    Acknowledgements are left out, and so are transports of which no counter or view could show a message.
    """
    transport = plan.transport
    can_be_shown = stores_messages(plan) or transport.uses_sockets or transport.gives_views
    if transport.stores == "channels" or transport.bypasses_kernel or not can_be_shown:
        return
    # Edge between nodes -> whether the node that receives it counts its bytes.
    counted: dict[Edge, bool] = {}
    for edges, _, reader in plan.crossings(worker_nodes):
        costs = run.node_costs.get(str(reader), NodeCosts())
        is_known = costs.received_bytes is not None
        counted |= dict.fromkeys(edges, is_known)
    for edge in plan.sent_flow.edges:
        name = str(edge)
        has_view = plan.expects_views and views.get(name)
        is_seen = has_view or counted.get(edge) or is_counted_here(plan, edge)
        is_marked = AS_REQUESTED in run.data_paths[name]
        if not is_seen and not is_marked and edge.message != ACKNOWLEDGEMENT:
            run.data_paths[name] += AS_REQUESTED


def is_counted_here(plan: Plan, edge: Edge) -> bool:
    """Return whether the object store or the loopback interface counts a message; other jobs may use a cluster's."""
    if plan.options.address:
        return False
    is_stored = stores_messages(plan) and stored_size(plan, edge.message) > INLINED_BYTES
    return is_stored or plan.transport.uses_sockets


def stores_messages(plan: Plan) -> bool:
    return plan.transport.stores not in ("", "channels")


def stored_size(plan: Plan, message: Message) -> int:
    """Return the bytes of a message in the store. Pickle writes each view with its full storage."""
    return message.serialised_bytes if plan.transport.carries_objects else message.bytes


def mean_stored_bytes(plan: Plan, numbers: range, larger_than: int = 0) -> float:
    """Return the mean of `expected_stored_bytes` over these iterations."""
    count = max(len(message.sizes) for message in plan.sent_flow.messages)
    by_size = [expected_stored_bytes(plan, larger_than, number) for number in range(count)]
    return fmean(by_size[number % count] for number in numbers)


def expected_stored_bytes(plan: Plan, larger_than: int = 0, number: int = 0) -> int:
    """Return the bytes of messages of more than so many bytes that the object store takes in with an iteration.

    The result is 0 if messages do not pass through the store.
    """
    stores = plan.transport.stores
    stored = find_stored_messages(plan.sent_flow, stores)
    sizes = [stored_size(plan, message.at(number)) for message in stored]
    if stores == "buffers":  # they hold batches, and no views with their storage
        for edge in plan.task_flow.edges:
            message = edge.message
            if message != ACKNOWLEDGEMENT and not message.is_parameters:
                sizes += [message.bytes, message.bytes]
    return sum(size for size in sizes if size > larger_than)


def find_stored_messages(flow: Flow, stores: str) -> list[Message]:
    """Return the messages that the object store takes in per iteration; stores: as in `Transport.stores`."""
    if stores == "messages":
        return list(flow.messages)
    if stores in ("calls", "buffers"):
        return [edge.message for edge in flow.edges]
    if stores == "arguments":
        results = [task.sends for task in flow.tasks]
        arguments = [edge.message for edge in flow.edges if edge.reader != DRIVER]
        return results + arguments
    return []
