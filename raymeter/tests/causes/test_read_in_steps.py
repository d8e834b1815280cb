# SPDX-License-Identifier: Apache-2.0
"""What was put before the steps, and is read in each of them, counts as what moves in a step."""

import pytest
from made_programs import DRIVER_TASK, LINE, MIB, STEP_SECONDS, STEPS, Builder, make_steps
from raymeter.causes import pickled
from raymeter.profile.events import Alternative
from raymeter.profile.groups import group_messages, groups_in_steps, moved_in_steps
from raymeter.profile.program import Program
from raymeter.report import flow, html, summary
from raymeter.report.messages import list_messages
from raymeter.report.words import say_count
from raymeter.simulate.predict import predict
from raymeter.simulate.without_data import without_data

from raymeter import advice

PUT_LINE = "/made/train.py:9"
OBJECT = f"{DRIVER_TASK}00000001"
READ_SECONDS = 0.06
NOW = Alternative(serialise=0.05, deserialise=READ_SECONDS, bytes=MIB, inband_bytes=MIB)
FAST = Alternative(serialise=0.001, deserialise=0.001, bytes=MIB)


def make_program(read_steps: int = STEPS) -> Program:
    """Return a loop with a task per step. The first ones read a dict that the driver has put before the loop."""
    builder = Builder()
    put = builder.call("put", 0.5, 0.1, object=OBJECT, line=PUT_LINE)
    builder.send(
        put,
        0.51,
        0.05,
        fields=[],
        inband_bytes=MIB,
        alternatives={"as it is": NOW, "columns": FAST},
    )
    for step in range(STEPS):
        begin = 1.0 + STEP_SECONDS * step
        task = f"{step:048x}"
        builder.call("call", begin, 0.001, kind="task", task=task, name="score", line=LINE)
        if step < read_steps:
            builder.receive(begin + 0.002, READ_SECONDS, "score", by=task, object=OBJECT)
        builder.task(task, "score", begin + 0.001, 0.09)
        builder.recording.tasks[-1].deserialise = (begin + 0.001, begin + 0.065)
        builder.recording.tasks[-1].execute = (begin + 0.065, begin + 0.085)
        builder.call("get", begin + 0.001, 0.095, objects=[f"{task}01"], line=f"{LINE}9")
    builder.recording.processes[0].ray = "2.60.0"
    return builder.program()


def test_reading_it_is_most_of_a_step_and_can_be_saved():
    program = make_program()
    steps = make_steps()
    (finding,) = pickled.find(program, steps)
    assert (finding.cause, finding.line) == ("Python objects in the pickle", PUT_LINE)
    assert {saving.part for saving in finding.savings} == {"deserialise"}
    (best,) = predict(program, steps, [finding])
    assert best.prediction.saved_seconds == pytest.approx(READ_SECONDS, rel=0.1)
    moving = without_data(program, steps)
    assert moving.saved_seconds == pytest.approx(READ_SECONDS, rel=0.1)


def test_it_is_in_the_table_without_its_sending():
    (group,) = group_messages(moved_in_steps(make_program().messages, make_steps()))
    assert group.count == 0
    assert group.seconds() == pytest.approx(STEPS * READ_SECONDS)


def test_the_table_has_its_reads_in_the_place_of_0_messages():
    program = make_program()
    steps = make_steps()
    groups = group_messages(moved_in_steps(program.messages, steps))
    profile = advice.Profile(program, steps, groups, [])
    row = next(line for line in list_messages(profile, 5, 120) if "driver -> score" in line)
    assert row.split()[:6] == ["60.0", "1", "read", "1", "MiB", "ray.put"]
    assert ">1 read</td>" in html.draw_messages(profile)
    (made,) = summary.summarise(profile)["messages"]
    assert (made["per_step"], made["reads_per_step"]) == (0, 1)


@pytest.mark.parametrize(
    ("count", "reads", "text"),
    [(2.0, 4.0, "2"), (0.0, 0.1, "0.1 reads"), (0.0, 3.0, "3 reads"), (0.5, 0.0, "0.5")],
)
def test_reads_are_counted_only_where_nothing_is_sent(count, reads, text):
    assert say_count(count, reads) == text


def test_what_is_read_in_one_step_only_changes_no_median():
    program = make_program(read_steps=1)
    steps = make_steps()
    findings = pickled.find(program, steps)
    assert predict(program, steps, findings) == []


def test_what_is_read_outside_of_the_steps_does_not_move_in_them():
    steps = make_steps()
    steps.times = steps.times[3:]
    steps.__post_init__()
    assert groups_in_steps(make_program(read_steps=2), steps) == []


def test_a_flow_of_it_is_written(tmp_path):
    program = make_program()
    steps = make_steps()
    groups = group_messages(moved_in_steps(program.messages, steps))
    profile = advice.Profile(program, steps, groups, [])
    assert flow.write(profile, tmp_path / "flow.toml")
