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
from common.outcome import blame, verdict
from common.timing import TripTimeout, deadline, run_trips


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


START_SECONDS = 120  # until roles that do not come up are given up

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
        with deadline(max(arguments.timeout, START_SECONDS)):
            _start_roles(handles, role_class, flow, arguments, gpus)
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
            # Bytes taken in are counted over the timed trips, spilling over all: it slows those after it too.
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
                        # One trip that took another path is enough to call the row something else.
                        mapped |= {e: v for e, v in seen.items() if mapped.get(e, wiring.mapped) == wiring.mapped}
                    case["payload_copied"] = not any(mapped.values())
                    progress.update()
                    if trip.number == 1 + arguments.warmup:
                        stored_bytes, _ = cluster.store_counters()
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
            case |= _costs({DRIVER: driver.costs()} | {n: ray.get(h.costs.remote()) for n, h in handles.items()})
    except (ray.exceptions.RayError, TripTimeout) as error:
        when = "after the last trip" if case["seconds"] else "before the first trip"
        raise TripFailed(f"{when}: {blame(error, handles, running)}") from error
    case |= verdict(case, flow, mapped, wiring.mapped)


def _start_roles(handles: dict[str, Any], role_class: type, flow: Flow, arguments: Namespace, gpus: int) -> None:
    """One actor a role into `handles`, by its name."""
    import ray

    options = {
        "num_cpus": 0,
        "num_gpus": devices.gpus_per_role(gpus, len(flow.roles)),
        "scheduling_strategy": "SPREAD" if arguments.address else "DEFAULT",
    }
    for role in flow.roles:
        # The class bears the role's name, so its process does too.
        actor_class = ray.remote(type(role.name, (role_class,), {})).options(**options)
        handles[role.name] = actor_class.remote(flow, role.name, arguments.device, arguments.threads)


def _costs(costs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The record's fields from what each process says that it took; nodes are numbered, their ids mean nothing."""
    nodes = list(dict.fromkeys(cost["node"] for cost in costs.values()))
    return {
        "peak_memory_bytes": sum(cost["peak_memory_bytes"] for cost in costs.values()),
        "harness_seconds": sum(cost["harness_seconds"] for cost in costs.values()),
        "placement": {name: nodes.index(cost["node"]) for name, cost in costs.items()},
    }


def _progress(arguments: Namespace) -> Any:
    """A bar with the time left on a terminal, nothing in a pipe."""
    total = 1 + arguments.warmup + arguments.iterations
    return tqdm(total=total, unit="trip", desc=arguments.transport, disable=None, leave=False)
