"""What handing over costs at least: a word through a pipe for every edge, between as many processes as a flow has."""

import os
import time
from collections.abc import Callable

from common.errors import RunFailed
from common.flow.flow import DRIVER, Flow

WORD_BYTES = 8
Pipes = dict[tuple[str, str], tuple[int, int]]  # (source, reader) -> what is read, what is written


def measure_hand_over(flow: Flow, passes: int = 50) -> list[float]:
    """Seconds of each pass: the flow's tasks read a word from each input and write one to each output, nothing else.

    Each actor is a forked process that reads and writes, and sleeps in between. It takes none of the locks that other
    threads of the caller may hold: nothing is imported, printed or logged in it, and no library is called.

    Raises:
        RunFailed: one of them died.
    """
    pipes: Pipes = {(edge.source, edge.reader): os.pipe() for edge in flow.edges}
    children = []
    for actor in flow.actors:
        child = os.fork()
        if not child:
            _live(flow, actor, pipes)
        children.append(child)
    for (source, reader), (read, write) in pipes.items():  # so that a pipe ends with its writer
        if reader != DRIVER:
            os.close(read)
        if source != DRIVER:
            os.close(write)
    write_query, read_results = _ends(flow, DRIVER, pipes)
    samples = []
    for _ in range(passes // 10 + passes):
        start = time.perf_counter()
        write_query()
        if not read_results():
            raise RunFailed("a process that only hands words over died: is there memory for it?")
        samples.append(round(time.perf_counter() - start, 9))
    for (source, reader), (read, write) in pipes.items():
        if DRIVER in (source, reader):
            os.close(write if source == DRIVER else read)
    for child in children:
        os.waitpid(child, 0)
    return samples[passes // 10 :]


def _ends(flow: Flow, name: str, pipes: Pipes) -> tuple[Callable[[], None], Callable[[], bool]]:
    """To write a word to every reader of a task (or the driver), and to read one from each of its inputs."""
    outputs = [pipes[edge.source, edge.reader][1] for edge in flow.edges_from(name)]
    inputs = [pipes[edge.source, edge.reader][0] for edge in flow.edges_to(name)]

    def write() -> None:
        for output in outputs:
            os.write(output, b"\0" * WORD_BYTES)

    def read() -> bool:
        return all(os.read(each, WORD_BYTES) for each in inputs)

    return write, read


def _live(flow: Flow, actor: str, pipes: Pipes) -> None:
    """A forked actor: its own ends alone stay open; it ends when somebody before it does."""
    try:
        tasks = [task.name for task in flow.tasks_of(actor)]
        for (source, reader), (read, write) in pipes.items():
            if reader not in tasks:
                os.close(read)
            if source not in tasks:
                os.close(write)
        ends = [_ends(flow, task, pipes) for task in tasks]
        while True:
            for write_output, read_inputs in ends:
                if not read_inputs():
                    os._exit(0)
                write_output()
    finally:
        os._exit(1)
