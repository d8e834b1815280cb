# SPDX-License-Identifier: Apache-2.0
"""Simulate jobs that share resources, such as cores and links, and count for how long each resource is in use.

A job uses amounts of several resources at the same time: core seconds, bytes of memory, bytes over a link. Alone, it
takes as long as the resource that needs longest. Jobs that run at the same time share each resource fairly: all of
them slow down to the same part of the speed that they have alone, and those at no full resource go on faster. So a
resource never idles while a job waits for it. This is how TCP shares a link and the kernel shares cores. A queue would
let the first job end earlier and the last one at the same time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

ROUNDING = 1e-9  # of a job or of a resource that may be left


class Kind(StrEnum):
    """What a resource is."""

    CORE = "core"  # of one process: Python code runs on one core at a time; amounts are seconds
    CORES = "cores"  # of a node, all together; amounts are seconds of one core
    MEMORY = "memory"  # of a node; amounts are bytes that are copied
    SENDS = "link out"  # of a node; amounts are bytes
    RECEIVES = "link in"
    SWITCH = "switch"  # between all nodes


class Resource(NamedTuple):
    kind: Kind
    owner: str | int  # the process, or the number of the node; 0 for the switch


@dataclass(frozen=True)
class Job:
    """Work that begins when other jobs have ended."""

    uses: Mapping[Resource, float]  # the amounts
    after: Sequence[int] = ()  # positions of jobs before this one


@dataclass(frozen=True)
class Outcome:
    """When the last job ends, and for how many seconds each resource would be in use at its full speed."""

    seconds: float
    ends: Sequence[float]  # of each job
    busy: Mapping[Resource, float]

    def share(self, resource: Resource) -> float:
        """Return which part of the time a resource is in use."""
        return self.busy.get(resource, 0.0) / self.seconds if self.seconds else 0.0


class SharedJob:
    """A job as it shares resources: which part of each one it takes if it runs alone, and what is left of it."""

    def __init__(self, uses: Mapping[Resource, float], capacities: Mapping[Resource, float]):
        self.seconds: dict[Resource, float] = {}
        for resource, amount in uses.items():
            seconds = amount / capacities[resource]
            if seconds > 0:
                self.seconds[resource] = seconds
        self.alone = max(self.seconds.values(), default=0.0)
        self.parts = {resource: each / self.alone for resource, each in self.seconds.items()}
        self.left = self.alone  # seconds at full speed


def simulate(jobs: Sequence[Job], capacities: Mapping[Resource, float]) -> Outcome:
    """Return when all jobs have ended that begin as soon as those before them have.

    `capacities` are the amounts per second. A job may only wait for jobs before it in the list.
    """
    shared = [SharedJob(job.uses, capacities) for job in jobs]
    followers: dict[int, list[int]] = defaultdict(list)
    waits_for = []
    for position, job in enumerate(jobs):
        before = set(job.after)
        waits_for.append(len(before))
        for other in before:
            followers[other].append(position)
    ready = [position for position, count in enumerate(waits_for) if not count]
    ends = [0.0] * len(jobs)
    now = 0.0
    while ready:
        speeds = share_speed([shared[position] for position in ready])
        step = step_of(ready, shared, speeds)
        now += step
        running = []
        for position, speed in zip(ready, speeds, strict=True):
            running_job = shared[position]
            running_job.left -= step * speed
            if running_job.left > ROUNDING * running_job.alone:
                running.append(position)
                continue
            ends[position] = now
            for follower in followers[position]:
                waits_for[follower] -= 1
                if not waits_for[follower]:
                    running.append(follower)
        ready = running
    return Outcome(now, ends, sum_busy(shared))


def step_of(ready: Sequence[int], shared: Sequence[SharedJob], speeds: Sequence[float]) -> float:
    """Return the seconds until the next job ends."""
    steps = []
    for position, speed in zip(ready, speeds, strict=True):
        steps.append(shared[position].left / speed)
    return min(steps)


def share_speed(jobs: Sequence[SharedJob]) -> list[float]:
    """Return the speed of each job, at most 1, which is the speed that it has alone.

    All speeds rise together. At a full resource, those of its jobs stay as they are, and the others rise further.
    """
    users: dict[Resource, list[int]] = defaultdict(list)
    rising: dict[Resource, float] = defaultdict(float)  # parts of the jobs whose speed still rises
    for position, job in enumerate(jobs):
        for resource, part in job.parts.items():
            users[resource].append(position)
            rising[resource] += part
    free = dict.fromkeys(users, 1.0)
    speeds = [0.0] * len(jobs)
    level = 1.0
    while rising:
        level = min(free[resource] / part for resource, part in rising.items())
        if level >= 1:
            break
        limit = level * (1 + ROUNDING)
        full = [resource for resource, part in rising.items() if free[resource] / part <= limit]
        for resource in full:
            for position in users[resource]:
                if not speeds[position]:
                    speeds[position] = level
                    settle(jobs[position], level, free, rising)
        for resource in full:
            rising.pop(resource, None)
    return [speed or 1.0 for speed in speeds]


def settle(
    job: SharedJob, level: float, free: dict[Resource, float], rising: dict[Resource, float]
) -> None:
    """Take what a job uses at its final speed from what is free, and count it no longer among those that rise."""
    for resource, part in job.parts.items():
        free[resource] -= level * part
        if resource in rising:
            rising[resource] -= part
            if rising[resource] <= ROUNDING:
                del rising[resource]


def sum_busy(jobs: Iterable[SharedJob]) -> dict[Resource, float]:
    busy: dict[Resource, float] = defaultdict(float)
    for job in jobs:
        for resource, seconds in job.seconds.items():
            busy[resource] += seconds
    return dict(busy)
