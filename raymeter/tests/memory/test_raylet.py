# SPDX-License-Identifier: Apache-2.0
"""The call of gRPC that asks a raylet, against a server of grpcio."""

from collections.abc import Iterator
from concurrent import futures

import pytest
from raymeter.inside import raylet

grpc = pytest.importorskip("grpc")
PATH = "/ray.rpc.NodeManagerService/GetNodeStats"


class Echo(grpc.GenericRpcHandler):  # type: ignore[name-defined, misc]
    """Answer with what was asked, behind the token of the caller. Long answers are asked for with a number."""

    def service(self, details):
        if details.method != PATH:
            return None
        token = dict(details.invocation_metadata).get("authorization", "")
        return grpc.unary_unary_rpc_method_handler(
            lambda request, _: answer(request, token), lambda data: data, lambda data: data
        )


def answer(request: bytes, token: str) -> bytes:
    if request.isdigit():
        return b"x" * int(request)
    return f"{token}|".encode() + request


@pytest.fixture
def port() -> Iterator[int]:
    server = grpc.server(
        futures.ThreadPoolExecutor(1),
        handlers=[Echo()],
        options=[("grpc.max_send_message_length", -1)],
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None)


def test_an_answer_arrives(port: int) -> None:
    assert raylet.ask("127.0.0.1", port, PATH, b"hello") == b"|hello"


def test_an_empty_message_arrives(port: int) -> None:
    assert raylet.ask("127.0.0.1", port, PATH, b"") == b"|"


def test_headers_arrive_even_if_they_are_long(port: int) -> None:
    token = "Bearer " + 300 * "t"
    got = raylet.ask("127.0.0.1", port, PATH, b"a", [("authorization", token)])
    assert got == f"{token}|a".encode()


@pytest.mark.parametrize("size", [16_384, 70_000, 5_000_000])
def test_a_long_answer_arrives_in_many_frames(port: int, size: int) -> None:
    assert len(raylet.ask("127.0.0.1", port, PATH, str(size).encode())) == size


def test_a_method_that_is_not_there_is_an_error(port: int) -> None:
    with pytest.raises(raylet.RayletError, match="refused"):
        raylet.ask("127.0.0.1", port, "/ray.rpc.NodeManagerService/Nothing", b"")


def test_no_server_is_an_error() -> None:
    with pytest.raises(OSError, match="refused"):
        raylet.ask("127.0.0.1", 1, PATH, b"")
