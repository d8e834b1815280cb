"""Define the agent of a node, a Ray actor without a task in the flow, which observes the node and times its links."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psutil
import ray

from dataflow.records.machine import describe_environment, read_cpu_seconds
from dataflow.records.schema import NodeCosts

BUFFER_BYTES = 2**20
CONNECT_SECONDS = 20


class NodeAgent:
    def __init__(self) -> None:
        self.address, self.interface = own_network()

    def describe(self) -> tuple[str, str, dict[str, Any]]:
        return self.address, self.interface, describe_environment()

    def clock(self) -> float:
        return time.perf_counter()

    def begin(self) -> None:
        """Begin to count what the node does."""
        self.before = self._count()

    def end(self) -> NodeCosts:
        """Return what the node has done since `begin`."""
        seconds, busy, stolen, *moved = [now - then for now, then in zip(self._count(), self.before, strict=True)]
        costs = NodeCosts(busy_cores=round(busy / seconds, 3), steal_cores=round(stolen / seconds, 3))
        if moved:
            costs.received_bytes = int(moved[0])
        return costs

    def _count(self) -> list[float]:
        """Return the time, the busy and stolen seconds of all cores, and the bytes of the interface if it is known."""
        network = psutil.net_io_counters(pernic=True).get(self.interface)
        return [time.monotonic(), *read_cpu_seconds(), *([network.bytes_recv] if network else [])]

    def listen(self) -> int:
        """Return the port at which `receive` accepts connections."""
        self.listener = socket.create_server((self.address, 0))
        return self.listener.getsockname()[1]

    def receive(self, connections: int) -> None:
        """Read so many connections to their ends, and close them: that tells the sender that all bytes have arrived."""

        def read(connection: socket.socket) -> None:
            buffer = bytearray(BUFFER_BYTES)
            with connection:
                while connection.recv_into(buffer):
                    pass

        self.listener.settimeout(CONNECT_SECONDS)
        with self.listener, ThreadPoolExecutor(connections) as threads:
            list(threads.map(read, [self.listener.accept()[0] for _ in range(connections)]))

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


def own_network() -> tuple[str, str]:
    """Return the address of this node in the cluster, and the name of its network interface; "" if none has it."""
    address = ray.util.get_node_ip_address()
    interfaces = psutil.net_if_addrs().items()
    names = [name for name, entries in interfaces if any(entry.address == address for entry in entries)]
    return address, names[0] if names else ""
