"""How long does one iteration of the RLHF data flow take over systems that people use instead of Ray's transports?

Plain processes send every message as a pickle with out-of-band buffers (protocol 5): the memory of the tensors is
handed to the system without a copy in Python. `make peers` installs the systems.

    python3 -m dataflow run "peers zmq-ipc"
"""

import pickle
import queue
import time
from functools import partial
from typing import Any

from dataflow.endpoints.actor import Actor, Endpoint
from dataflow.endpoints.codecs import ARRAYS
from dataflow.workers.worker_group import Connection, WorkerGroup

POLL_SECONDS = 0.01


def to_parts(payload):
    """Return a pickle and the buffers of its tensors. They share the memory of the tensors."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(ARRAYS.encode(payload), protocol=5, buffer_callback=buffers.append)
    return [head, *(buffer.raw() for buffer in buffers)]


def from_parts(parts, edge, device):
    """Return a payload in the memory of the received parts."""
    return ARRAYS.decode(pickle.loads(parts[0], buffers=parts[1:]), edge.message, device)


class Peer(Endpoint):
    """An endpoint that tells its addresses to the others by files in the folder of the run."""

    send_parts: Any  # methods of each subclass
    receive_parts: Any

    def address_file(self, edge):
        return self.plan.run_folder / f"{self.sent_flow.edges.index(edge)}.address"

    def publish_address(self, edge, address):
        unfinished = self.address_file(edge).with_suffix(".new")
        unfinished.write_text(address)
        unfinished.rename(self.address_file(edge))

    def wait_for_address(self, edge):
        while not self.address_file(edge).exists():
            time.sleep(POLL_SECONDS)
        return self.address_file(edge).read_text()

    def own_edges(self):
        """Return the edges to this endpoint, and those from it."""
        edges, name = self.sent_flow.edges, self.worker.actor
        reads = [edge for edge in edges if name == self.sent_flow.actor(edge.reader)]
        return reads, [edge for edge in edges if name == self.sent_flow.actor(edge.source)]

    def send(self, task, payload):
        parts = to_parts(payload)
        for edge in self.sent_flow.edges_from(task):
            self.send_parts(edge, parts)

    def receive_all(self, task):
        return [from_parts(self.receive_parts(edge), edge, self.device) for edge in self.sent_flow.edges_to(task)]


class PeerActor(Actor):
    join: Any  # methods of the Peer that a subclass also is
    send: Any
    receive_all: Any

    def run(self):
        self.join()
        while True:
            for task in self.tasks:
                self.send(task, self.forward_step(task, *self.receive_all(task)))


class ZmqPeer(Peer):
    """A push socket per message that is sent, a pull socket per message that is received."""

    def join(self):
        import zmq

        context = zmq.Context()
        self.pulls, self.pushes = {}, {}
        reads, sends = self.own_edges()
        for edge in reads:
            self.pulls[edge] = context.socket(zmq.PULL)
            if self.plan.transport.name == "zmq-tcp":
                address = f"tcp://127.0.0.1:{self.pulls[edge].bind_to_random_port('tcp://127.0.0.1')}"
            else:
                address = f"ipc://{self.address_file(edge).with_suffix('.socket')}"
                self.pulls[edge].bind(address)
            self.publish_address(edge, address)
        for edge in sends:
            self.pushes[edge] = context.socket(zmq.PUSH)
            self.pushes[edge].connect(self.wait_for_address(edge))

    def send_parts(self, edge, parts):
        self.pushes[edge].send_multipart(parts, copy=False)

    def receive_parts(self, edge):
        return [frame.buffer for frame in self.pulls[edge].recv_multipart(copy=False)]


class ZmqActor(ZmqPeer, PeerActor):
    pass


class FlightPeer(Peer):
    """A Flight server per reader, and a do_put per message: a record batch of one row, with a column per part."""

    def join(self):
        import pyarrow
        from pyarrow import flight

        class Server(flight.FlightServerBase):
            def do_put(self, context, descriptor, reader, writer):
                batch = reader.read_chunk().data
                received[descriptor.path[0].decode()].put([column.buffers()[2] for column in batch.columns])

        self.arrow, self.flight, self.clients = pyarrow, flight, {}
        reads, sends = self.own_edges()
        received: dict[str, queue.SimpleQueue]
        self.received = received = {str(edge): queue.SimpleQueue() for edge in reads}
        self.server = Server("grpc+tcp://127.0.0.1:0")
        for edge in reads:
            self.publish_address(edge, f"grpc+tcp://127.0.0.1:{self.server.port}")
        for edge in sends:
            self.clients[edge] = flight.connect(self.wait_for_address(edge))

    def send_parts(self, edge, parts):
        buffers = [self.arrow.py_buffer(part) for part in parts]
        columns = [self.to_column(buffer) for buffer in buffers]
        batch = self.arrow.RecordBatch.from_arrays(columns, [str(index) for index in range(len(columns))])
        writer, _ = self.clients[edge].do_put(self.flight.FlightDescriptor.for_path(str(edge)), batch.schema)
        writer.write_batch(batch)
        writer.close()

    def to_column(self, buffer):
        """Return an array of one binary value in the memory of the buffer."""
        offsets = self.arrow.array([0, buffer.size], self.arrow.int64()).buffers()[1]
        return self.arrow.Array.from_buffers(self.arrow.large_binary(), 1, [None, offsets, buffer])

    def receive_parts(self, edge):
        return self.received[str(edge)].get()


class FlightActor(FlightPeer, PeerActor):
    pass


def by_sockets(workers: WorkerGroup, actor_class, driver_class, data_path: str, *extra) -> Connection:
    """Send each message from process to process, without a store."""
    start = time.perf_counter()
    workers.start(actor_class, driver_class, *extra)
    driver = workers.driver
    driver.join()
    return Connection(
        submit=lambda query: driver.send("driver", query),
        collect=lambda _: driver.receive_all("driver"),
        data_paths={str(edge): data_path for edge in workers.sent_flow.edges},
        setup_seconds={"processes, connections": time.perf_counter() - start},
    )


TRANSPORTS = {
    "zmq-ipc": partial(
        by_sockets, actor_class=ZmqActor, driver_class=ZmqPeer, data_path="ZeroMQ, Unix sockets (as requested)"
    ),
    "zmq-tcp": partial(by_sockets, actor_class=ZmqActor, driver_class=ZmqPeer, data_path="ZeroMQ, TCP over loopback"),
    "arrow-flight": partial(by_sockets, actor_class=FlightActor, driver_class=FlightPeer, data_path="Flight, gRPC"),
}
