"""Run actors as plain Python processes without Ray, or all of them in the driver's process.

The main thread of an actor's process runs the transport's loop, `run()` of its class. A second thread answers the
driver's calls, such as `verify`, as Ray's actors do while their graph's loop runs.
"""

import multiprocessing
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from dataflow.errors import ActorRaised, RunFailed, SuiteError
from dataflow.plan.plan import Plan
from dataflow.workers.worker_group import WorkerGroup


class ProcessWorkers(WorkerGroup):
    def __init__(self, plan: Plan, exit_stack: ExitStack) -> None:
        super().__init__(plan)
        self.pipes: dict[str, Any] = {}
        # The names of queues' semaphores begin with the run's name, so that cleanup finds them.
        multiprocessing.current_process()._config["semprefix"] = f"/{plan.run_folder.name}"  # type: ignore[attr-defined]

    def _start_actors(self, actor_class: type, extra: tuple) -> None:
        names = self.plan.worker_names[1:]
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
            self.actors[name] = context.Process(target=_run_actor, args=arguments, name=name, daemon=True)
            self.actors[name].start()
            actor_pipe.close()
        for name in names:
            self._read_answer(name)

    def _run_in_actors(self, function: Callable[[Any], Any]) -> dict[str, Any]:
        if not self.pipes:
            return {name: function(actor) for name, actor in self.actors.items()}
        for pipe in self.pipes.values():
            with suppress(OSError):  # the actor has died, and _read_answer says so
                pipe.send(function)
        return {name: self._read_answer(name) for name in self.pipes}

    def _read_answer(self, name: str) -> Any:
        try:
            succeeded, result = self.pipes[name].recv()
        except (OSError, EOFError):
            raise RunFailed(f"{name} died") from None
        if not succeeded:
            raise ActorRaised(f"{name} raised {result}")
        return result

    def stop(self) -> None:
        for name in self.pipes:
            self.actors[name].kill()
            self.actors[name].join()

    def explain(self, error: Exception) -> SuiteError | None:
        if isinstance(error, SuiteError):
            return error
        # A library raises this if a peer that died has closed the connection. The monitor knows which one.
        if self.pipes and isinstance(error, (RuntimeError, OSError)):
            return RunFailed(str(error).partition("\n")[0])
        return None


def _run_actor(actor_class: type, plan: Plan, name: str, extra: tuple, pipe: Any) -> None:
    """Construct an actor in its process, answer the pipe in a thread, and run the transport's loop in this one."""

    def answer_calls() -> None:
        with suppress(EOFError):  # the driver has ended, and cleanup will end this process
            while True:
                function = pipe.recv()
                try:
                    pipe.send((True, function(actor)))
                except Exception as error:
                    pipe.send((False, f"{type(error).__name__}: {error}"))

    try:
        actor = actor_class(plan, name, *extra)
        pipe.send((True, None))
        threading.Thread(target=answer_calls, daemon=True).start()
        actor.run()
    except Exception as error:
        message = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        with suppress(OSError):  # the driver has ended, or waits in a library that does not notice our end
            (plan.run_folder / f"{name}.error").write_text(message, encoding="utf-8")
            pipe.send((False, message))
        sys.exit(1)
