# SPDX-License-Identifier: Apache-2.0
"""Run actors as Ray actors, on a private cluster or on an existing one (--address)."""

import os
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import ray

from common.ray_settings import SENT_VARIABLES
from dataflow.errors import ActorRaised, RunFailed, SuiteError, UsageError
from dataflow.flows.flow import DRIVER
from dataflow.nodes.nodes import Nodes
from dataflow.plan.plan import Plan
from dataflow.workers import ray_internals
from dataflow.workers.cleanup import ROOT, process_status, remember
from dataflow.workers.worker_group import WorkerGroup

STOP_SECONDS = 5  # for actors that were killed to end
MAX_REASON = 150  # characters of a text of Ray that is not known


class RayWorkers(WorkerGroup):
    def __init__(self, plan: Plan) -> None:
        """Start a private cluster, or join that of --address, and choose the node of each actor. No actor is started.

        Raise RunFailed if Ray does not start, and UsageError if the cluster cannot be joined or has too few nodes.
        """
        super().__init__(plan)
        if plan.options.address:
            _join_cluster(plan)
        else:
            start_cluster(plan)
        self.raylets = ray_internals.find_processes("raylet")
        self.nodes = Nodes(plan)
        self.worker_nodes = self.nodes.worker_nodes  # Ray starts an actor there, or not at all
        if plan.options.address:
            os.environ.update(self.nodes.network_settings(0))
        # Of actors that loop by themselves, as those of torch.distributed.
        self.loops: dict[str, Any] = {}

    def _start_actors(self, actor_class: type, extra: tuple) -> None:
        """Start an actor for each name of the flow, on its node, and the loop of each if its class has `run`.

        It does not wait until they have started, so the error of a constructor is raised by a later call.
        """
        options: dict[str, Any] = {
            "num_cpus": 0,
            "enable_tensor_transport": self.plan.transport.runtime.name == "rdt",
        }
        has_loop = hasattr(actor_class, "run")  # beside the thread that answers calls
        if has_loop:
            options["concurrency_groups"] = {"loop": 1}
        for name in self.plan.task_flow.actors:
            node = self.worker_nodes[name]
            if self.plan.options.address:  # a private cluster has them already
                options["runtime_env"] = {"env_vars": self.nodes.network_settings(node)}
            # The name of the class is the actor's name, so Ray also names its process after it.
            named_class = type(name, (actor_class,), {})
            placed_class = ray.remote(**options)(named_class).options(
                num_gpus=self.plan.gpus_per_actor, scheduling_strategy=self.nodes.affinity(node)
            )
            self.actors[name] = placed_class.remote(self.plan, name, *extra)
        if has_loop:
            for name, actor in self.actors.items():
                loop = actor.run.options(concurrency_group="loop")
                self.loops[name] = loop.remote()

    def _run_in_actors(self, function: Callable[[Any], Any]) -> dict[str, Any]:
        calls = [ray_internals.call_in(actor, function) for actor in self.actors.values()]
        return dict(zip(self.actors, ray.get(calls), strict=True))

    def stop(self) -> None:
        """Kill the actors, and wait at most STOP_SECONDS for those of this machine. Leave an existing cluster."""
        for actor in self.actors.values():
            ray.kill(actor)
        deadline = time.monotonic() + STOP_SECONDS
        pids = [pid for name, pid in self.driver.progress.processes().items() if name != DRIVER]
        while any(map(process_status, pids)) and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.plan.options.address:  # a private cluster ends with its processes
            ray.shutdown()

    def rendezvous(self) -> str:
        """Start the store of a torch.distributed group here, and return the URL at which the group is formed.

        The kernel chooses a free port, which stays taken while these workers are there. The driver, which is this
        process, is rank 0 of the group: it would start a server of its own at this port, and finds this one because of
        `multi_tenant`.
        """
        from torch.distributed import TCPStore

        timeout = timedelta(seconds=self.plan.options.timeout)
        address = self.nodes.address
        self.group_store = TCPStore(
            address,
            port=0,
            is_master=True,
            timeout=timeout,
            wait_for_workers=False,
            multi_tenant=True,
        )
        return f"tcp://{address}:{self.group_store.port}"

    def counters(self) -> dict[str, int]:
        """Return the bytes that all object stores have taken in and spilled, and the page faults of private raylets."""
        store = ray_internals.read_store_bytes()
        # The tenth field of /proc/PID/stat, after the name of the process, which can contain spaces.
        texts = [Path(f"/proc/{pid}/stat").read_text() for pid in self.raylets]
        faults = sum(int(text.rpartition(")")[2].split()[7]) for text in texts)
        return {
            "stored_bytes": store.created,
            "spilled_bytes": store.spilled,
            "raylet_faults": faults,
        }

    def explain(self, error: Exception) -> SuiteError | None:
        """Return what has caused an error: the end of a raylet, or what a loop or Ray says of an actor.

        Return None if it is a defect of the suite itself. If actors loop, wait at most STOP_SECONDS for the end of one.
        """
        if not all(map(process_status, self.raylets)):
            what = "Ray's process that starts actors and keeps the object store"
            return RunFailed(f"the raylet of this node ended ({what})")
        # A peer that died has closed the connection.
        if self.loops and isinstance(error, (RuntimeError, OSError)):
            ended, _ = ray.wait([*self.loops.values()], timeout=STOP_SECONDS)
            try:
                ray.get(ended)
            except ray.exceptions.RayError as cause:
                error = cause
        return self._explain_ray_error(error)

    def _explain_ray_error(self, error: Exception) -> SuiteError | None:
        """Return an error with one line: ActorRaised if an actor raised it, else RunFailed.

        An error of the suite is returned as it is, and None for one that neither Ray nor the suite has raised. If an
        actor raised one, Ray's error is of both kinds, and its text is a traceback.
        """
        if isinstance(error, SuiteError) and not isinstance(error, ray.exceptions.RayError):
            return error
        message = str(error).strip()
        if (
            isinstance(error, ray.exceptions.ActorDiedError)
            and ray_internals.RAISED_IN_CONSTRUCTOR in message
        ):
            names = ray_internals.CONSTRUCTOR.findall(message) or ["an actor"]
            last_line = message.splitlines()[-1]
            # The class of the error, without its module.
            reason = re.sub(r"^\s*(\w+\.)*(?=\w+:)", "", last_line)
            return ActorRaised(f"{names[-1]} raised {reason}")
        if isinstance(error, ray.exceptions.RayTaskError):
            if isinstance(error.cause, ray.exceptions.RayActorError):
                return self._explain_dead_actor(error, message)
            return self._explain_task_error(error, message)
        if isinstance(error, ray.exceptions.RayActorError):
            return self._explain_dead_actor(error, message)
        if isinstance(error, ray.exceptions.RayError):
            return RunFailed(message.partition("\n")[0])
        return None

    def _explain_task_error(self, error: Any, message: str) -> ActorRaised:
        """Return the error of an actor's method.

        All actors that wait for the result raise an actor's error again; the innermost one comes last.
        """
        names = ray_internals.TASK.findall(message) or ["an actor"]
        kind = (
            "" if isinstance(error.cause, SuiteError) else f" raised {type(error.cause).__name__}"
        )
        first_line = str(error.cause).partition("\n")[0]
        return ActorRaised(f"{names[-1]}{kind}: {first_line}")

    def _explain_dead_actor(self, error: Exception, message: str) -> RunFailed:
        """Return which actor died and why, as far as Ray says it; with the first line of an unknown text."""
        name = self._find_dead_actor(error, message)
        because = ray_internals.REASON_OF_DEATH.search(message)
        reason = because[1] if because else _first_line(str(_cause_of(error)))
        if name in self.worker_nodes and len(self.nodes.ids) > 1:
            name += f" on node {self.worker_nodes[name]}"
        text = f"{name} died"
        if reason:
            text += f": {reason}"
        if self.plan.options.address and ray_internals.RELEASED in text:
            # The cluster sent no token.
            text += " Set RAY_AUTH_MODE=disabled if the cluster was started without a token."
        return RunFailed(text)

    def _find_dead_actor(self, error: Exception, message: str) -> str:
        """Return the name of the actor from the text of an error, or else by the actor's id; "an actor" if unknown."""
        named = ray_internals.CLASS_OF_ACTOR.search(message)
        if named:
            return named[1]
        actor_id = getattr(_cause_of(error), "actor_id", None)
        for name, actor in self.actors.items():
            if actor_id and ray_internals.id_of_actor(actor) == actor_id:
                return name
        return "an actor"


