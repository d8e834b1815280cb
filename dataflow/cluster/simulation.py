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
    CALL = "call"  # of one task: what Ray does for it; amounts are seconds


class Resource(NamedTuple):
    kind: Kind
    owner: str | int  # the process, the task, or the number of the node; 0 for the switch


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
        self.rounding = ROUNDING * self.alone


class RunningJobs:
    """The jobs that run at the same time, and which resources are full if all of them run at full speed."""

    def __init__(self) -> None:
        self.users: dict[Resource, dict[int, SharedJob]] = defaultdict(dict)
        self.parts: dict[Resource, float] = defaultdict(float)  # of all users together
        self.contested: set[Resource] = set()

    def start(self, position: int, job: SharedJob) -> None:
        for resource, part in job.parts.items():
            self.users[resource][position] = job
            self.parts[resource] += part
            self.judge(resource)

    def end(self, position: int, job: SharedJob) -> None:
        for resource, part in job.parts.items():
            del self.users[resource][position]
            self.parts[resource] -= part
            self.judge(resource)

    def judge(self, resource: Resource) -> None:
        """Note whether a resource is full."""
        if self.parts[resource] > 1:
            self.contested.add(resource)
        else:
            self.contested.discard(resource)

    def slow_speeds(self) -> dict[int, float]:
        """Return the speed of each job that is below 1, the speed that it has alone.

        All speeds rise together. At a full resource, those of its jobs stay as they are, and the others rise further.
        """
        # Parts of the jobs whose speed still rises.
        rising = {resource: self.parts[resource] for resource in self.contested}
        free = dict.fromkeys(rising, 1.0)
        speeds: dict[int, float] = {}
        while rising:
            level = min(free[resource] / part for resource, part in rising.items())
            if level >= 1:
                break
            if len(rising) == 1:
                # No other resource can become full.
                (last,) = rising
                for position in self.users[last]:
                    speeds.setdefault(position, level)
                break
            limit = level * (1 + ROUNDING)
            full = [resource for resource, part in rising.items() if free[resource] / part <= limit]
            for resource in full:
                for position, job in self.users[resource].items():
                    if position not in speeds:
                        speeds[position] = level
                        settle(job, level, free, rising)
            for resource in full:
                rising.pop(resource, None)
        return speeds


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
    running = RunningJobs()
    for position in ready:
        running.start(position, shared[position])
    ends = [0.0] * len(jobs)
    now = 0.0
    while ready:
        ended = pass_time(ready, shared, running.slow_speeds())
        now += ended.step
        ready = ended.left
        for position in ended.positions:
            ends[position] = now
            running.end(position, shared[position])
            for follower in followers[position]:
                waits_for[follower] -= 1
                if not waits_for[follower]:
                    ready.append(follower)
                    running.start(follower, shared[follower])
    return Outcome(now, ends, sum_busy(shared))


class Ended(NamedTuple):
    """The seconds until the next jobs end, which those are, and which ones go on."""

    step: float
    positions: list[int]
    left: list[int]


def pass_time(
    ready: Sequence[int], shared: Sequence[SharedJob], slow: Mapping[int, float]
) -> Ended:
    """Let all jobs run until the next one ends. `slow` has the speeds below 1."""
    step = min(shared[position].left / slow.get(position, 1.0) for position in ready)
    ended = Ended(step, [], [])
    for position in ready:
        job = shared[position]
        job.left -= step * slow.get(position, 1.0)
        if job.left > job.rounding:
            ended.left.append(position)
        else:
            ended.positions.append(position)
    return ended


def settle(
    job: SharedJob, level: float, free: dict[Resource, float], rising: dict[Resource, float]
) -> None:
    """Take what a job uses at its final speed from what is free, and count it no longer among those that rise."""
    for resource, part in job.parts.items():
        if resource in rising:
            free[resource] -= level * part
            rising[resource] -= part
            if rising[resource] <= ROUNDING:
                del rising[resource]


def sum_busy(jobs: Iterable[SharedJob]) -> dict[Resource, float]:
    busy: dict[Resource, float] = defaultdict(float)
    for job in jobs:
        for resource, seconds in job.seconds.items():
            busy[resource] += seconds
    return dict(busy)
