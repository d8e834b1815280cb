# SPDX-License-Identifier: Apache-2.0
"""Send messages over systems that people use instead of Ray's transports.

Plain processes send every message as a pickle with out-of-band buffers (protocol 5): the memory of the tensors is
handed to the system without a copy in Python. `make peers` installs the systems.
"""

import pickle
import queue
import time
from collections.abc import Callable
from http.client import HTTPException
from importlib import import_module
from itertools import pairwise

import numpy as np

from dataflow.endpoints.tensors import ARRAYS
from dataflow.errors import RunFailed
from dataflow.flows.flow import Edge
from dataflow.transports.processes import LoopActor, connect
from dataflow.workers.worker_group import Connection, WorkerGroup

POLL_SECONDS = 0.01
LENGTH_BYTES = 8
VALUES = 2  # index of the buffer of an Arrow array's values, after those of its nulls and offsets


def to_parts(payload, message=None):
    """Return a pickle and the buffers of its tensors. They share the memory of the tensors."""
    buffers: list[pickle.PickleBuffer] = []
    arrays = ARRAYS.encode(payload)
    head = pickle.dumps(arrays, protocol=5, buffer_callback=buffers.append)
    return [head, *(buffer.raw() for buffer in buffers)]


def from_parts(parts, edge, device):
    """Return a payload in the memory of the received parts."""
    head, *buffers = parts
    arrays = pickle.loads(head, buffers=buffers)
    return ARRAYS.decode(arrays, edge.message, device)


def to_block(payload, message):
    """Return the number of parts, their bytes, and the parts, in a list: a file and a raw body have this order."""
    parts = to_parts(payload)
    sizes = [memoryview(part).nbytes for part in parts]
    header = [number.to_bytes(LENGTH_BYTES, "little") for number in (len(parts), *sizes)]
    return [*header, *parts]


def from_block(data, edge, device):
    """Return the payload of a block; raise ValueError if the block is cut."""
    view = memoryview(data)
    count = int.from_bytes(view[:LENGTH_BYTES], "little")
    header_bytes = LENGTH_BYTES * (1 + count)
    sizes = np.frombuffer(view[LENGTH_BYTES:header_bytes], np.int64)
    borders = np.cumsum([header_bytes, *sizes]).tolist()
    total = borders[-1]
    if len(view) != total:
        raise ValueError(f"the message is cut: {len(view)} of {total} bytes")
    parts = [view[begin:end] for begin, end in pairwise(borders)]
    return from_parts(parts, edge, device)


class Peer:
    """Send and receive messages for one endpoint. Peers tell each other their addresses in files of the run."""

    encode: Callable = staticmethod(to_parts)
    decode: Callable = staticmethod(from_parts)
    send_data: Callable  # (edge, data), a method of each subclass that does not replace `send`
    receive_data: Callable  # (edge), the same for `read`

    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.plan = endpoint.plan
        self.flow = endpoint.sent_flow
        actor = endpoint.name
        self.reads = [edge for edge in self.flow.edges if actor == self.flow.actor(edge.reader)]
        self.sends = [edge for edge in self.flow.edges if actor == self.flow.actor(edge.source)]

    def address_file(self, whose):
        """Return the file with the address of an edge or an actor."""
        name = self.flow.edges.index(whose) if isinstance(whose, Edge) else whose
        return self.plan.run_folder / f"{name}.address"

    def publish_address(self, whose, address):
        """Write an address into its file, which readers see only when it is complete."""
        file = self.address_file(whose)
        unfinished = file.with_suffix(".new")
        unfinished.write_text(address)
        unfinished.rename(file)

    def wait_for_address(self, whose):
        """Return what another worker publishes as the address of an edge or of itself.

        There is no limit of time: the supervisor ends a run that does not start.
        """
        file = self.address_file(whose)
        while not file.exists():
            time.sleep(POLL_SECONDS)
        return file.read_text()

    def send(self, task, payload):
        """Send the message of a task to all of its readers; raise RunFailed if one of them does not get it."""
        data = self.encode(payload, self.flow.message(task))  # once for all readers
        for edge in self.flow.edges_from(task):
            try:
                self.send_data(edge, data)
            except (OSError, HTTPException) as error:
                raise RunFailed(f"{edge}: {edge.source} cannot send its message: {error}") from None

    def receive_all(self, task):
        """Return the payloads of the task's inputs, in the order of its arguments."""
        return [self.read(edge) for edge in self.flow.edges_to(task)]

    def read(self, edge):
        """Wait for the next message of an edge, and return its payload; raise RunFailed if it cannot be read."""
        try:
            return self.decode(self.receive_data(edge), edge, self.endpoint.device)
        except (OSError, ValueError) as error:
            raise RunFailed(f"{edge}: {edge.reader} cannot read its message: {error}") from None


