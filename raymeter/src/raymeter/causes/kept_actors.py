# SPDX-License-Identifier: Apache-2.0
"""Say whether actors that are made in each step could be there all the time, and what they would hold then."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from raymeter.causes.capacity import (
    GPU,
    Capacity,
    Holder,
    holding,
    is_in_placement_group,
    is_of_placement_group,
)
from raymeter.profile.events import Call
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.units import significant


@dataclass(frozen=True)
class Phase:
    """A time from one moment to another. If these are in another order, there is no such time."""

    begin: float
    end: float

    @property
    def is_real(self) -> bool:
        return self.begin < self.end

    def meets(self, holder: Holder) -> bool:
        """Return whether something surely had its resources at some moment of this time."""
        begin = max(self.begin, holder.begin)
        end = min(self.end, holder.sure_end)
        return begin < end


class KeptActors:
    """Actors that are made at some lines in each step, as if those of one step stayed for all.

    calls: those that make them, by line, all of them in steps. An actor that holds no resources, or whose times Ray
    does not know, holds nothing here.
    """

    def __init__(self, program: Program, steps: Steps, calls: dict[str, list[Call]]) -> None:
        self.program = program
        self.steps = steps
        self.capacity = Capacity(program)
        self.replaced_tasks = {
            call.task
            for call in program.recording.calls  # also those before the first step
            if call.kind == "actor" and call.line in calls
        }
        by_task = {holder.task.task: holder for holder in self.capacity.holders}
        by_step: dict[int | None, list[Holder]] = defaultdict(list)
        for of_line in calls.values():
            for call in of_line:
                number = steps.of(call.start)
                holder = by_task.get(call.task)
                if holder is not None:
                    by_step[number].append(holder)
        self.groups = list(by_step.values())  # of each step

    @property
    def cpus(self) -> float:
        """Return how many CPUs the actors of a step hold."""
        return max(map(cpus_of, self.groups), default=0.0)

    @property
    def price(self) -> str:
        """Return what the actors hold all the time if they are kept."""
        held = ["their state", "their memory"]
        if self.cpus:
            cpus = significant(self.cpus, 2)
            of_all = significant(self.capacity.work.cpus, 2)
            held.append(f"{cpus} of {of_all} CPUs")
        names: set[str] = set()
        for group in self.groups:
            names |= names_of_resources(group)
        names.discard("memory")
        if any(map(is_of_placement_group, names)):
            held.append("their placement group")
        for name in sorted(itertools.filterfalse(is_of_placement_group, names)):
            held.append(f"their {name}")
        *first, last = held
        return f"they keep {', '.join(first)} and {last} from one step to the next."

    def have_room(self) -> bool:
        """Return whether the actors of a step can stay while all else runs as it did.

        What a placement group has is not known, only what its actors take of it. So these stay if all actors of a step
        were there at one time, and nothing else was. Actors that hold something stay only if no other one, and no task,
        is in a placement group.
        """
        (first, _), *_ = self.steps.times
        _, last = self.steps.times[-1]
        others = []
        for holder in self.capacity.holders:
            is_in_steps = holder.begin < last and holder.last_end > first
            if is_in_steps and holder.task.task not in self.replaced_tasks:
                others.append(holder)
        if self.are_in_placement_groups():
            phases = map(common_phase, self.groups)
            return not others and all(phase.is_real for phase in phases)
        if self.groups and any(map(is_in_placement_group, others)):
            return False
        enough = {GPU} if self.have_gpus(others) else set()
        return self.have_cpus(others) and have_resources(self.groups, others, enough)

    def are_in_placement_groups(self) -> bool:
        """Return whether actors have what they need from a placement group, at least some of them."""
        kept = itertools.chain.from_iterable(self.groups)
        return any(map(is_in_placement_group, kept))

    def have_cpus(self, others: Sequence[Holder]) -> bool:
        """Return whether the CPUs of kept actors are free, even when the others take most."""
        if not self.cpus:
            return True
        needed = self.cpus + most_taken(others, cpus_of)
        return needed <= self.capacity.work.cpus

    def have_gpus(self, others: Sequence[Holder]) -> bool:
        """Return whether the GPUs of the nodes are surely enough, even when the others take most.

        A part of a GPU counts as a whole one, because parts of different GPUs are not one. With several nodes, nobody
        may take more than one GPU, because GPUs of different nodes are not free for one actor. False, too, if the
        program has used several clusters, or if its profile is older, and has no number of GPUs of each actor.
        """
        clusters = self.program.recording.clusters
        known = [*others]
        for group in self.groups:
            known += group
        amounts = [holder.task.gpus for holder in holding(GPU, known)]
        if len(clusters) != 1 or 0.0 in amounts:
            return False
        of_nodes = clusters[0].gpus
        if len(of_nodes) > 1 and max(amounts, default=0.0) > 1:
            return False
        kept = max(map(gpus_of, self.groups), default=0)
        return kept + most_taken(others, gpus_of) <= sum(of_nodes)


def most_taken(holders: Sequence[Holder], amount_of: Callable[[Iterable[Holder]], float]) -> float:
    """Return the largest amount that holders take at one time: when one of them has just begun."""
    taken = 0.0
    for holder in holders:
        moment = holder.begin
        running = [other for other in holders if other.begin <= moment < other.last_end]
        taken = max(taken, amount_of(running))
    return taken


def have_resources(
    groups: Iterable[list[Holder]], others: Sequence[Holder], enough: Iterable[str] = ()
) -> bool:
    """Return whether it was seen that resources other than CPUs are enough; of those in `enough`, this is known.

    Of each resource, the actors of each step must have had theirs at one time, and each other holder beside the actors
    of some step. None of them may be in a placement group.
    """
    by_name: dict[str, list[Phase]] = defaultdict(list)
    for group in groups:
        names = names_of_resources(group).difference(enough)
        for name in names:
            together = common_phase(holding(name, group))
            by_name[name].append(together)
    for name, phases in by_name.items():
        if not all(phase.is_real for phase in phases):
            return False
        for other in holding(name, others):
            if not any(phase.meets(other) for phase in phases):
                return False
    return True


def cpus_of(holders: Iterable[Holder]) -> float:
    return sum(holder.task.cpus for holder in holders)


def gpus_of(holders: Iterable[Holder]) -> int:
    return sum(math.ceil(holder.task.gpus) for holder in holders)


def names_of_resources(holders: Iterable[Holder]) -> set[str]:
    """Return the names of what is held, without CPUs."""
    names: set[str] = set()
    for holder in holders:
        names.update(holder.task.resources)
    return names


def common_phase(holders: Sequence[Holder]) -> Phase:
    """Return the time in which all of them surely had their resources."""
    begin = max(holder.begin for holder in holders)
    end = min(holder.sure_end for holder in holders)
    return Phase(begin, end)
