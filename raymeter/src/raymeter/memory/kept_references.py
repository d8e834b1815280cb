# SPDX-License-Identifier: Apache-2.0
"""Find references (ObjectRef) of which a process keeps more in each step, so that their objects stay in the store."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from raymeter.memory.growth import find_slope
from raymeter.memory.places import ObjectLines, process_of
from raymeter.memory.references import by_time
from raymeter.profile.events import Reference
from raymeter.profile.program import Program

KEPT = "LOCAL_REFERENCE"
MIN_SAMPLES = 3  # fewer than of private memory: Ray knows the references exactly

Place = tuple[str, str]  # process, and the line that made the references


@dataclass(frozen=True)
class KeptReferences:
    """References of one process and line, whose number grows as long as the steps run."""

    process: str
    line: str
    objects: int  # in the last sample
    bytes: int
    bytes_per_second: float


def find_kept_references(program: Program, begin: float, end: float) -> list[KeptReferences]:
    """Return the lines whose references grow between two times, those with most bytes first."""
    lines = ObjectLines(program)
    times = []
    samples = []
    for time, references in by_time(program.recording.references).items():
        if begin <= time <= end:
            times.append(time)
            samples.append(group_references(program, lines, references))
    places = {place for sample in samples for place in sample}
    found = []
    for process, line in places:
        kept = [sample.get((process, line), []) for sample in samples]
        sizes = [sum(reference.bytes for reference in references) for references in kept]
        slope = find_slope(times, sizes, MIN_SAMPLES)
        if slope is not None:
            growing = KeptReferences(process, line, len(kept[-1]), sizes[-1], slope)
            found.append(growing)
    return sorted(found, key=lambda growing: -growing.bytes)


def group_references(
    program: Program, lines: ObjectLines, references: Sequence[Reference]
) -> dict[Place, list[Reference]]:
    """Return the references that a process holds itself, by process and line."""
    groups: dict[Place, list[Reference]] = defaultdict(list)
    for reference in references:
        if reference.kind == KEPT:
            place = process_of(program, reference), lines.line_of(reference)
            groups[place].append(reference)
    return groups
