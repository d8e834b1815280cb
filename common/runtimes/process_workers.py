"""Run actors as plain Python processes without Ray, or all of them in the driver's process.

The main thread of an actor's process runs the transport's loop, `run()` of its class. A second thread answers the
driver's calls (verify, costs) through a pipe, as Ray's actors do while their graph's loop runs.
"""

import multiprocessing
import sys
import threading
from contextlib import ExitStack, suppress
from typing import Any

from common.errors import ActorFailed, SuiteError
from common.plan.plan import Plan
from common.runtimes.worker_group import WorkerGroup


class ProcessWorkers(WorkerGroup):
    """One process per actor, or all actors in this process."""

    def __init__(self, plan: Plan, exit_stack: ExitStack) -> None:
        super().__init__(plan)
        self.pipes: dict[str, Any] = {}
        # The names of queues' semaphores begin with the run's name, so that cleanup finds them.
        multiprocessing.current_process()._config["semprefix"] = f"/{plan.run_folder.name}"  # type: ignore[attr-defined]

    def _start_actors(self, actor_class: type, extra: tuple, named: dict[str, Any]) -> None:
        names = self.plan.worker_names[1:]
        if self.plan.transport.requirements.single_process:
            self.actors = {name: actor_class(self.plan, name, *extra, **named) for name in names}
            return
        # All actors are forked from one process that has imported torch and does nothing else. The import of torch
        # starts no thread and uses no GPU.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch"])
        for name in names:
            self.pipes[name], actor_pipe = context.Pipe()
            arguments = (actor_class, self.plan, name, extra, named, actor_pipe)
            self.actors[name] = context.Process(target=_run_actor, args=arguments, name=name, daemon=True)
            self.actors[name].start()
            actor_pipe.close()
        for name in names:
            self._read_answer(name)

    def call_actors(self, method: str, *arguments: Any) -> dict[str, Any]:
        if not self.pipes:
            return {name: getattr(actor, method)(*arguments) for name, actor in self.actors.items()}
        for pipe in self.pipes.values():
            with suppress(OSError):  # the actor has died, and _read_answer says so
                pipe.send((method, arguments))
        return {name: self._read_answer(name) for name in self.pipes}

    def _read_answer(self, name: str) -> Any:
        try:
            succeeded, result = self.pipes[name].recv()
        except (OSError, EOFError):
            raise ActorFailed(f"{name} died") from None
        if not succeeded:
            raise ActorFailed(f"{name} raised {result}")
        return result

    def stop(self) -> None:
        for name in self.pipes:
            self.actors[name].kill()
            self.actors[name].join()

    def explain(self, error: Exception) -> str | None:
        if isinstance(error, SuiteError):
            return str(error)
        # A library raises this if a peer that died has closed the connection. The monitor knows which one.
        if self.pipes and isinstance(error, (RuntimeError, OSError)):
            return str(error).partition("\n")[0]
        return None


def _run_actor(actor_class: type, plan: Plan, name: str, extra: tuple, named: dict[str, Any], pipe: Any) -> None:
    """Construct an actor in its process, answer the pipe in a thread, and run the transport's loop in this one."""
    try:
        actor = actor_class(plan, name, *extra, **named)
        pipe.send((True, None))
        threading.Thread(target=_answer_calls, args=(actor, pipe), daemon=True).start()
        actor.run()
    except Exception as error:
        message = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        with suppress(OSError):  # the driver has ended, or waits in a library that does not notice our end
            (plan.run_folder / f"{name}.error").write_text(message)
            pipe.send((False, message))
        sys.exit(1)


def _answer_calls(actor: Any, pipe: Any) -> None:
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return  # the driver has ended, and cleanup will end this process
        try:
            pipe.send((True, getattr(actor, method)(*arguments)))
        except Exception as error:
            pipe.send((False, f"{type(error).__name__}: {error}"))
