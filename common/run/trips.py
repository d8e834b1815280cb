"""The trips of one case on running roles: start them, time, check, and say who failed."""

import traceback
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from tqdm import tqdm

from common.flow.flow import DRIVER, Flow
from common.run.clock import deadline, run_trips
from common.run.verdict import verdict
from common.runtime import devices
from common.trace import recorder as trace


@dataclass(frozen=True)
class Wiring:
    """A transport that is ready.

    send: one trip; the query in, what returns to the driver out, as tensors in the flow's order.
    path: for each edge, how its bytes travel, read from the running system where that is possible.
    mapped: whether the transport hands readers views of shared memory.
    setup_seconds: what it cost once, before the first trip: groups, registration of memory.
    """

    send: Callable[[Any], Sequence[Any]]
    path: dict[str, str]
    mapped: bool
    setup_seconds: dict[str, float] = field(default_factory=dict)


class Roles(Protocol):
    """Running roles, as Ray actors (ray_roles.py) or plain processes (processes.py)."""

    errors: tuple[type[Exception], ...]  # what a trip can fail with
    trainer: Any  # where the driver's ends lie in an actor of their own

    def start(self, role_class: type, flow: Flow, arguments: Namespace, *extra: Any) -> dict[str, Any]: ...
    def ask(self, method: str, *arguments: Any) -> dict[str, Any]: ...
    def placement(self) -> dict[str, int]: ...
    def store_counters(self) -> tuple[int, int]: ...
    def blame(self, error: Exception, trip: int) -> str: ...
    def kill(self) -> None: ...


START_SECONDS = 120  # until roles that do not come up are given up

# What a script gives: a context in which its transport is ready. `start` takes the classes of the roles
# and of the driver's end, and what their constructors need beside (flow, name, arguments); it gives the
# roles' handles by name, and the driver's end.
Connect = Callable[[Namespace, Flow, Callable[..., tuple[dict[str, Any], Any]]], AbstractContextManager[Wiring]]


class TripFailed(Exception):
    """A trip that raised, hung or could not begin; the message names the trip and the role."""


def measure(arguments: Namespace, flow: Flow, connect: Connect, case: dict[str, Any], roles: Roles) -> None:
    """Run the case's trips and write what they show into `case`, trip by trip.

    Raises:
        TripFailed: a role raised or died, or a trip took longer than --timeout.
    """
    driver: Any = None

    def start(role_class: type, driver_class: type, *extra: Any) -> tuple[dict[str, Any], Any]:
        nonlocal driver
        handles = roles.start(role_class, flow, arguments, *extra)
        driver = driver_class(flow, DRIVER, arguments, *extra)
        roles.trainer = getattr(driver, "actor", None)
        digests = roles.ask("own_digests") | {DRIVER: driver.own_digests()}
        roles.ask("expect", digests)
        driver.expect(digests)
        return handles, driver

    def receive(results: Sequence[Any]) -> None:
        driver.receive(results)
        devices.synchronise()

    running = 0  # the trip that is under way; 0 while there is none yet
    unchecked = 0  # trips whose bytes have not been checked yet
    last = 1 + arguments.warmup + arguments.iterations
    mapped: dict[str, bool] = {}
    moments: list[tuple[float, float]] = []  # when each timed trip began and ended
    try:
        with ExitStack() as stack:
            with deadline(max(arguments.timeout, START_SECONDS)):  # starting, connecting, compiling
                wiring = stack.enter_context(connect(arguments, flow, start))
            progress = stack.enter_context(_progress(arguments))
            case |= {"path": wiring.path, "setup_seconds": wiring.setup_seconds}
            promised = wiring.mapped and not arguments.copy_out
            trips = run_trips(
                arguments.warmup, arguments.iterations, driver.emit, wiring.send, receive,
                limit=lambda: deadline(arguments.timeout),
            )  # fmt: skip
            # Bytes taken in are counted over the timed trips, spilling over all: it slows those after it too.
            stored_bytes, spilled_bytes = roles.store_counters()
            try:
                running = 1
                for trip in trips:
                    if trip.kind == "first":
                        case["first_seconds"] = trip.seconds
                    elif trip.kind == "timed":
                        case["seconds"].append(trip.seconds)
                        moments.append((trip.start, trip.start + trip.seconds))
                    unchecked += 1
                    if trip.kind != "timed" or unchecked == arguments.episode or trip.number == last:
                        with deadline(arguments.timeout):
                            checks = roles.ask("verify", trip.number, unchecked)
                        for wrong_bytes, seen in [*checks.values(), driver.verify(trip.number, unchecked)]:
                            case["wrong_bytes"] += wrong_bytes
                            # One trip that took another path is enough to call the row something else.
                            mapped |= {e: v for e, v in seen.items() if mapped.get(e, promised) == promised}
                        # Where a GPU's memory comes from cannot be seen from outside: there the path stands for it.
                        unseen = promised and case["device"] == "cuda"
                        case["payload_copied"] = not (any(mapped.values()) or unseen)
                        unchecked = 0
                    progress.update()
                    if trip.number == 1 + arguments.warmup:
                        stored_bytes, _ = roles.store_counters()
                    running = trip.number + 1
            except BaseException as error:
                explained = isinstance(error, roles.errors)
                reason = f"trip {running}: {roles.blame(error, running)}" if explained else ""
                # A view that outlives the channel it lies in crashes the process: free the frames too.
                with suppress(*roles.errors), deadline(5):  # a trainer may be the one that died or hangs
                    driver.release()
                traceback.clear_frames(error.__traceback__)
                roles.kill()
                if explained:
                    raise TripFailed(reason) from None
                raise
            with deadline(max(arguments.timeout, START_SECONDS)):
                stored_after, spilled_after = roles.store_counters()
                case["stored_bytes"] = stored_after - stored_bytes
                case["spilled_bytes"] = spilled_after - spilled_bytes
                costs = [driver.costs(), *roles.ask("costs").values()]
                case |= {name: sum(cost[name] for cost in costs) for name in costs[0]}
                case["placement"] = roles.placement()
                if arguments.trace:
                    case |= trace.collect({DRIVER: driver.spans()} | roles.ask("spans"), moments, flow)
    except roles.errors as error:
        when = "after the last trip" if case["seconds"] else "before the first trip"
        raise TripFailed(f"{when}: {roles.blame(error, running)}") from error
    case |= verdict(case, flow, mapped, promised)


def _progress(arguments: Namespace) -> Any:
    """A bar with the time left on a terminal, nothing in a pipe."""
    total = 1 + arguments.warmup + arguments.iterations
    return tqdm(total=total, unit="trip", desc=arguments.transport, disable=None, leave=False)
