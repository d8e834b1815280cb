"""The trips of one case on a live cluster: start the roles, time, check, and say who failed."""

import traceback
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from common import cluster, devices
from common.flows import DRIVER, Flow
from common.timing import TripTimeout, deadline, run_trips

# Ray keeps smaller results in its messages, not in shared memory (max_direct_call_object_size).
INLINED_BYTES = 100 * 1024


@dataclass(frozen=True)
class Wiring:
    """A transport that is ready.

    send: one trip; the query in, what returns to the driver out, as tensors in the flow's order.
    path: for each edge, how its bytes travel, read from the running system where that is possible.
    mapped: whether readers are meant to see views of shared memory.
    """

    send: Callable[[Any], Sequence[Any]]
    path: dict[str, str]
    mapped: bool


# What a script gives: a context in which its transport is ready. `start` takes the class of the
# roles and gives their actor handles by name.
Connect = Callable[[Namespace, Flow, Callable[[type], dict[str, Any]]], AbstractContextManager[Wiring]]


class TripFailed(Exception):
    """A trip that raised, hung or could not begin; the message names the trip and the role."""


def measure(arguments: Namespace, flow: Flow, connect: Connect, case: dict[str, Any], gpus: int) -> None:
    """Run the case's trips and write what they show into `case`, trip by trip.

    Raises:
        TripFailed: a role raised or died, or a trip took longer than --timeout.
    """
    # Ray reads its settings when it is imported: not before cluster.configure has set them.
    import ray

    from common.actors import Participant

    driver = Participant(flow, DRIVER, arguments.device)
    handles: dict[str, Any] = {}

    def start(role_class: type) -> dict[str, Any]:
        share = devices.gpus_per_role(gpus, len(flow.roles))
        for role in flow.roles:
            # The class bears the role's name, so its process does too.
            actor_class = ray.remote(type(role.name, (role_class,), {})).options(num_cpus=0, num_gpus=share)
            handles[role.name] = actor_class.remote(flow, role.name, arguments.device, arguments.threads)
        own = ray.get([handle.own_digests.remote() for handle in handles.values()])
        digests = dict(zip([*handles, DRIVER], [*own, driver.digests], strict=True))
        ray.get([handle.expect.remote(digests) for handle in handles.values()])
        driver.expect(digests)
        return handles

    def receive(results: Sequence[Any]) -> None:
        driver.receive(results)
        devices.synchronise()

    running = 0  # the trip that is under way; 0 while there is none yet
    mapped: dict[str, bool] = {}
    try:
        with connect(arguments, flow, start) as wiring, _progress(arguments) as progress:
            case["path"] = wiring.path
            trips = run_trips(
                arguments.warmup, arguments.iterations, driver.emit, wiring.send, receive,
                limit=lambda: deadline(arguments.timeout),
            )  # fmt: skip
            stored_bytes, spilled_bytes = cluster.store_counters()
            try:
                running = 1
                for trip in trips:
                    if trip.kind == "first":
                        case["first_seconds"] = trip.seconds
                    elif trip.kind == "timed":
                        case["seconds"].append(trip.seconds)
                    with deadline(arguments.timeout):
                        checks = ray.get([handle.verify.remote(trip.number) for handle in handles.values()])
                    for wrong_bytes, seen in [*checks, driver.verify(trip.number)]:
                        case["wrong_bytes"] += wrong_bytes
                        mapped |= seen
                    case["payload_copied"] = not any(mapped.values())
                    progress.update()
                    running = trip.number + 1
            except BaseException as error:
                explained = isinstance(error, (ray.exceptions.RayError, TripTimeout, TypeError))
                reason = f"trip {running}: {blame(error, handles, running)}" if explained else ""
                # A view that outlives the channel it lies in crashes the process: free the frames too.
                driver.release()
                traceback.clear_frames(error.__traceback__)
                cluster.kill_roles(handles)
                if explained:
                    raise TripFailed(reason) from None
                raise
            stored_after, spilled_after = cluster.store_counters()
            case["stored_bytes"] = stored_after - stored_bytes
            case["spilled_bytes"] = spilled_after - spilled_bytes
            peaks = ray.get([handle.peak_memory_bytes.remote() for handle in handles.values()])
            case["peak_memory_bytes"] = sum(peaks) + driver.peak_memory_bytes()
    except ray.exceptions.RayError as error:
        raise TripFailed(f"before the first trip: {blame(error, handles, running)}") from error
    case |= verdict(case, flow, mapped, wiring.mapped)


def _progress(arguments: Namespace) -> Any:
    """A bar with the time left on a terminal, nothing in a pipe."""
    total = 1 + arguments.warmup + arguments.iterations
    return tqdm(total=total, unit="trip", desc=arguments.transport, disable=None, leave=False)


def verdict(case: dict[str, Any], flow: Flow, mapped: dict[str, bool], promised: bool) -> dict[str, Any]:
    """The case's status: bytes must be right, and must have taken the path that the transport names."""
    for edge in flow.edges:
        if promised and edge.bytes <= INLINED_BYTES:
            continue
        if case["device"] == "cpu" and mapped[str(edge)] != promised:
            found = "mapped" if mapped[str(edge)] else "copied"
            return {"status": "failed", "reason": f"{edge}: the payload was {found}, which {case['transport']} is not"}
    if case["wrong_bytes"]:
        return {"status": "failed", "reason": f"{case['wrong_bytes']} wrong bytes arrived: this transport loses data"}
    return {"status": "ok", "reason": None}


def blame(error: Exception, handles: dict[str, Any], trip: int) -> str:
    """Who is to blame for a trip that failed, in one line: who raised, who died, or who waits for what."""
    import ray

    if isinstance(error, ray.exceptions.RayTaskError):
        name = error.function_name.removesuffix("()").split(".")[0]
        return f"{name} raised {type(error.cause).__name__}: {str(error.cause).splitlines()[0]}"
    answers = {name: handle.progress.remote() for name, handle in handles.items()}
    behind = []
    for name, answer in answers.items():
        try:
            received = ray.get(answer, timeout=2)
            if received < trip:
                behind.append(f"{name} has received {received} trips and waits")
        except ray.exceptions.RayActorError:
            return f"{name} died"
        except ray.exceptions.GetTimeoutError:
            behind.append(f"{name} does not answer")
    return f"{error}; {behind[0]}" if behind else str(error)
