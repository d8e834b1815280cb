# SPDX-License-Identifier: Apache-2.0
"""Ask a raylet for its statistics, with one call of gRPC over a socket.

Ray talks to its raylets with gRPC in C++. The Python package grpcio is not installed with a plain `pip install ray`, so
the few frames of HTTP/2 that one call needs are written here.
Sources: RFC 9113 (HTTP/2), RFC 7541 (headers), and PROTOCOL-HTTP2.md of gRPC.
"""

import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, GO_AWAY, WINDOW_UPDATE = 0, 1, 4, 6, 7, 8  # types of frames
END_STREAM = ACKNOWLEDGED = 1  # flags
END_HEADERS = 4
PADDED = 8
INITIAL_WINDOW = 4  # a setting: bytes that the server may send in a stream
MAX_WINDOW = 2**31 - 1
FIRST_WINDOW = 65_535  # of a connection, before it is raised
FRAME_HEADER_BYTES = 9
MESSAGE_HEADER_BYTES = 5  # of gRPC: whether it is compressed, and its length
LONG_STRING = 127  # in a header: its length needs more than one byte
TIMEOUT_SECONDS = 5.0


class RayletError(Exception):
    """A raylet gave no answer."""


def ask(host, port, path, request, headers=()):
    """Return the bytes that a method of a raylet answers.

    `path` is the method, such as "/ray.rpc.NodeManagerService/GetNodeStats", `request` the bytes of its message, and
    `headers` are more pairs of a name and a value. Raise OSError or RayletError without an answer.
    """
    with socket.create_connection((host, port), timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(PREFACE + settings() + open_stream(f"{host}:{port}", path, headers))
        message = struct.pack(">BI", 0, len(request)) + request
        connection.sendall(frame(DATA, END_STREAM, 1, message))
        answer = read_stream(connection)
    if len(answer) < MESSAGE_HEADER_BYTES:
        raise RayletError(f"{host}:{port} refused {path}")
    return answer[MESSAGE_HEADER_BYTES:]


def settings():
    """Return frames that allow the server to send long answers at once."""
    allowed = frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, MAX_WINDOW))
    more = struct.pack(">I", MAX_WINDOW - FIRST_WINDOW)
    return allowed + frame(WINDOW_UPDATE, 0, 0, more)


def open_stream(authority, path, headers):
    """Return the frame with the headers of a call, which begins stream 1. `headers` are more pairs, of text."""
    pairs = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *headers,
    ]
    block = b"".join(header(name, value) for name, value in pairs)
    return frame(HEADERS, END_HEADERS, 1, block)


def header(name, value):
    """Return a header that no table of the server keeps."""
    return b"\x00" + header_string(name) + header_string(value)


def header_string(text):
    """Return a string of a header: its length in 7 bits, or more of them for a long one, and its bytes."""
    data = text.encode()
    length = len(data)
    if length < LONG_STRING:
        return bytes([length]) + data
    encoded = bytearray([LONG_STRING])
    rest = length - LONG_STRING
    while rest >= 128:
        encoded.append(rest % 128 + 128)
        rest //= 128
    encoded.append(rest)
    return bytes(encoded) + data


def frame(kind, flags, stream, payload):
    length = struct.pack(">I", len(payload))[1:]
    return length + struct.pack(">BBI", kind, flags, stream) + payload


def read_stream(connection):
    """Return the data of the answer, after the server has ended it; b"" if it has refused the call.

    Raise RayletError if the server closes the connection, or sends something else for TIMEOUT_SECONDS, and OSError if
    it sends nothing for so long, or the connection fails.
    """
    answer = bytearray()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        head = read_exactly(connection, FRAME_HEADER_BYTES)
        length = int.from_bytes(head[:3], "big")
        kind, flags = head[3], head[4]
        payload = read_exactly(connection, length)
        if kind == DATA:
            answer += without_padding(payload, flags)
        elif kind in (SETTINGS, PING) and not flags & ACKNOWLEDGED:
            content = payload if kind == PING else b""
            connection.sendall(frame(kind, ACKNOWLEDGED, 0, content))
        elif kind == GO_AWAY:
            raise RayletError("the raylet has closed the connection")
        if kind in (DATA, HEADERS) and flags & END_STREAM:
            return bytes(answer)
    raise RayletError(f"no answer within {TIMEOUT_SECONDS:.0f} s")


def without_padding(payload, flags):
    if not flags & PADDED:
        return payload
    return payload[1 : len(payload) - payload[0]]


def read_exactly(connection, count):
    """Return so many bytes; raise RayletError if the connection ends before."""
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise RayletError("the raylet has closed the connection")
        data += piece
    return bytes(data)
