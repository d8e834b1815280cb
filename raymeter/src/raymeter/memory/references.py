# SPDX-License-Identifier: Apache-2.0
"""Who keeps objects: what the samples of the references of all processes say."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from raymeter.memory.places import PINNED, ObjectLines, process_of, readers_of_objects
from raymeter.profile.events import Received, Reference
from raymeter.profile.program import Program

IN_USE = "IN_USE_BY_A_TASK"  # the kind of a value whose reader has not ended
KEPT_SECONDS = (
    1.0  # after its reader has ended: a value that is still in use then is kept on purpose
)


@dataclass(frozen=True)
class Holder:
    """Objects that one process keeps for one reason, at one time."""

    time: float
    process: str
    pid: int
    kind: str
    line: str
    objects: list[Reference]

    @property
    def bytes(self) -> int:
        return sum(reference.bytes for reference in self.objects)


@dataclass(frozen=True)
class KeptViews:
    """Objects that stay in the store, because a process keeps values that look at them.

    `objects` are in use although their reader has ended. `proven` are those of them that are in use for KEPT_SECONDS.
    """

    name: str  # of the method or task that has read them; "" for the driver
    line: str
    objects: list[Reference]
    proven: list[Reference]

    @property
    def bytes(self) -> int:
        return sum(reference.bytes for reference in self.objects)

    @property
    def proven_bytes(self) -> int:
        return sum(reference.bytes for reference in self.proven)

    @property
    def most_of_a_process(self) -> int:
        """Return how many of the proven objects one process keeps."""
        counts = Counter((reference.node, reference.pid) for reference in self.proven)
        return max(counts.values(), default=0)


def holders_at_peak(program: Program) -> list[Holder]:
    """Return who keeps the objects at the time at which most bytes are referred to, the most bytes first.

    Return [] if no references were sampled.
    """
    samples = by_time(program.recording.references)
    if not samples:
        return []
    lines = ObjectLines(program)
    peak = max(samples.values(), key=distinct_bytes)
    groups: dict[tuple[str, str, str], list[Reference]] = defaultdict(list)
    for reference in peak:
        line = lines.line_of(reference)
        kind = kind_of(program, lines.readers, reference)
        key = process_of(program, reference), kind, line
        groups[key].append(reference)
    holders = []
    for (process, kind, line), objects in groups.items():
        first = objects[0]
        holder = Holder(first.time, process, first.pid, kind, line, objects)
        holders.append(holder)
    holders.sort(key=lambda holder: -holder.bytes)
    return holders


def by_time(references: Sequence[Reference]) -> dict[float, list[Reference]]:
    """Return the references of each sample."""
    samples: dict[float, list[Reference]] = defaultdict(list)
    for reference in references:
        sample = samples[reference.time]
        sample.append(reference)
    return samples


def distinct_bytes(references: Sequence[Reference]) -> int:
    """Return the bytes of objects, each counted once although several processes may refer to it."""
    sizes = {reference.object: reference.bytes for reference in references}
    return sum(sizes.values())


def kind_of(
    program: Program, readers: dict[tuple[str, str], Received], reference: Reference
) -> str:
    """Return why an object is kept: as Ray says it, or IN_USE if the task that reads it has not ended."""
    received = readers.get((process_of(program, reference), reference.object))
    if received is None or reference.kind != PINNED:
        return reference.kind
    if reference.time > done_with(program, received):
        return PINNED
    return IN_USE


def find_kept_views(program: Program) -> list[KeptViews]:
    """Return what each method keeps at the time at which it keeps most, those with most bytes first.

    `proven` is from the time at which most bytes of it are proven. A method without any at all times is left out.
    """
    readers = readers_of_objects(program)
    samples = by_time(program.recording.references)
    by_method: dict[tuple[str, str], list[KeptViews]] = defaultdict(list)
    for references in samples.values():
        for views in kept_at_once(program, readers, references):
            by_method[views.name, views.line].append(views)
    found = []
    for group in by_method.values():
        most = max(group, key=lambda views: views.bytes)
        sure = max(group, key=lambda views: views.proven_bytes)
        if sure.proven:
            found.append(replace(most, proven=sure.proven))
    return sorted(found, key=lambda views: -views.bytes)


def kept_at_once(
    program: Program,
    readers: dict[tuple[str, str], Received],
    references: Sequence[Reference],
) -> list[KeptViews]:
    """Return what each method keeps in one sample: objects that are in use although their reader has ended."""
    kept: dict[tuple[str, str], KeptViews] = {}
    for reference in references:
        process = process_of(program, reference)
        received = readers.get((process, reference.object))
        if received is None or reference.kind != PINNED:
            continue
        end = done_with(program, received)
        if reference.time <= end:
            continue
        key = received.by_name, received.line
        views = kept.setdefault(key, KeptViews(*key, objects=[], proven=[]))
        views.objects.append(reference)
        if reference.time > end + KEPT_SECONDS:
            views.proven.append(reference)
    return list(kept.values())


def done_with(program: Program, received: Received) -> float:
    """Return when the task that has read an object has ended; infinity for one that has not.

    The driver, or a task that is not known, is done as soon as it has read the object.
    """
    task = program.tasks.get(received.by)
    if task is None or task.type == "DRIVER_TASK":
        return received.end
    return task.finished or task.failed or float("inf")
