"""What a fault does to the participant that it strikes: values of plan/faults.py come true here, for tests alone."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from common.plan.faults import Fault


def install(participant: Any, fault: Fault) -> None:
    """Let the fault strike when its task is about to receive the message of its trip, or to emit it; or now."""
    if fault.what == "start":
        _raise(fault)
    receive, emit = participant.receive, participant.emit
    before: list[Any] = []

    def striking_receive(inputs: Any, task: str = fault.who) -> int:
        if task == fault.who and participant.inboxes[task].last + 1 >= fault.trip and fault.what in STRIKES:
            STRIKES[fault.what](fault)
        return receive(inputs, task)

    def striking_emit(number: int, task: str = fault.who) -> Any:
        payload = emit(number, task)
        if task != fault.who or number < fault.trip:
            before[:] = [payload]
        elif fault.what == "flip" and number == fault.trip:
            _last_byte(payload)
        elif fault.what == "stale":
            return before[0]
        return payload

    participant.receive, participant.emit = striking_receive, striking_emit


def _last_byte(payload: Any) -> None:
    """Change one bit of the last tensor's last byte."""
    import torch

    tensors = [payload] if isinstance(payload, torch.Tensor) else [
        leaf for value in payload.values() for leaf in (value if isinstance(value, list) else [value])
        if isinstance(leaf, torch.Tensor) and leaf.nbytes
    ]  # fmt: skip
    tensors[-1].reshape(-1).view(torch.uint8)[-1] ^= 1


def _raise(_: Fault) -> None:
    raise OSError("no luck today")


def _garbage(_: Fault) -> None:
    """What no library should do, and one did."""
    os.write(1, b"\x00\xff{not a report\n" * 1000)
    for folder in sys.argv[1:2]:
        with open(os.path.join(folder, "report"), "ab") as report:
            report.write(b"\xff\x00{garbage\n")
    os._exit(0)


def _compute(seconds: float) -> None:
    """Take this long exactly: who sleeps wakes up later than asked, and finds its caches cold."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


STRIKES: dict[str, Callable[[Fault], Any]] = {
    "die": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "segfault": lambda _: ctypes.string_at(0),
    "hang": lambda _: ctypes.PyDLL(None).pause(),  # in C, and with the interpreter's lock
    "raise": _raise,
    "garbage": _garbage,
    "delay": lambda fault: _compute(fault.seconds),
}
