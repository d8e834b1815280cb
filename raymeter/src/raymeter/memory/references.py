"""Who keeps objects: what the samples of the references of all processes say."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from raymeter.memory.places import PINNED, ObjectLines, readers_of_objects
from raymeter.profile.events import Received, Reference
from raymeter.profile.program import Program

KEPT_SECONDS = 1.0  # after a task has ended, or the driver has read it: then, its value is kept


@dataclass(frozen=True)
class Holder:
    """Objects that one process keeps for one reason, at one time."""

    time: float
    pid: int
    kind: str
    line: str
    objects: list[Reference]

    @property
    def bytes(self) -> int:
        return sum(reference.bytes for reference in self.objects)


@dataclass(frozen=True)
class KeptViews:
    """Objects that stay in the store, because a process keeps values that look at them."""

    name: str  # of the method or task that has read them; "" for the driver
    line: str
    objects: list[Reference]

    @property
    def bytes(self) -> int:
        return sum(reference.bytes for reference in self.objects)

    @property
    def most_of_a_process(self) -> int:
        """Return how many of the objects one process keeps."""
        counts = Counter(reference.pid for reference in self.objects)
        return max(counts.values(), default=0)


def holders_at_peak(program: Program) -> list[Holder]:
    """Return who keeps the objects at the time at which most bytes are referred to, the most bytes first."""
    samples = by_time(program.recording.references)
    if not samples:
        return []
    lines = ObjectLines(program)
    peak = max(samples.values(), key=distinct_bytes)
    groups: dict[tuple[int, str, str], list[Reference]] = defaultdict(list)
    for reference in peak:
        line = lines.line_of(reference)
        key = reference.pid, reference.kind, line
        groups[key].append(reference)
    holders = []
    for (pid, kind, line), objects in groups.items():
        time = objects[0].time
        holder = Holder(time, pid, kind, line, objects)
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


def find_kept_views(program: Program) -> list[KeptViews]:
    """Return what each method keeps at the time at which it keeps most."""
    readers = readers_of_objects(program)
    samples = by_time(program.recording.references)
    found: list[KeptViews] = []
    for references in samples.values():
        found += kept_at_once(program, readers, references)
    found.sort(key=lambda views: views.bytes)
    most: dict[tuple[str, str], KeptViews] = {}
    for views in found:
        key = views.name, views.line
        most[key] = views  # the last one has most bytes
    return sorted(most.values(), key=lambda views: -views.bytes)


def kept_at_once(
    program: Program,
    readers: dict[tuple[int, str], Received],
    references: Sequence[Reference],
) -> list[KeptViews]:
    """Return what each method keeps in one sample: objects that are in use although their reader has ended."""
    kept: dict[tuple[str, str], list[Reference]] = defaultdict(list)
    for reference in references:
        received = readers.get((reference.pid, reference.object))
        if received is None or reference.kind != PINNED:
            continue
        allowed = done_with(program, received) + KEPT_SECONDS
        if reference.time > allowed:
            key = received.by_name, received.line
            kept[key].append(reference)
    found = []
    for (name, line), objects in kept.items():
        views = KeptViews(name, line, objects)
        found.append(views)
    return found


def done_with(program: Program, received: Received) -> float:
    """Return when the task that has read an object has ended; infinity for one that has not."""
    task = program.tasks.get(received.by)
    if task is None or task.type == "DRIVER_TASK":
        return received.end
    return task.finished or task.failed or float("inf")
