"""Inject a fault into a worker, for tests. The faults are values of common/plan/options.py."""

import ctypes
import os
import signal
import sys
import time
from typing import Any

import torch

from common.endpoints.tensors import map_tensors
from common.plan.options import Fault


def install(endpoint: Any, fault: Fault) -> None:
    """Make the fault happen when its task is about to receive, or to send, the message of its iteration."""
    if fault.kind == "start":
        raise OSError("injected fault")
    receive, make_payload = endpoint.receive, endpoint.make_payload
    previous: list[Any] = []

    def faulty_receive(inputs: Any, task: str = fault.task) -> int:
        if task == fault.task and endpoint.inboxes[task].last + 1 >= fault.iteration:
            _break(fault)
        return receive(inputs, task)

    def faulty_make_payload(number: int, task: str = fault.task) -> Any:
        payload = make_payload(number, task)
        if task != fault.task or number < fault.iteration:
            previous[:] = [payload]
        elif fault.kind == "flip" and number == fault.iteration:
            tensors: list[torch.Tensor] = []
            map_tensors(tensors.append, payload)
            [tensor for tensor in tensors if tensor.nbytes][-1].reshape(-1).view(torch.uint8)[-1] ^= 1
        elif fault.kind == "stale":
            return previous[0]
        return payload

    endpoint.receive, endpoint.make_payload = faulty_receive, faulty_make_payload


def _break(fault: Fault) -> None:
    match fault.kind:
        case "die" | "stop":
            os.kill(os.getpid(), signal.SIGKILL if fault.kind == "die" else signal.SIGSTOP)
        case "segfault":
            ctypes.string_at(0)
        case "hang":
            ctypes.PyDLL(None).pause()  # in C, without releasing the interpreter's lock
        case "raise":
            raise OSError("injected fault")
        case "garbage":  # as a library that writes where it should not
            os.write(1, b"\x00\xff{not a report\n" * 1000)
            with open(os.path.join(sys.argv[1], "report"), "ab") as report:
                report.write(b"\xff\x00{garbage\n")
            os._exit(0)
        case "delay":  # exactly this long; a process that sleeps wakes up late and with cold caches
            end = time.perf_counter() + fault.seconds
            while time.perf_counter() < end:
                pass
