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
        super().__init__(endpoint)
        from nixl._api import nixl_agent, nixl_agent_config

        name = self.plan.transport.name
        self.operation = "WRITE" if name == "nixl-write" else "READ"
        has_thread = (
            name == "nixl-read-thread"
        )  # it polls all the time, as in Ray; here, each worker polls itself
        self.agent = nixl_agent(endpoint.name, nixl_agent_config(has_thread, backends=["UCX"]))
        for outbox in endpoint.outboxes.values():
            for payload in outbox.buffers or outbox.pool:
                self.agent.register_memory(list_tensors(payload))
        self.arrived: dict[Edge, deque[bytes]] = {edge: deque() for edge in self.reads}
        self.buffers, self.targets = {}, {}
        for edge in self.reads:
            payloads = [
                like(edge.message, endpoint.device) for _ in range(self.plan.options.in_flight)
            ]
            descriptors = [self.register(payload) for payload in payloads]
            self.buffers[edge] = cycle(zip(payloads, descriptors, strict=True))
            self.publish_address(
                edge, json.dumps([self.agent.get_serialized_descs(d).hex() for d in descriptors])
            )
        self.publish_address(endpoint.name, self.agent.get_agent_metadata().hex())
        tasks = [edge.source for edge in self.reads] + [edge.reader for edge in self.sends]
        for name in {self.flow.actor(task) for task in tasks} - {endpoint.name}:
            self.agent.add_remote_agent(bytes.fromhex(self.wait_for_address(name)))
        for edge in self.sends:
            targets = map(bytes.fromhex, json.loads(self.wait_for_address(edge)))
            self.targets[edge] = cycle([self.agent.deserialize_descs(target) for target in targets])

    def register(self, payload):
        self.agent.register_memory(list_tensors(payload))
        return self.agent.get_xfer_descs(list_tensors(payload))

    def send(self, task, payload):
        sent = self.agent.get_xfer_descs(to_tensor_list(payload, self.flow.message(task)))
        for edge in self.flow.edges_from(task):
            number, reader = (
                self.flow.edges.index(edge).to_bytes(NUMBER_BYTES),
                self.flow.actor(edge.reader),
            )
            if self.operation == "READ":
                self.agent.send_notif(reader, number + self.agent.get_serialized_descs(sent))
            else:
                self.transfer(edge, sent, next(self.targets[edge]), reader, number)

    def transfer(self, edge, own, remote, agent_name, notification=b""):
        try:
            handle = self.agent.initialize_xfer(
                self.operation, own, remote, agent_name, notification
            )
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
        while not self.arrived[edge]:
            for notification in (
                one for of_agent in self.agent.get_new_notifs().values() for one in of_agent
            ):
                number, text = notification[:NUMBER_BYTES], notification[NUMBER_BYTES:]
                self.arrived[self.flow.edges[int.from_bytes(number)]].append(text)
            if not self.arrived[edge]:
                time.sleep(CHECK_SECONDS)
        text, (payload, descriptors) = self.arrived[edge].popleft(), next(self.buffers[edge])
        if self.operation == "READ":
            source = self.agent.deserialize_descs(text)
            self.transfer(edge, descriptors, source, self.flow.actor(edge.source))
        return payload


PEERS = dict.fromkeys(
    ("nixl-read", "nixl-read-thread", "nixl-write"), (NixlPeer, "NIXL over UCX (as requested)")
)
TRANSPORTS = dict.fromkeys(PEERS, by_sockets)
