# SPDX-License-Identifier: Apache-2.0
"""Inject a fault into a worker, for tests: the value of --inject, such as `policy:6:die` or `policy:6:delay=5ms`."""

import ctypes
import os
import signal
import sys
import time
from typing import Any

import torch

from dataflow.endpoints.payload import digest
from dataflow.endpoints.tensors import Payload, list_tensors, map_tensors, to_array
from dataflow.errors import RunFailed
from dataflow.units import parse_seconds
from dataflow.workers.cleanup import process_status


def flip_last_byte(payload: Payload) -> Payload:
    tensor = [tensor for tensor in list_tensors(payload) if tensor.nbytes][-1]
    tensor.reshape(-1).view(torch.uint8)[-1] ^= 1
    return payload


# What a faulty task sends instead of a payload.
CHANGES = {
    "flip": flip_last_byte,
    "shape": lambda payload: map_tensors(lambda tensor: tensor.flatten()[1:].clone(), payload),
    "device": lambda payload: map_tensors(lambda tensor: tensor.to("meta"), payload),
    "field": lambda payload: dict(list(payload.items())[1:]),
}
SENT_TIMES = {"lost": 0, "doubled": 2}  # how often a message is sent
SLOW_MANAGERS: list[Any] = []  # those of Ray Direct Transport that were made late in this process


def install(endpoint: Any, fault: str) -> None:
    """Make the fault happen when its task is about to receive, or to send, the message of its iteration.

    Kinds that are not here are those of a study, whose part makes them happen.
    """
    fault_task, iteration, kind = fault.split(":")
    first = int(iteration)
    if fault_task not in endpoint.inboxes:
        return
    if kind == "start":
        raise OSError("injected fault")
    if kind == "slow-manager":
        _delay_rdt_manager()
    receive = endpoint.receive
    make_payload = endpoint.make_payload
    kept: list[Any] = []

    def faulty_receive(inputs: Any, task: str = fault_task) -> int:
        if task == fault_task and endpoint.inboxes[task].last + 1 >= first:
            _break(kind)
            if kind == "keep":  # a reader that never releases its views
                kept.append(inputs)
        return receive(inputs, task)

    def faulty_make_payload(number: int, task: str = fault_task) -> Any:
        payload = make_payload(number, task)
        if task == fault_task and number >= first:
            return kept[-1] if kind == "stale" else CHANGES.get(kind, lambda same: same)(payload)
        if kind == "stale":
            kept[:] = [payload]
        return payload

    endpoint.receive = faulty_receive
    endpoint.make_payload = faulty_make_payload
    _break_sending(endpoint, fault_task, first, kind)


def _delay_rdt_manager() -> None:
    """Let Ray Direct Transport need so long to make its manager that two threads make one, if the suite lets them."""
    from ray.experimental.rdt.rdt_manager import RDTManager

    construct = RDTManager.__init__

    def construct_late(manager: Any) -> None:
        time.sleep(0.5)
        SLOW_MANAGERS.append(manager)
        construct(manager)

    RDTManager.__init__ = construct_late  # type: ignore[method-assign]


def _break_sending(endpoint: Any, task: str, number: int, kind: str) -> None:
    """Make a fault happen between a sender and its reader, if it is of such a kind."""
    if kind in SENT_TIMES:
        _send_repeatedly(endpoint, number, SENT_TIMES[kind])
    if kind == "kill-sender":
        _kill_sender_before_read(endpoint, task, number)
    if kind == "hold":
        _hold_message(endpoint.inboxes[task], number)


def _hold_message(inbox: Any, number: int) -> None:
    """Hold a message as its reader has it, and raise RunFailed as soon as a later message has changed it."""
    take = inbox.take
    held: list[torch.Tensor] = []
    digests: list[int] = []

    def digest_held() -> list[int]:
        return [digest([to_array(tensor)], skip=0) for tensor in held]

    def watching_take(inputs: Any) -> int:
        if digest_held() != digests:
            raise RunFailed(f"a later message has overwritten message {number}")
        taken: int = take(inputs)
        if taken == number:
            held.clear()  # of the try of the verification before the first message, which has number 2
            for payload in inputs:
                held.extend(list_tensors(payload))
            digests[:] = digest_held()
        return taken

    inbox.take = watching_take


def _kill_sender_before_read(endpoint: Any, task: str, number: int) -> None:
    """Kill the process that has sent a message, right before NIXL reads it from there."""
    from nixl._api import nixl_agent

    initialize = nixl_agent.initialize_xfer

    def faulty_initialize(
        agent: Any, operation: str, own: Any, remote: Any, sender: str, *notification: bytes
    ) -> Any:
        if endpoint.inboxes[task].last + 1 == number:
            pid = endpoint.progress.processes()[sender]
            os.kill(pid, signal.SIGKILL)
            while process_status(pid):
                time.sleep(0.001)
        return initialize(agent, operation, own, remote, sender, *notification)

    nixl_agent.initialize_xfer = faulty_initialize


def _send_repeatedly(endpoint: Any, number: int, times: int) -> None:
    """Send one message so many times, by a transport whose endpoints send messages themselves."""
    send = endpoint.send

    def faulty_send(task: str, payload: Payload) -> list[Any]:
        count = times if endpoint.inboxes[task].last == number else 1
        requests: list[Any] = []
        for _ in range(count):
            requests += send(task, payload) or ()
        return requests

    endpoint.send = faulty_send


def _break(kind: str) -> None:
    name, _, duration = kind.partition("=")
    match name:
        case "die" | "stop":
            os.kill(os.getpid(), signal.SIGKILL if name == "die" else signal.SIGSTOP)
        case "segfault":
            ctypes.string_at(0)
        case "hang":
            pause = ctypes.PyDLL(None).pause  # in C, without releasing the interpreter's lock
            while True:  # a signal ends one of them
                pause()
        case "raise":
            raise OSError("injected fault")
        case "slow-manager" if not SLOW_MANAGERS:
            raise OSError("no manager was made late")
        case "garbage":  # as a library that writes where it should not
            with open(os.path.join(sys.argv[1], "report"), "ab") as report:
                report.write(b"\xff\x00{garbage\n")
            os._exit(0)
        case "delay":  # exactly this long; a process that sleeps wakes up late and with cold caches
            end = time.perf_counter() + parse_seconds(duration)
            while time.perf_counter() < end:
                pass
