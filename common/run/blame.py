"""Who is to blame for a trip that failed, from the board and the processes, asking nobody who may hang."""

import signal
from collections.abc import Mapping
from pathlib import Path

import psutil

from common.flow.flow import DRIVER, Flow
from common.plan.plan import Place
from common.trace.board import Board


def dead(board: Board) -> list[str]:
    """The participants whose processes have ended."""
    return [name for name, pid in board.processes().items() if _status(pid) in (None, psutil.STATUS_ZOMBIE)]


def sentence(board: Board, flow: Flow, number: int, gone: list[str], places: Mapping[str, Place] | None = None) -> str:
    """Who died, who is stopped, or who has not passed a message on.

    Args:
        number: of the trip that failed.
        gone: the participants that had ended before anybody was killed.
        places: of the participants, where actors have several processes.
    """
    actors = [name for name in gone if name != DRIVER]
    if actors or gone:
        peers = " (Ray ends those that wait for one that dies)" if len(actors) > 1 else ""
        return f"{', '.join(actors or gone)} died{peers}"
    stopped = [name for name, pid in board.processes().items() if _status(pid) == psutil.STATUS_STOPPED]
    if stopped:  # all that live in the driver's process stop with it
        return f"{DRIVER if DRIVER in stopped else ', '.join(stopped)} does not answer: its process is stopped"
    received = board.numbers()
    places = places or {actor: Place(actor) for actor in flow.actors}
    behind = {name: place.actor for name, place in places.items() if received[name] < place.last_due(number)}
    for task in flow.tasks:
        waiting = [name for name, actor in behind.items() if actor == task.actor]
        if waiting and not {flow.actor(source) for source in task.reads} & set(behind.values()):
            return f"{waiting[0]} has received {received[waiting[0]]} trips and waits, or hangs"
    return "every role has received it, its result did not reach the driver"


def last_words(folder: Path) -> dict[str, str]:
    """What roles wrote down before they ended, the first one first: the others may have lost it as their peer."""
    paths = sorted(folder.glob("*.error"), key=lambda path: path.stat().st_mtime_ns)
    return {path.stem: f"{path.stem} raised {path.read_text()}" for path in paths}


def end_of(returncode: int) -> str:
    """How the worker, in which the driver's ends are, came to its end."""
    if returncode < 0:
        return f"the driver's process was ended by {signal.Signals(-returncode).name}"
    return f"the driver's process ended with code {returncode} and no report"


def _status(pid: int) -> str | None:
    try:
        return psutil.Process(pid).status()
    except psutil.Error:
        return None
