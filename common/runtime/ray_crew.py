"""Participants as Ray actors, on a private cluster or on one that was there before."""

import os
import re
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from common.errors import RunFailed, SuiteError, UsageError
from common.flow.flow import DRIVER
from common.plan.plan import Plan
from common.runtime.crew import Crew
from common.runtime.workplace import remember

ROOT = Path(__file__).resolve().parents[2]
JOIN_SECONDS = 60  # until a cluster that does not answer is given up


class RayCrew(Crew):
    """Actor handles by the actor's name."""

    def __init__(self, plan: Plan, runtime: ExitStack) -> None:
        super().__init__(plan)
        connect(plan)
        if plan.layout.address:
            runtime.callback(ray.shutdown)  # a private cluster ends with its processes

    def launch(self, model_class: type, *extra: Any) -> None:
        own = ray.get_runtime_context().get_node_id()
        others = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != own]
        nodes = [*others, own] if self.plan.layout.placement == "spread" else [own]
        for index, name in enumerate(self.plan.participants[1:]):
            # The class bears the actor's name, so its process does too.
            remote = ray.remote(num_cpus=0, enable_tensor_transport=self.plan.row.runtime == "rdt")
            actor_class = remote(type(name, (model_class,), {})).options(
                num_gpus=self.plan.layout.gpus,
                scheduling_strategy=NodeAffinitySchedulingStrategy(nodes[index % len(nodes)], soft=False),
            )
            self.actors[name] = actor_class.remote(self.plan, name, *extra)

    def ask_actors(self, method: str, *arguments: Any) -> dict[str, Any]:
        answers = [getattr(actor, method).remote(*arguments) for actor in self.actors.values()]
        return dict(zip(self.actors, ray.get(answers), strict=True))

    def stop(self) -> None:
        for actor in self.actors.values():
            ray.kill(actor)
        deadline = time.monotonic() + 5
        pids = [pid for name, pid in self.driver.board.processes().items() if name != DRIVER]
        while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.01)

    def placement(self) -> dict[str, int]:
        def node_id(*_: Any) -> str:
            return ray.get_runtime_context().get_node_id()

        ids = [node_id(), *ray.get([actor.__ray_call__.remote(node_id) for actor in self.actors.values()])]
        nodes = list(dict.fromkeys(ids))
        return {name: nodes.index(node) for name, node in zip([DRIVER, *self.actors], ids, strict=True)}

    def store_counters(self) -> tuple[int, int]:
        from ray._private.internal_api import get_memory_info_reply

        stats = get_memory_info_reply(ray._private.state.state).store_stats
        return stats.cumulative_created_bytes, stats.spilled_bytes_total

    def explain(self, error: Exception) -> str | None:
        text = str(error).strip()
        if isinstance(error, ray.exceptions.ActorDiedError) and "error raised in its" in text:
            who = re.findall(r"ray::([\w-]+)\.__init__", text) or ["a role"]
            what = re.sub(r"^\s*(\w+\.)*(?=\w+:)", "", text.splitlines()[-1])  # without the module of its class
            return f"{who[-1]} raised {what}"
        if isinstance(error, ray.exceptions.RayTaskError) and not isinstance(error.cause, ray.exceptions.RayActorError):
            # The error of an actor goes through all that wait for it; the innermost one comes last.
            name = re.findall(r"ray::([\w-]+)", text)[-1]
            return f"{name} raised {type(error.cause).__name__}: {str(error.cause).partition(chr(10))[0]}"
        if isinstance(error, ray.exceptions.RayActorError):
            return "an actor died"
        if isinstance(error, (ray.exceptions.RayError, SuiteError)):
            return text.partition("\n")[0]
        return None


def connect(plan: Plan) -> None:
    """Join the cluster at --address, or start one on this machine below the run's folder."""
    # The raylet's advice to its users (many workers, one that died) would come in spite of log_to_driver=False.
    ray._private.worker.print_to_stdstream = lambda *_, **__: None
    if plan.layout.address:
        _join(plan)
        return
    ray.init(
        address="local", include_dashboard=False, log_to_driver=False, logging_level="critical",
        num_gpus=plan.gpus, object_store_memory=plan.store_bytes, _temp_dir=str(plan.folder),
    )  # fmt: skip
    if plan.layout.placement == "spread":
        _start_second_raylet(plan)
    # The raylet makes the semaphores of channels, names them by its id, and leaves them when it ends.
    remember(plan.folder, [process.pid for process in psutil.Process().children(recursive=True)])


def _join(plan: Plan) -> None:
    """Workers inherit the settings through the job's runtime environment; in a private cluster, through their own."""
    names = [name for name in os.environ if name.startswith(("RAY_CGRAPH_", "RAY_ENABLE_ZERO_COPY"))]
    job = {
        "working_dir": str(ROOT),
        "excludes": [".git", ".venv", "img", "results", "docs"],
        "env_vars": {name: os.environ[name] for name in names},
    }
    try:
        ray.init(address=plan.options.address, runtime_env=job, log_to_driver=False, logging_level="critical")
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        what = str(error).partition("\n")[0][:150]
        raise UsageError(
            f"cannot join the cluster at {plan.options.address} ({what}): is it running with this Ray and Python, and "
            "is its RAY_AUTH_TOKEN set here?"
        ) from None


def _start_second_raylet(plan: Plan) -> None:
    """A second node of the private cluster, on this machine."""
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    # As ray.cluster_utils.Cluster does; `ray start` joins no cluster that listens on loopback alone.
    Node(
        RayParams(
            gcs_address=ray.get_runtime_context().gcs_address, node_ip_address="127.0.0.1", num_cpus=1, num_gpus=0,
            object_store_memory=plan.store_bytes, include_log_monitor=False, temp_dir=str(plan.folder),
        ),
        head=False, shutdown_at_exit=False, spawn_reaper=False,
    )  # fmt: skip
    begin = time.monotonic()
    while len([node for node in ray.nodes() if node["Alive"]]) < 2:
        if time.monotonic() - begin > JOIN_SECONDS:
            raise RunFailed(f"the second raylet of --placement spread did not start within {JOIN_SECONDS} s")
        time.sleep(0.1)
