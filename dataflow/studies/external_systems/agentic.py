# SPDX-License-Identifier: Apache-2.0
"""Send messages as rollouts of agentic RL travel: by HTTP in four encodings, and as files.

A reader of HTTP is an aiohttp server on the loopback interface; a sender posts each message and waits for the answer. A
sender of files writes one, renames it and then makes a marker, for which the reader polls, as prime-rl does.
"""

import asyncio
import base64
import http.client
import json
import queue
import threading
import time
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np

from dataflow.endpoints.tensors import ARRAYS, assemble, tensors_of
from dataflow.flows.flow import Edge
from dataflow.studies.external_systems.peers import (
    Peer,
    by_sockets,
    from_block,
    from_parts,
    to_block,
    to_parts,
)

POLL_SECONDS = 0.001  # between two looks for a marker


def to_json(payload, message):
    """Return all values as numbers in JSON."""
    data = ARRAYS.encode(payload)
    fields = []
    for field in message.fields:
        items = tensors_of(data, field)
        values = items if field.is_python else [item.tolist() for item in items]
        fields.append(values)
    return json.dumps(fields).encode()


def from_json(data, edge, device):
    fields = json.loads(data)
    for index, field in enumerate(edge.message.fields):
        if not field.is_python:
            dtype = field.array_dtype
            items = zip(fields[index], field.shapes, strict=True)
            fields[index] = [np.array(item, dtype).reshape(shape) for item, shape in items]
    return ARRAYS.decode(assemble(edge.message, fields), edge.message, device)


def to_base64(payload, message):
    """Return the pickle and its buffers as texts in JSON."""
    texts = [base64.b64encode(part).decode() for part in to_parts(payload)]
    return json.dumps(texts).encode()


def from_base64(data, edge, device):
    parts = [base64.b64decode(text) for text in json.loads(data)]
    return from_parts(parts, edge, device)


def to_msgpack(payload, message):
    """Return the pickle and its buffers as bytes in msgpack."""
    return msgspec.msgpack.encode(to_parts(payload))


def from_msgpack(data, edge, device):
    return from_parts(msgspec.msgpack.decode(data), edge, device)


def to_raw(payload, message):
    """Return the bytes of the fields, one after the other."""
    return b"".join(to_block(payload, message))


ENCODINGS = {
    "http-json": (to_json, from_json),
    "http-base64": (to_base64, from_base64),
    "http-msgpack": (to_msgpack, from_msgpack),
    "http-raw": (to_raw, from_block),
}


class HttpPeer(Peer):
    """A server in each reader, and a connection per message of the flow, which stays open."""

    def __init__(self, endpoint):
        """Start the server in a thread of its own, and make a connection to the server of each reader.

        It waits until these readers have published their ports; the supervisor ends a run that does not start.
        """
        super().__init__(endpoint)
        self.encode, self.decode = ENCODINGS[self.plan.transport.name]
        self.received: dict[Edge, queue.SimpleQueue] = {
            edge: queue.SimpleQueue() for edge in self.reads
        }
        ports: queue.SimpleQueue[int] = queue.SimpleQueue()
        threading.Thread(target=lambda: asyncio.run(self.serve(ports)), daemon=True).start()
        port = ports.get()
        seconds = self.plan.options.timeout
        for edge in self.reads:
            self.publish_address(edge, str(port))
        self.connections = {
            edge: http.client.HTTPConnection(
                "127.0.0.1", int(self.wait_for_address(edge)), timeout=seconds
            )
            for edge in self.sends
        }

    async def serve(self, ports):
        """Put the port into `ports`, and serve until the process ends. Bodies go into the queues of their edges."""
        from aiohttp import web

        async def take(request):
            self.received[self.flow.edges[int(request.match_info["edge"])]].put(
                await request.read()
            )
            return web.Response()

        server = web.Application(client_max_size=2**40)
        server.router.add_post("/{edge}", take)
        runner = web.AppRunner(server, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ports.put(runner.addresses[0][1])
        await asyncio.Event().wait()

    def send_data(self, edge, body):
        self.connections[edge].request("POST", f"/{self.flow.edges.index(edge)}", body)
        answer = self.connections[edge].getresponse()
        answer.read()
        if answer.status != 200:
            raise OSError(f"the HTTP server of {edge.reader} answered {answer.status}")

    def receive_data(self, edge):
        return self.received[edge].get()


class FilePeer(Peer):
    """A file per message and reader, on the disk of the run's folder or in /dev/shm."""

    encode = staticmethod(to_block)
    decode = staticmethod(from_block)

    def __init__(self, endpoint):
        super().__init__(endpoint)
        is_disk = self.plan.transport.name == "file-disk"
        self.folder = self.plan.run_folder if is_disk else self.plan.shared_folder
        self.numbers = Counter[Edge]()

    def next_paths(self, edge):
        self.numbers[edge] += 1
        path = self.folder / f"message-{self.flow.edges.index(edge)}-{self.numbers[edge]}"
        return path, Path(f"{path}-ready")

    def send_data(self, edge, block):
        path, marker = self.next_paths(edge)
        with open(f"{path}-new", "wb") as file:
            file.writelines(block)
        Path(f"{path}-new").rename(path)
        marker.touch()

    def receive_data(self, edge):
        path, marker = self.next_paths(edge)
        while not marker.exists():
            time.sleep(POLL_SECONDS)
        data = np.fromfile(path, np.uint8)
        path.unlink()
        marker.unlink()
        return data


PEERS = dict.fromkeys(ENCODINGS, (HttpPeer, "HTTP, TCP over loopback")) | {
    "file-disk": (FilePeer, "file in the folder of the run (as requested)"),
    "file-shm": (FilePeer, "file in /dev/shm (as requested)"),
}
TRANSPORTS = dict.fromkeys(PEERS, by_sockets)
