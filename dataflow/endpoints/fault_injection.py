"""Inject a fault into a worker, for tests: the value of --inject, such as `policy:6:die` or `policy:6:delay=5ms`."""

import ctypes
import os
import signal
import sys
import time
from typing import Any

import torch

from dataflow.endpoints.tensors import list_tensors, map_tensors
from dataflow.units import parse_seconds

# What a faulty actor sends instead of each tensor.
CHANGED = {
    "shape": lambda tensor: tensor.flatten()[1:].clone(),
    "dtype": lambda tensor: tensor.to(torch.float64),
    "device": lambda tensor: tensor.to("meta"),
}


def install(endpoint: Any, fault: str) -> None:
    """Make the fault happen when its task is about to receive, or to send, the message of its iteration.

    Kinds that are not here are those of a study, whose part makes them happen.
    """
    fault_task, iteration, kind = fault.split(":")
    first = int(iteration)
    if fault_task not in endpoint.inboxes or endpoint.worker.replica:
        return
    if kind == "start":
        raise OSError("injected fault")
    if kind in ("lost", "doubled"):  # one message, by transports whose endpoints send messages themselves
        send, times = endpoint.send, {"lost": 0, "doubled": 2}[kind]
        endpoint.send = lambda task, payload: [
            request for _ in range(times if endpoint.inboxes[task].last == first else 1)
            for request in send(task, payload) or ()
        ]  # fmt: skip
    receive, make_payload = endpoint.receive, endpoint.make_payload
    previous: list[Any] = []
    kept: list[Any] = []

    def faulty_receive(inputs: Any, task: str = fault_task) -> int:
        if task == fault_task and endpoint.inboxes[task].last + 1 >= first:
            _break(kind)
            if kind == "keep":  # a reader that never releases its views
                kept.append(inputs)
        return receive(inputs, task)

    def faulty_make_payload(number: int, task: str = fault_task) -> Any:
        payload = make_payload(number, task)
        if task != fault_task or number < first:
            previous[:] = [payload]
        elif kind == "flip" and number == first:
            tensors = [tensor for tensor in list_tensors(payload) if tensor.nbytes]
            tensors[-1].reshape(-1).view(torch.uint8)[-1] ^= 1
        elif kind == "stale":
            return previous[0]
        elif kind in CHANGED:
            return map_tensors(CHANGED[kind], payload)
        elif kind == "field":
            return {name: values for name, values in payload.items() if name != next(iter(payload))}
        return payload

    endpoint.receive, endpoint.make_payload = faulty_receive, faulty_make_payload


def _break(kind: str) -> None:
    name, _, duration = kind.partition("=")
    match name:
        case "die" | "stop":
            os.kill(os.getpid(), signal.SIGKILL if name == "die" else signal.SIGSTOP)
        case "segfault":
            ctypes.string_at(0)
        case "hang":
            ctypes.PyDLL(None).pause()  # in C, without releasing the interpreter's lock
        case "exit":
            os._exit(3)
        case "sleep":  # in Python, as an endless loop or a lock that is never released
            time.sleep(10**6)
        case "raise":
            raise OSError("injected fault")
        case "garbage":  # as a library that writes where it should not
            os.write(1, b"\x00\xff{not a report\n" * 1000)
            with open(os.path.join(sys.argv[1], "report"), "ab") as report:
                report.write(b"\xff\x00{garbage\n")
            os._exit(0)
        case "delay":  # exactly this long; a process that sleeps wakes up late and with cold caches
            end = time.perf_counter() + parse_seconds(duration)
            while time.perf_counter() < end:
                pass
