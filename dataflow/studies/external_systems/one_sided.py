# SPDX-License-Identifier: Apache-2.0
"""Send messages by NIXL itself: a reader reads them from the sender's memory, or the sender writes them to its readers.

It is what `rdt nixl-pull --reuse-buffers` does, without Ray. All memory is registered at the start. A notification
tells the reader where a message is (read), or that it has arrived (write).
"""

import json
import time
from collections import deque
from itertools import cycle

from dataflow.endpoints.tensors import like, list_tensors, to_tensor_list
from dataflow.errors import RunFailed
from dataflow.flows.flow import Edge
from dataflow.studies.external_systems.peers import Peer, by_sockets

CHECK_SECONDS = 0.001  # between two looks for a notification or the end of a transfer, as in Ray
NUMBER_BYTES = 2  # of an edge, at the beginning of a notification


class NixlPeer(Peer):
    """An agent per worker, and a buffer per message that it reads and iteration in flight."""

    def __init__(self, endpoint):
        """Register all memory of messages, publish where this worker receives, and wait until its peers have done so.

        There is no limit of time: the supervisor ends a run that does not start.
        """
        super().__init__(endpoint)
        from nixl._api import nixl_agent, nixl_agent_config

        transport = self.plan.transport.name
        self.is_write = transport == "nixl-write"
        # The thread polls all the time, as in Ray. Without it, each worker polls itself.
        has_thread = transport == "nixl-read-thread"
        config = nixl_agent_config(has_thread, backends=["UCX"])
        self.agent = nixl_agent(endpoint.name, config)
        self.arrived: dict[Edge, deque[bytes]] = {edge: deque() for edge in self.reads}
        self.buffers = {}  # by edge, in turn: a payload to receive into, and its descriptors
        self.targets = {}  # by edge, in turn: the descriptors of its reader's payloads
        self.register_outboxes()
        for edge in self.reads:
            self.publish_buffers(edge)
        metadata = self.agent.get_agent_metadata()
        self.publish_address(endpoint.name, metadata.hex())
        self.add_agents()
        for edge in self.sends:
            self.find_targets(edge)

    def register_outboxes(self):
        """Register all memory that messages are sent from."""
        for outbox in self.endpoint.outboxes.values():
            for payload in outbox.buffers or outbox.pool:
                self.agent.register_memory(list_tensors(payload))

    def publish_buffers(self, edge):
        """Make the payloads that an edge is received into, and tell its sender where they are."""
        pairs = []
        addresses = []
        for _ in range(self.plan.options.in_flight):
            payload = like(edge.message, self.endpoint.device)
            descriptors = self.register(payload)
            pairs.append((payload, descriptors))
            address = self.agent.get_serialized_descs(descriptors)
            addresses.append(address.hex())
        self.buffers[edge] = cycle(pairs)
        self.publish_address(edge, json.dumps(addresses))

    def add_agents(self):
        """Make the agents of the other workers known that this one sends to or reads from."""
        senders = {self.flow.actor(edge.source) for edge in self.reads}
        readers = {self.flow.actor(edge.reader) for edge in self.sends}
        for name in (senders | readers) - {self.endpoint.name}:
            metadata = bytes.fromhex(self.wait_for_address(name))
            self.agent.add_remote_agent(metadata)

    def find_targets(self, edge):
        """Wait for what `publish_buffers` of an edge's reader has written."""
        addresses = json.loads(self.wait_for_address(edge))
        targets = []
        for address in addresses:
            descriptors = self.agent.deserialize_descs(bytes.fromhex(address))
            targets.append(descriptors)
        self.targets[edge] = cycle(targets)

    def register(self, payload):
        """Register the memory of a payload, and return its descriptors."""
        tensors = list_tensors(payload)
        self.agent.register_memory(tensors)
        return self.agent.get_xfer_descs(tensors)

    def send(self, task, payload):
        """Write a message to its readers, or tell them where it is."""
        tensors = to_tensor_list(payload, self.flow.message(task))
        sent = self.agent.get_xfer_descs(tensors)
        for edge in self.flow.edges_from(task):
            number = self.flow.edges.index(edge).to_bytes(NUMBER_BYTES)
            reader = self.flow.actor(edge.reader)
            if self.is_write:
                self.transfer(edge, sent, next(self.targets[edge]), reader, number)
            else:
                where = self.agent.get_serialized_descs(sent)
                self.agent.send_notif(reader, number + where)

    def transfer(self, edge, own, remote, agent_name, notification=b""):
        """Read remote memory into the own one, or write the own one there, and wait until that has happened."""
        operation = "WRITE" if self.is_write else "READ"
        try:
            handle = self.agent.initialize_xfer(operation, own, remote, agent_name, notification)
            state = self.agent.transfer(handle)
            while state == "PROC":
                time.sleep(CHECK_SECONDS)
                state = self.agent.check_xfer_state(handle)
            self.agent.release_xfer_handle(handle)
        except Exception as error:  # those of the binding have no common class
            state = repr(error)
        if state != "DONE":
            raise RunFailed(f"{edge}: NIXL ended the transfer with {state}")

    def read(self, edge):
        """Wait for the next message of an edge; without writes, get it from its sender's memory."""
        text = self.wait_for_message(edge)
        payload, descriptors = next(self.buffers[edge])
        if not self.is_write:
            source = self.agent.deserialize_descs(text)
            self.transfer(edge, descriptors, source, self.flow.actor(edge.source))
        return payload

    def wait_for_message(self, edge):
        """Wait for the notification of an edge's next message, and return its text."""
        while not self.arrived[edge]:
            self.take_notifications()
            if not self.arrived[edge]:
                time.sleep(CHECK_SECONDS)
        return self.arrived[edge].popleft()

    def take_notifications(self):
        """Add the text of each new notification to those of its edge."""
        for notifications in self.agent.get_new_notifs().values():
            for notification in notifications:
                number = int.from_bytes(notification[:NUMBER_BYTES])
                edge = self.flow.edges[number]
                self.arrived[edge].append(notification[NUMBER_BYTES:])


DATA_PATH = "NIXL over UCX (as requested)"
PEERS = dict.fromkeys(("nixl-read", "nixl-read-thread", "nixl-write"), (NixlPeer, DATA_PATH))
TRANSPORTS = dict.fromkeys(PEERS, by_sockets)
