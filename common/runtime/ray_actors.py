"""The roles of a case as Ray actors: start them, ask them all, say who failed."""

import re
from argparse import Namespace
from typing import Any

import psutil

from common.flow.flow import DRIVER, Flow
from common.run.clock import TripTimeout
from common.runtime import devices
from common.transport.ring import SegmentError


class RayRoles:
    """Actor handles by the role's name."""

    def __init__(self, gpus: int) -> None:
        import ray

        self.gpus = gpus
        self.handles: dict[str, Any] = {}
        self.trainer: Any = None  # the actor of a driver whose ends of the flow lie in one
        self.errors: tuple[type[Exception], ...] = (ray.exceptions.RayError, TripTimeout, TypeError, SegmentError)

    def start(self, role_class: type, flow: Flow, arguments: Namespace, *extra: Any) -> dict[str, Any]:
        """One actor a role, constructed with (flow, name, arguments, *extra)."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actors = len(flow.roles) + getattr(role_class, "with_trainer", False)
        own = ray.get_runtime_context().get_node_id()
        others = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != own]
        nodes = [*others, own] if arguments.placement == "spread" else [own]
        for index, role in enumerate(flow.roles):
            # The class bears the role's name, so its process does too.
            actor_class = ray.remote(type(role.name, (role_class,), {})).options(
                num_cpus=0,
                num_gpus=devices.gpus_per_role(self.gpus, actors),
                scheduling_strategy=NodeAffinitySchedulingStrategy(nodes[index % len(nodes)], soft=False),
            )
            self.handles[role.name] = actor_class.remote(flow, role.name, arguments, *extra)
        return self.handles

    def ask(self, method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of every role at once; the answers by name."""
        import ray

        answers = [getattr(handle, method).remote(*arguments) for handle in self.handles.values()]
        return dict(zip(self.handles, ray.get(answers), strict=True))

    def placement(self) -> dict[str, int]:
        """On which node driver and roles run: its index, the driver's first (the ids mean nothing)."""
        import ray

        def node_id(*_: Any) -> str:
            return ray.get_runtime_context().get_node_id()

        ids = [node_id(), *ray.get([handle.__ray_call__.remote(node_id) for handle in self.handles.values()])]
        nodes = list(dict.fromkeys(ids))
        return {name: nodes.index(node) for name, node in zip([DRIVER, *self.handles], ids, strict=True)}

    def store_counters(self) -> tuple[int, int]:
        """Bytes that the object stores of all nodes have taken in, and spilled to disk, since they started."""
        import ray
        from ray._private.internal_api import get_memory_info_reply

        stats = get_memory_info_reply(ray._private.state.state).store_stats
        return stats.cumulative_created_bytes, stats.spilled_bytes_total

    def blame(self, error: Exception, trip: int) -> str:
        """Who is to blame for a trip that failed, in one line: who raised, who died, or who waits for what."""
        import ray

        if isinstance(error, SegmentError):
            return str(error)  # the driver's own
        if isinstance(error, ray.exceptions.ActorDiedError) and "error raised in its" in str(error):
            # The last line says what its constructor raised.
            return re.sub(r"^\s*[\w.]+: ", "", str(error).strip().splitlines()[-1])
        if isinstance(error, ray.exceptions.RayTaskError) and not isinstance(error.cause, ray.exceptions.RayActorError):
            # The error of a role goes through all that wait for it; the innermost one comes last.
            name = re.findall(r"ray::([\w-]+)", str(error))[-1]
            return f"{name} raised {type(error.cause).__name__}: {str(error.cause).partition(chr(10))[0]}"
        asked = self.handles | ({"trainer": self.trainer} if self.trainer else {})
        answers = {name: handle.progress.remote() for name, handle in asked.items()}
        behind, dead = [], []
        for name, answer in answers.items():
            try:
                received = ray.get(answer, timeout=2)
                if received < trip:
                    behind.append(f"{name} has received {received} trips and waits")
            except ray.exceptions.RayActorError:
                dead.append(name)
            except ray.exceptions.GetTimeoutError:
                behind.append(f"{name} does not answer")
        if dead:
            peers = " (Ray Direct Transport ends the peers of one that dies)" if len(dead) > 1 else ""
            return f"{', '.join(dead)} died{peers}"
        what = str(error).partition("\n")[0]
        return f"{what}; {behind[0] if behind else 'every role has received it, its result did not reach the driver'}"

    def kill(self) -> None:
        """End the roles of a failed case at once, stopped or hanging ones too: a graph's teardown waits for them."""
        import ray

        for handle in [*self.handles.values(), *([self.trainer] if self.trainer else [])]:
            ray.kill(handle)
        for process in psutil.Process().children(recursive=True):
            try:
                title = process.cmdline()[:1]
                if title and title[0].split(".")[0].removeprefix("ray::") in [*self.handles, "trainer"]:
                    process.kill()
            except psutil.Error:
                continue  # it has just gone
