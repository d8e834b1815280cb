# SPDX-License-Identifier: Apache-2.0
"""Follow the private memory of each process over time."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from raymeter.memory.processes import Sample

DRIVER = "driver"


@dataclass(frozen=True)
class History:
    """The samples of one process, in the order of time; there is at least one."""

    name: str  # "driver", or how the process called itself when it was largest
    samples: list[Sample]

    @property
    def pid(self) -> int:
        return self.samples[0].pid

    @property
    def first(self) -> Sample:
        return self.samples[0]

    @property
    def last(self) -> Sample:
        return self.samples[-1]

    @property
    def largest(self) -> Sample:
        """Return the first sample with most private memory."""
        return find_largest(self.samples)


def find_largest(samples: Sequence[Sample]) -> Sample:
    return max(samples, key=lambda sample: sample.private)


def find_histories(samples: Sequence[Sample], drivers: Collection[str]) -> list[History]:
    """Return the history of each process, the largest first. `drivers` are the names of processes."""
    groups: dict[tuple[str, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.process, sample.pid].append(sample)
    histories = []
    for (process, _), group in groups.items():
        group.sort(key=lambda sample: sample.time)
        name = DRIVER if process in drivers else find_largest(group).name
        histories.append(History(name, group))
    histories.sort(key=lambda history: -history.largest.private)
    return histories


def sum_histories(histories: Sequence[History]) -> list[tuple[float, int]]:
    """Return the private memory of these processes together, at each time at which one of them was sampled."""
    sums: dict[float, int] = defaultdict(int)
    for history in histories:
        for sample in history.samples:
            sums[sample.time] += sample.private
    return sorted(sums.items())