class ZmqPeer(Peer):
    """A push socket per message that is sent, a pull socket per message that is received."""

    def __init__(self, endpoint):
        """Bind a socket per message that is read, and connect one per message that is sent.

        It waits for the addresses of readers without a limit: the supervisor ends a run that does not start.
        """
        super().__init__(endpoint)
        import zmq

        context = zmq.Context()
        self.pulls = {}  # sockets by edge
        self.pushes = {}
        for edge in self.reads:
            pull = context.socket(zmq.PULL)
            self.pulls[edge] = pull
            self.publish_address(edge, self.bind(pull, edge))
        for edge in self.sends:
            push = context.socket(zmq.PUSH)
            push.connect(self.wait_for_address(edge))
            self.pushes[edge] = push

    def bind(self, socket, edge):
        """Return the address at which the socket waits for the edge's messages."""
        if self.plan.transport.name == "zmq-tcp":
            port = socket.bind_to_random_port("tcp://127.0.0.1")
            return f"tcp://127.0.0.1:{port}"
        address = f"ipc://{self.address_file(edge).with_suffix('.socket')}"
        socket.bind(address)
        return address

    def send_data(self, edge, parts):
        self.pushes[edge].send_multipart(parts, copy=False)

    def receive_data(self, edge):
        return [frame.buffer for frame in self.pulls[edge].recv_multipart(copy=False)]


class FlightPeer(Peer):
    """A Flight server per reader, and a do_put per message: a record batch of one row, with a column per part."""

    def __init__(self, endpoint):
        """Start a server that puts what it gets into a queue per edge, and make a client of each reader's server.

        It waits for the addresses of readers without a limit: the supervisor ends a run that does not start.
        """
        super().__init__(endpoint)
        import pyarrow
        from pyarrow import flight

        received: dict[str, queue.SimpleQueue]
        received = {str(edge): queue.SimpleQueue() for edge in self.reads}

        class Server(flight.FlightServerBase):
            def do_put(self, context, descriptor, reader, writer):
                edge = descriptor.path[0].decode()
                columns = reader.read_chunk().data.columns
                parts = [column.buffers()[VALUES] for column in columns]
                received[edge].put(parts)

        self.arrow = pyarrow
        self.flight = flight
        self.received = received
        self.clients = {}
        self.server = Server("grpc+tcp://127.0.0.1:0")
        for edge in self.reads:
            self.publish_address(edge, f"grpc+tcp://127.0.0.1:{self.server.port}")
        for edge in self.sends:
            self.clients[edge] = flight.connect(self.wait_for_address(edge))

    def send_data(self, edge, parts):
        buffers = [self.arrow.py_buffer(part) for part in parts]
        columns = [self.to_column(buffer) for buffer in buffers]
        names = [str(index) for index in range(len(columns))]
        batch = self.arrow.RecordBatch.from_arrays(columns, names)
        descriptor = self.flight.FlightDescriptor.for_path(str(edge))
        writer, _ = self.clients[edge].do_put(descriptor, batch.schema)
        writer.write_batch(batch)
        writer.close()

    def to_column(self, buffer):
        """Return an array of one binary value in the memory of the buffer."""
        offsets = self.arrow.array([0, buffer.size], self.arrow.int64()).buffers()[1]
        return self.arrow.Array.from_buffers(self.arrow.large_binary(), 1, [None, offsets, buffer])

    def receive_data(self, edge):
        return self.received[str(edge)].get()


PEERS = {
    "zmq-ipc": (ZmqPeer, "ZeroMQ, Unix sockets (as requested)"),
    "zmq-tcp": (ZmqPeer, "ZeroMQ, TCP over loopback"),
    "arrow-flight": (FlightPeer, "Flight, gRPC"),
}


def find_peer(transport):
    """Return the class of a transport and its data path, from PEERS of its module."""
    return import_module(f"dataflow.{transport.module}").PEERS[transport.name]


class PeerActor(LoopActor):
    def run(self):
        peer_class, _ = find_peer(self.plan.transport)
        peer = peer_class(self)
        self.send = peer.send
        self.receive_all = peer.receive_all
        super().run()


def by_sockets(workers: WorkerGroup) -> Connection:
    """Send each message from process to process, without a store."""
    start = time.perf_counter()
    workers.start(PeerActor)
    peer_class, data_path = find_peer(workers.plan.transport)
    peer = peer_class(workers.driver)
    seconds = time.perf_counter() - start
    return connect(workers, data_path, peer, setup_seconds={"processes, connections": seconds})


TRANSPORTS = dict.fromkeys(PEERS, by_sockets)
