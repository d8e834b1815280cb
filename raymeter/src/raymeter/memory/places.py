# SPDX-License-Identifier: Apache-2.0
"""Find the line that keeps an object, also where Ray does not know it."""

from collections import defaultdict

from raymeter.memory.lives import line_of
from raymeter.profile.events import Received, Reference
from raymeter.profile.library_threads import is_users
from raymeter.profile.program import TASK_DIGITS, Program

PINNED = "PINNED_IN_MEMORY"
METADATA_BYTES = 1_000  # that Ray adds to a message in the store


class ObjectLines:
    """The lines that have read, put, submitted or sent the objects of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.readers = readers_of_objects(program)
        self.puts: dict[str, str] = {}
        self.arguments: dict[str, dict[int, str]] = defaultdict(dict)  # of a process, by bytes
        for message in program.messages:
            line = line_of(program, message)
            if message.how == "argument":
                sizes = self.arguments[message.sent.process]
                sizes[message.sent.bytes] = line
        for call in program.recording.calls:
            if call.event == "put":
                self.puts[call.object] = call.line

    def line_of(self, reference: Reference) -> str:
        """Return "file:line"; "" if neither Ray nor the recorder knows it.

        Values that look at an object are kept by their reader, or by the task whose argument they are. An argument by
        value has no id that was recorded, so its sender and size tell which line has sent it.
        """
        process = process_of(self.program, reference)
        received = self.readers.get((process, reference.object))
        if received is not None and reference.kind == PINNED:
            return self.line_of_reader(received)
        task = reference.object[:TASK_DIGITS]
        submission = self.program.submissions.get(task)
        known = [
            reference.line,
            self.puts.get(reference.object, ""),
            submission.line if submission else "",
            self.argument_line(reference, process),
        ]
        return next(filter(None, known), "")

    def line_of_reader(self, received: Received) -> str:
        """Return where a value was read; for code of a library, such as ray.util.queue, the line that has called it."""
        call = self.program.submissions.get(received.by)
        if call is None or is_users(received.line):
            return received.line
        return call.line

    def argument_line(self, reference: Reference, process: str) -> str:
        """Return the line of an argument of about this size from a process; "" without one."""
        sizes = self.arguments.get(process, {})
        alike = [size for size in sizes if 0 <= reference.bytes - size <= METADATA_BYTES]
        if not alike:
            return ""
        nearest = max(alike)
        return sizes[nearest]


def process_of(program: Program, reference: Reference) -> str:
    """Return the name of the process that refers to an object, also of one that was not recorded.

    Processes on two nodes may have the same id.
    """
    recorded = program.workers.process_at(reference.node, reference.pid)
    return recorded or f"{reference.node}-{reference.pid}"


def readers_of_objects(program: Program) -> dict[tuple[str, str], Received]:
    """Return who has read an object last, by the process and the object."""
    readers = {}
    for received in program.recording.received:
        key = received.process, received.object
        readers[key] = received
    return readers
