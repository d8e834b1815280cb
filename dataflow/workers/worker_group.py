# SPDX-License-Identifier: Apache-2.0
"""Define the workers of a run as a transport sees them, and the connection that a transport makes between them."""

import multiprocessing
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any

from dataflow.endpoints.actor import Actor, Endpoint
from dataflow.endpoints.payload import Digests
from dataflow.endpoints.tensors import Codec
from dataflow.errors import ActorRaised, RunFailed, SuiteError
from dataflow.flows.flow import DRIVER
from dataflow.plan.plan import Plan


@dataclass(frozen=True)
class Connection:
    """A transport that is ready."""

    # Sends a query and does not wait. Its result is the argument of `collect`.
    submit: Callable[[Any], Any]
    # Waits for the results, and returns them in the order of `Flow.returns`.
    collect: Callable[[Any], Sequence[Any]]
    # Edge -> how its bytes travel, read from the running system if possible.
    data_paths: dict[str, str]
    # What was done once, such as registering memory.
    setup_seconds: dict[str, float] = field(default_factory=dict)
    # Returns the wrong samples of the transport's own readers. It is called between groups of iterations.
    check: Callable[[], dict[str, int]] = dict
    # Returns fields of the Run that only the transport knows, at the end.
    facts: Callable[[], dict[str, Any]] = dict
    # --trace: returns the spans of processes that are not workers, by name.
    spans: Callable[[], dict[str, Any]] = dict


