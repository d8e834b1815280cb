"""Participants as plain Python processes, without Ray, or all of them in the driver's own.

An actor's main thread runs the transport's loop, `run()` of its class. A second thread answers what the driver asks
(verify, costs) through a pipe, as Ray's actors do while their graph's loop runs.
"""

import multiprocessing
import sys
import threading
from contextlib import suppress
from typing import Any

from common.errors import RoleFailed, SuiteError
from common.plan.plan import Plan
from common.runtime.crew import Crew


class ProcessCrew(Crew):
    """A process an actor, or all actors in this process."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.pipes: dict[str, Any] = {}
        # The semaphores of queues bear the run's name too, so that whoever cleans up finds them.
        multiprocessing.current_process()._config["semprefix"] = f"/{plan.folder.name}"  # type: ignore[attr-defined]

    def launch(self, model_class: type, *extra: Any) -> None:
        if self.plan.layout.one_process:
            self.actors = {name: model_class(self.plan, name, *extra) for name in self.plan.participants[1:]}
            return
        # Forked off a process that imports torch once for all of them, and does nothing else; torch starts no thread by
        # being imported, and touches no GPU.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch"])
        for name in self.plan.participants[1:]:
            self.pipes[name], theirs = context.Pipe()
            where = (model_class, self.plan, name, extra, theirs)
            self.actors[name] = context.Process(target=_live, args=where, name=name, daemon=True)
            self.actors[name].start()
            theirs.close()
        for name in self.pipes:
            self._answer(name)

    def ask_actors(self, method: str, *arguments: Any) -> dict[str, Any]:
        if not self.pipes:
            return {name: getattr(actor, method)(*arguments) for name, actor in self.actors.items()}
        for name, pipe in self.pipes.items():
            try:
                pipe.send((method, arguments))
            except OSError:
                raise RoleFailed(f"{name} died") from None
        return {name: self._answer(name) for name in self.pipes}

    def _answer(self, name: str) -> Any:
        try:
            kind, what = self.pipes[name].recv()
        except (OSError, EOFError):
            raise RoleFailed(f"{name} died") from None
        if kind == "raised":
            raise RoleFailed(f"{name} raised {what}")
        return what

    def stop(self) -> None:
        for name in self.pipes:
            self.actors[name].kill()
            self.actors[name].join()

    def explain(self, error: Exception) -> str | None:
        if isinstance(error, SuiteError):
            return str(error)
        # A library whose connection was closed by a peer that died; who that was, the supervisor knows.
        return str(error).partition("\n")[0] if self.pipes and isinstance(error, (RuntimeError, OSError)) else None


def _live(model_class: type, plan: Plan, name: str, extra: tuple, pipe: Any) -> None:
    """An actor's process: construct it, answer the pipe in one thread, run the transport's loop in this one."""
    try:
        model: Any = model_class(plan, name, *extra)
        pipe.send(("ready", None))
        threading.Thread(target=_answer_questions, args=(model, pipe), daemon=True).start()
        model.run()
    except Exception as error:
        what = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        with suppress(OSError):  # the driver may be gone, or wait in a library that does not see us end
            (plan.folder / f"{name}.error").write_text(what)
            pipe.send(("raised", what))
        sys.exit(1)


def _answer_questions(model: Any, pipe: Any) -> None:
    while True:
        try:
            method, arguments = pipe.recv()
        except EOFError:
            return  # the driver is gone, and the supervisor will end this process
        try:
            pipe.send(("answer", getattr(model, method)(*arguments)))
        except Exception as error:
            pipe.send(("raised", f"{type(error).__name__}: {error}"))
