# SPDX-License-Identifier: Apache-2.0
"""Send messages through the shared memory of iceoryx2. The sender copies each message once, and readers get a view."""

import ctypes
from collections import deque
from typing import Any

from dataflow.errors import RunFailed
from dataflow.studies.external_systems.peers import Peer, by_sockets, from_block, to_block

SLICE_MARGIN = 2**16  # bytes of the pickle in a message, whose memory grows if it needs more


class IceoryxPeer(Peer):
    """A service per sending task. It writes a message once into shared memory, and its readers get a view of it.

    A message has only the readers that have subscribed before it is sent. So a sender opens its publishers when
    each of its readers has published the address "ready".
    """

    def __init__(self, endpoint):
        """Subscribe to the messages that this worker reads; prepare to send once all of its readers have subscribed.

        It waits for them without a limit: the supervisor ends a run that does not start.
        """
        super().__init__(endpoint)
        import iceoryx2

        self.loan_error = iceoryx2.LoanError
        self.in_flight = self.plan.options.in_flight
        self.node = make_node(self.plan.run_folder)
        self.subscribers = {}  # by edge, with the listener of its events
        self.publishers = {}  # by sending task, with the notifier of its events
        # The last messages of each edge, as many as are in flight: iceoryx2 frees the memory of those that are dropped.
        self.kept_samples: dict[Any, deque] = {}
        for edge in self.reads:
            self.kept_samples[edge] = deque(maxlen=self.in_flight)
            self.subscribe(edge)
            self.publish_address(edge, "ready")
        # No two wait for each other, because each one has subscribed before.
        for edge in self.sends:
            self.wait_for_address(edge)
        for task in dict.fromkeys(edge.source for edge in self.sends):
            self.open_publisher(task)

    def subscribe(self, edge):
        """Begin to receive the messages of an edge. What is sent before is lost."""
        messages, events = self.open_service(edge.source)
        subscriber = messages.subscriber_builder().create()
        listener = events.listener_builder().create()
        self.subscribers[edge] = subscriber, listener

    def open_publisher(self, task):
        """Prepare to send the messages of a task, when all of its readers have subscribed."""
        from iceoryx2 import AllocationStrategy

        messages, events = self.open_service(task)
        message_bytes = self.flow.message(task).bytes
        builder = messages.publisher_builder()
        builder = builder.initial_max_slice_len(message_bytes + SLICE_MARGIN)
        builder = builder.allocation_strategy(AllocationStrategy.PowerOfTwo)
        publisher = builder.create()
        notifier = events.notifier_builder().create()
        self.publishers[task] = publisher, notifier

    def open_service(self, task):
        """Return the service of a task's messages, and that of the events that wake its readers up."""
        from iceoryx2 import ServiceName, Slice

        service = self.node.service_builder(ServiceName.new(task))
        readers = len(self.flow.edges_from(task))
        nodes = readers + 1
        messages = service.publish_subscribe(Slice[ctypes.c_uint8])
        messages = messages.max_publishers(1).max_subscribers(readers).max_nodes(nodes)
        messages = messages.subscriber_max_buffer_size(self.in_flight)
        messages = messages.subscriber_max_borrowed_samples(self.in_flight + 1)
        events = service.event().max_listeners(readers).max_nodes(nodes)
        return messages.open_or_create(), events.open_or_create()

    def send(self, task, payload):
        """Write a message into shared memory, and wake its readers up."""
        publisher, notifier = self.publishers[task]
        block = to_block(payload, self.flow.message(task))
        parts = [memoryview(part).cast("B") for part in block]
        count = sum(map(len, parts))
        try:
            sample = publisher.loan_slice_uninit(count)
        except self.loan_error as error:
            reason = f"{task} cannot write its message into shared memory: {error}"
            raise RunFailed(reason) from None
        write(parts, sample.payload().as_memory_view().cast("B"))
        sample.assume_init().send()
        notifier.notify()

    def read(self, edge):
        """Wait for the next message of an edge, and return the payload that lies in its shared memory."""
        subscriber, listener = self.subscribers[edge]
        sample = subscriber.receive()
        while sample is None:
            listener.blocking_wait()
            sample = subscriber.receive()
        self.kept_samples[edge].append(sample)
        memory = sample.payload().as_memory_view()
        return from_block(memory, edge, self.endpoint.device)


def make_node(run_folder):
    """Return a node of iceoryx2 whose files the cleanup of the run finds."""
    import iceoryx2

    iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
    config = iceoryx2.config.default()
    places = config.global_cfg
    places.root_path = iceoryx2.Path.new(str(run_folder))
    places.prefix = iceoryx2.FileName.new(f"{run_folder.name}.")
    builder = iceoryx2.NodeBuilder.new().config(config)
    return builder.create(iceoryx2.ServiceType.Ipc)


def write(parts, memory):
    """Write the parts one after the other into the memory. All of them are views of bytes."""
    begin = 0
    for part in parts:
        end = begin + len(part)
        memory[begin:end] = part
        begin = end


PEERS = {"iceoryx2": (IceoryxPeer, "shared memory of iceoryx2")}
TRANSPORTS = dict.fromkeys(PEERS, by_sockets)
