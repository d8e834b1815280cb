"""Send messages through the shared memory of iceoryx2. The sender copies each message once, and readers get a view."""

import ctypes
from collections import deque
from typing import Any

from dataflow.errors import RunFailed
from dataflow.studies.external_systems.peers import Peer, by_sockets, from_block, to_block

SLICE_MARGIN = 2**16  # bytes of the pickle in a message, whose memory grows if it needs more


class IceoryxPeer(Peer):
    """A service per sending task. It writes a message once into shared memory, and its readers get a view of it."""

    def __init__(self, endpoint):
        super().__init__(endpoint)
        import iceoryx2

        self.library, self.in_flight = iceoryx2, self.plan.options.in_flight
        iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
        config = iceoryx2.config.default()
        config.global_cfg.root_path = iceoryx2.Path.new(str(self.plan.run_folder))
        config.global_cfg.prefix = iceoryx2.FileName.new(
            f"{self.plan.run_folder.name}."
        )  # cleanup finds it
        self.node = iceoryx2.NodeBuilder.new().config(config).create(iceoryx2.ServiceType.Ipc)
        self.subscribers, self.publishers = {}, {}
        self.views: dict[Any, deque] = {edge: deque(maxlen=self.in_flight) for edge in self.reads}
        for edge in self.reads:
            messages, events = self.open_service(edge.source)
            self.subscribers[edge] = (
                messages.subscriber_builder().create(),
                events.listener_builder().create(),
            )
            self.publish_address(edge, "ready")
        for edge in self.sends:
            self.wait_for_address(edge)
        for task in dict.fromkeys(edge.source for edge in self.sends):
            messages, events = self.open_service(task)
            builder = messages.publisher_builder().allocation_strategy(
                iceoryx2.AllocationStrategy.PowerOfTwo
            )
            publisher = builder.initial_max_slice_len(
                self.flow.message(task).bytes + SLICE_MARGIN
            ).create()
            self.publishers[task] = publisher, events.notifier_builder().create()

    def open_service(self, task):
        """Return the service of a task's messages, and that of the events that wake its readers up."""
        readers, name = len(self.flow.edges_from(task)), self.library.ServiceName.new(task)
        messages = self.node.service_builder(name).publish_subscribe(
            self.library.Slice[ctypes.c_uint8]
        )
        messages = messages.max_subscribers(readers).max_nodes(readers + 1).max_publishers(1)
        messages = messages.subscriber_max_buffer_size(self.in_flight)
        messages = messages.subscriber_max_borrowed_samples(self.in_flight + 1)
        events = (
            self.node.service_builder(name).event().max_listeners(readers).max_nodes(readers + 1)
        )
        return messages.open_or_create(), events.open_or_create()

    def send(self, task, payload):
        publisher, notifier = self.publishers[task]
        block = [memoryview(part).cast("B") for part in to_block(payload, self.flow.message(task))]
        try:
            sample = publisher.loan_slice_uninit(sum(map(len, block)))
        except self.library.LoanError as error:
            raise RunFailed(
                f"{task} cannot write its message into shared memory: {error}"
            ) from None
        view, end = sample.payload().as_memory_view().cast("B"), 0
        for part in block:
            view[end : end + len(part)] = part
            end += len(part)
        sample.assume_init().send()
        notifier.notify()

    def read(self, edge):
        subscriber, listener = self.subscribers[edge]
        while (sample := subscriber.receive()) is None:
            listener.blocking_wait()
        self.views[edge].append(
            sample
        )  # its memory is free again after as many messages as are in flight
        return from_block(sample.payload().as_memory_view(), edge, self.endpoint.device)


PEERS = {"iceoryx2": (IceoryxPeer, "shared memory of iceoryx2")}
TRANSPORTS = dict.fromkeys(PEERS, by_sockets)
