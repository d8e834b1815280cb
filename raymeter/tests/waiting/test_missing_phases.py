# SPDX-License-Identifier: Apache-2.0
"""A task has a time of execution, also if Ray has only recorded its states."""

import pytest
from made_programs import Builder
from raymeter.profile.events import Task


def task_of_program(**values) -> Task:
    """Return the only task of a joined program; `values` are those that Ray has recorded of it."""
    builder = Builder()
    recorded = {"type": "ACTOR_TASK", "running": 2.0, "finished": 3.0} | values
    builder.recording.tasks.append(Task(task="a", name="Scorer.score", **recorded))
    return builder.program().tasks["a"]


@pytest.mark.parametrize(
    ("values", "execute"),
    [
        ({}, (2.0, 3.0)),
        ({"deserialise": (2.0, 2.4)}, (2.4, 3.0)),
        ({"deserialise": (1.0, 1.5)}, (2.0, 3.0)),  # of another task, as in an event loop
        ({"execute": (2.1, 2.9)}, (2.1, 2.9)),
    ],
)
def test_a_task_without_phases_was_executed_between_its_states(values, execute):
    assert task_of_program(**values).execute == execute


@pytest.mark.parametrize(
    "values", [{"finished": None}, {"finished": None, "failed": 2.5}, {"running": None}]
)
def test_a_task_that_has_not_ended_well_has_no_time_of_execution(values):
    assert task_of_program(**values).execute is None


def test_a_program_is_no_task():
    assert task_of_program(type="DRIVER_TASK").execute is None