class WorkerGroup:
    """The workers of a run. A transport function gets it, and starts the workers with classes of its choice.

    A worker sends and reads messages of the flow: the driver, or an actor. No other process is called a worker.
    Actors are Python processes, or endpoints in the driver's process. They are Ray actors in the subclass RayWorkers.
    The main thread of an actor's process runs the transport's loop, `run()` of its class. A second thread answers the
    driver's calls, such as `verify`, as Ray's actors do while their graph's loop runs.
    """

    def __init__(self, plan: Plan) -> None:
        """Prepare the group, and name the semaphores of this process's queues. `start` starts the workers."""
        self.plan = plan
        self.sent_flow = plan.sent_flow
        # Name of an actor -> Ray actor handle, process, or endpoint in this process.
        self.actors: dict[str, Any] = {}
        self.pipes: dict[str, Any] = {}  # to the processes
        self.raylets: Sequence[int] = ()  # process ids of Ray's raylets on this machine
        self.driver: Any = None  # the driver's endpoint
        self.nodes: Any = None  # of a Ray cluster
        self.worker_nodes = dict.fromkeys(plan.worker_names, 0)  # the driver's node is 0
        self.first_iteration = 0  # of the current group
        self.first_timed = 0  # iteration; 0 during the warm-up
        # Is closed after the last iteration, while the actors are still there.
        self.closing = ExitStack()
        # The names of queues' semaphores begin with the run's name, so that cleanup finds them.
        multiprocessing.current_process()._config["semprefix"] = f"/{plan.run_folder.name}"  # type: ignore[attr-defined]

    def start(
        self,
        actor_class: type = Actor,
        driver_class: type = Endpoint,
        *extra: Any,
        codec: Codec | None = None,
    ) -> None:
        """Start actor_class(plan, name, *extra) per actor, with the codec as last argument if given, and driver_class.

        The driver gets no codec. Wait until all are constructed. If an actor cannot be constructed, raise its error,
        that of Ray, or with processes ActorRaised or RunFailed.
        """
        arguments = (*extra, codec) if codec else extra
        self._start_actors(actor_class, arguments)
        self.driver = driver_class(self.plan, DRIVER, *extra)
        # Each reader verifies what others send, so each worker gets the hashes of all.
        digests: Digests = {}
        for digests_of_worker in self.call("payload_digests").values():
            digests |= digests_of_worker
        self.call("learn_digests", digests)

    def _start_actors(self, actor_class: type, extra: tuple) -> None:
        """Make all actors, in this process or in their own ones, and wait until they are constructed.

        Raise ActorRaised if the constructor of a process's actor fails, and RunFailed if a process ends. The others
        go on: the guard ends them.
        """
        names = self.plan.task_flow.actors
        if self.plan.transport.requirements.single_process:
            self.actors = {name: actor_class(self.plan, name, *extra) for name in names}
            return
        # All actors are forked from one process that has imported torch and does nothing else. The import of torch
        # starts no thread and uses no GPU.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch"])
        for name in names:
            self.pipes[name], actor_pipe = context.Pipe()
            arguments = (actor_class, self.plan, name, extra, actor_pipe)
            self.actors[name] = context.Process(
                target=_run_actor, args=arguments, name=name, daemon=True
            )
            self.actors[name].start()
            actor_pipe.close()
        for name in names:
            self._receive_or_raise(name)

    def call(self, method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of every worker, of all actors at once; return the results by worker name."""
        return self.run_in_all(methodcaller(method, *arguments))

    def run_in_all(self, function: Callable[[Any], Any]) -> dict[str, Any]:
        """Call a function with the endpoint of each worker, in the worker's process; return the results by name."""
        # The driver's own call comes last, so that the actors have been idle for a while at the next iteration.
        return self._run_in_actors(function) | {DRIVER: function(self.driver)}

    def _run_in_actors(self, function: Callable[[Any], Any]) -> dict[str, Any]:
        """Call a function with each actor, in its process; return the results by name.

        Raise ActorRaised or RunFailed for the first actor of a process that failed or ended.
        """
        if not self.pipes:
            return {name: function(actor) for name, actor in self.actors.items()}
        for pipe in self.pipes.values():
            with suppress(OSError):  # the actor has died, and _receive_or_raise says so
                pipe.send(function)
        return {name: self._receive_or_raise(name) for name in self.pipes}

    def _receive_or_raise(self, name: str) -> Any:
        """Return what an actor's process answers.

        Raise ActorRaised if the actor failed, and RunFailed if its process has ended.
        """
        try:
            succeeded, result = self.pipes[name].recv()
        except (OSError, EOFError):
            raise RunFailed(f"{name} died") from None
        if not succeeded:
            raise ActorRaised(f"{name} raised {result}")
        return result

    def driver_seconds(self, worker: str, seconds: float) -> float:
        """Return a time of a worker's clock on the driver's clock, after the last iteration."""
        return self.nodes.driver_seconds(worker, seconds) if self.nodes else seconds

    def stop(self) -> None:
        """End the actors, so that none of them busy-waits while something else is timed."""
        for name in self.pipes:
            self.actors[name].kill()
            self.actors[name].join()

    def rendezvous(self) -> str:
        """Return the URL at which torch.distributed forms a group of all workers."""
        return f"file://{self.plan.run_folder}/rendezvous"

    def counters(self) -> dict[str, int]:
        """Return what the processes of Ray have counted since they started: see RayWorkers."""
        return dict.fromkeys(("stored_bytes", "spilled_bytes", "raylet_faults"), 0)

    def explain(self, error: Exception) -> SuiteError | None:
        """Return an error with one line that names the actor; None if the error is a defect of the suite itself."""
        if isinstance(error, SuiteError):
            return error
        # A library raises this if a peer that died has closed the connection. The monitor knows which one.
        if self.pipes and isinstance(error, (RuntimeError, OSError)):
            return RunFailed(str(error).partition("\n")[0])
        return None


def answer_calls(actor: Any, pipe: Any) -> None:
    """Answer the functions that come over a pipe, until its other end is closed.

    Then the driver has ended, and cleanup will end this process. If an answer was still unread, the pipe was reset.
    """
    with suppress(EOFError, ConnectionError):
        while True:
            function = pipe.recv()
            try:
                pipe.send((True, function(actor)))
            except Exception as error:
                pipe.send((False, f"{type(error).__name__}: {error}"))


def _run_actor(actor_class: type, plan: Plan, name: str, extra: tuple, pipe: Any) -> None:
    """Construct an actor in its process, answer the pipe in a thread, and run the transport's loop in this one.

    If the constructor or the loop raises an error, write it to a file, send it to the driver, and exit with 1. The
    error of a call is its answer.
    """
    try:
        actor = actor_class(plan, name, *extra)
        pipe.send((True, None))
        threading.Thread(target=answer_calls, args=(actor, pipe), daemon=True).start()
        actor.run()
    except Exception as error:
        message = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        # The driver has ended, or waits in a library that does not notice our end.
        with suppress(OSError):
            (plan.run_folder / f"{name}.error").write_text(message, encoding="utf-8")
            pipe.send((False, message))
        sys.exit(1)
