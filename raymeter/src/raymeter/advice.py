# SPDX-License-Identifier: Apache-2.0
"""Put together what a profile says: the steps, the largest messages, and what to change."""

from dataclasses import dataclass, field

from raymeter import causes
from raymeter.findings import Advice, Finding
from raymeter.profile.excerpt import take_excerpt
from raymeter.profile.groups import Group, group_messages, moved_in_steps
from raymeter.profile.program import Program, join
from raymeter.profile.reader import Recording
from raymeter.profile.steps import Steps, find_steps
from raymeter.simulate.measured import read_measured, replace_predictions
from raymeter.simulate.predict import predict

NO_PROBLEM_SHARE = 0.05  # of a step that all advice together must save
MAX_MESSAGES = 5


@dataclass
class Profile:
    """All that the output needs."""

    program: Program
    steps: Steps
    groups: list[Group]  # of the messages that move during the steps, those with most work first
    findings: list[Finding]
    advice: list[Advice] = field(default_factory=list)
    all_steps: int = 0  # of the program, if these are only some of them

    @property
    def moving_seconds(self) -> float:
        """Return the work of sending and reading large messages per step, summed over processes."""
        return sum(group.seconds() for group in self.groups) / self.steps.count

    @property
    def saved_seconds(self) -> float:
        """Return what all advice together saves per step."""
        if not self.advice:
            return 0.0
        return self.advice[0].prediction.before_seconds - self.advice[-1].prediction.after_seconds

    @property
    def is_no_problem(self) -> bool:
        return self.saved_seconds < NO_PROBLEM_SHARE * self.steps.seconds

    @property
    def recorder_share(self) -> float | None:
        """Return the share of the CPU time of the driver and its workers that recording took.

        None: the profile has no CPU times, as those of older versions, or of a program that was killed early.
        """
        processes = self.program.recording.processes
        costs = [process.recorder for process in processes if process.recorder]
        known = [cost for cost in costs if cost.cpu_seconds > 0]
        spent = sum(cost.own_seconds for cost in known)
        used = sum(cost.cpu_seconds for cost in known)
        return spent / used if used else None


def advise(recording: Recording, step_name: str | None = None) -> Profile:
    """Return the profile of a recording; raise UserError if no step has this name.

    What `raymeter try` has measured of it replaces predictions.
    """
    whole = join(recording)
    all_steps = find_steps(whole, step_name)
    program, steps = take_excerpt(whole, all_steps)
    findings = causes.find_all(program, steps)
    groups = group_messages(moved_in_steps(program.messages, steps))
    measured = read_measured(recording.folder, steps.name)
    advice = replace_predictions(predict(program, steps, findings), measured)
    return Profile(program, steps, groups, findings, advice, all_steps.count)
