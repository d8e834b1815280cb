"""Time the links between nodes without Ray: TCP connections that carry as many bytes as the messages."""

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import ray

from dataflow.records.schema import Link

CONNECTIONS = (1, 4)  # of TCP, at the same time
PASSES = 3  # after one that does not count
BUFFER_BYTES = 2**20
CONNECT_SECONDS = 20
PROGRESS_SECONDS = 10  # between two reports of what a link has carried


class LinkEnd:
    """The part of a node's agent that sends and receives bytes."""

    address: str  # of the node
    received_bytes = 0  # by `receive`

    def listen(self) -> int:
        self.listener = socket.create_server((self.address, 0))
        return self.listener.getsockname()[1]

    def receive(self, connections: int) -> None:
        """Read so many connections to their ends, and close them: that tells the sender that all bytes have arrived."""

        def read(connection: socket.socket) -> None:
            buffer = bytearray(BUFFER_BYTES)
            with connection:
                while count := connection.recv_into(buffer):
                    self.received_bytes += count

        self.listener.settimeout(CONNECT_SECONDS)
        with self.listener, ThreadPoolExecutor(connections) as threads:
            list(threads.map(read, [self.listener.accept()[0] for _ in range(connections)]))

    def count_received(self) -> int:
        return self.received_bytes

    def send(self, address: str, port: int, connections: int, count: int) -> float:
        """Send `count` bytes over so many connections, and return the seconds until the last byte was read."""
        # Not bytes(n), which the kernel maps to one page of zeros again and again.
        share = memoryview(b"\1" * -(-count // connections))

        def send_share(connection: socket.socket) -> None:
            connection.sendall(share)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)

        with ExitStack() as stack, ThreadPoolExecutor(connections) as threads:
            opened = [stack.enter_context(socket.create_connection((address, port))) for _ in range(connections)]
            start = time.perf_counter()
            list(threads.map(send_share, opened))
            return time.perf_counter() - start


def measure_link(
    agents: dict[int, Any], reader_address: str, link: tuple[int, int], count: int, report: Callable[[int], Any]
) -> list[Link]:
    """Return how long `count` bytes take from one node to another, per number of connections.

    Args:
        agents: the Ray actor of each node, a LinkEnd.
        link: the nodes of sender and reader.
        report: it is called with the bytes that have arrived so far, so that the monitor sees progress.
    """
    measured = []
    for connections in CONNECTIONS:
        samples = []
        for _ in range(1 + PASSES):
            sender, reader = (agents[node] for node in link)
            port = ray.get(reader.listen.remote())
            receiving = reader.receive.remote(connections)
            sending = sender.send.remote(reader_address, port, connections, count)
            while not ray.wait([sending], timeout=PROGRESS_SECONDS)[0]:
                report(ray.get(reader.count_received.remote()))
            ray.get(receiving)
            samples.append(round(ray.get(sending), 9))
        measured.append(Link(*link, connections, count, samples[1:]))
    return measured