def _cause_of(error: Exception) -> Exception:
    """Return the error of the actor that died, which other actors may have raised again as the cause of theirs."""
    return getattr(error, "cause", None) or error


def _first_line(message: str) -> str:
    """Return the first line of a text of Ray that says something, without spaces around it, and not too long."""
    lines = [line.strip() for line in message.splitlines()]
    first = next(filter(None, lines), "")
    return first if len(first) <= MAX_REASON else f"{first[:MAX_REASON]}..."


def _describe(error: Exception) -> str:
    """Return the first line of an error, or the name of its class if it has no text."""
    return _first_line(str(error)) or type(error).__name__


def start_cluster(plan: Plan) -> None:
    """Start a private cluster on this machine, with its files below the run folder.

    Raise RunFailed if Ray cannot use 127.0.0.1, or does not start. A start that takes too long is repeated once.
    """
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=STOP_SECONDS).close()
    except OSError as error:
        raise RunFailed(f"Ray cannot use 127.0.0.1 ({error}): see `ip link show lo`") from None
    # None: Ray starts it if its packages are installed.
    include_dashboard = None if plan.options.ray_defaults else False
    for is_last in (False, True):
        try:
            ray_internals.start_ray(
                # Ray opens it to all users, so it is not the run's own. Paths of sockets below it must be short.
                f"{plan.run_folder}/r",
                include_dashboard=include_dashboard,
                log_to_driver=False,
                logging_level="critical",
                num_cpus=plan.transport.requirements.ray_cpus,
                num_gpus=plan.gpus,
                object_store_memory=plan.store_bytes,
            )
            break
        except Exception as error:  # now and then, a raylet does not answer
            if is_last or ray_internals.SLOW_START not in str(error):
                raise RunFailed(f"Ray did not start: {_describe(error)}") from None
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
    # The raylet creates the semaphores of channels, names them after its process id, and leaves them when it ends.
    pids = [process.pid for process in psutil.Process().children(recursive=True)]
    remember(plan.run_folder, "pids", pids)
    remember(plan.run_folder, "gcs", ray_internals.find_processes("gcs_server"))


def _join_cluster(plan: Plan) -> None:
    """Join an existing cluster; raise UsageError if that is impossible.

    By the job's runtime environment, actors there get the code of this project, and the variables of this process for
    graphs, views, memory and waiting threads.
    """
    prefixes = (*SENT_VARIABLES, "MALLOC_", "THP_MEM_ALLOC_ENABLE", "OMP_WAIT_POLICY")
    variables = {name: value for name, value in os.environ.items() if name.startswith(prefixes)}
    excludes = [".git", ".venv", "img", "results", "docs"]
    job = {"working_dir": str(ROOT), "excludes": excludes, "env_vars": variables}
    try:
        ray.init(
            address=plan.options.address,
            runtime_env=job,
            log_to_driver=False,
            logging_level="critical",
        )
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise UsageError(
            f"--address {plan.options.address}: cannot join the cluster ({_describe(error)}). Check that it runs "
            "with this Ray and Python, and that its RAY_AUTH_TOKEN is set here."
        ) from None
