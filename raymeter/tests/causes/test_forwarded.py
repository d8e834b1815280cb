# SPDX-License-Identifier: Apache-2.0
"""What a task has as an argument and sends on is changed where it gets it, and not by leaving out a ray.get."""

import pytest
from made_programs import DRIVER_TASK, LINE, MIB, STEP_SECONDS, STEPS, Builder, make_steps
from raymeter.causes import forwarded
from raymeter.findings import Finding

PUT_LINE = "/made/train.py:9"
CHILD_LINE = "/made/train.py:16"
OBJECT = f"{DRIVER_TASK}00000001"
ADDRESS = 4096


def make_finding(size: int = MIB, is_got: bool = False) -> Finding:
    """Return what is found if a task reads 1 MiB that was put before the loop, and sends so many bytes of it on."""
    builder = Builder()
    put = builder.call("put", 0.5, 0.1, object=OBJECT, line=PUT_LINE)
    builder.send(put, 0.51, 0.05)
    for step in range(STEPS):
        begin = 1.0 + STEP_SECONDS * step
        task = f"{step:048x}"
        builder.call("call", begin, 0.001, kind="task", task=task, name="parent", line=LINE)
        scope = 0
        if is_got:
            get = builder.call(
                "get",
                begin + 0.01,
                0.02,
                place="parent",
                by=task,
                objects=[OBJECT],
                line="/made/train.py:15",
            )
            scope = get.number
        builder.receive(
            begin + 0.012,
            0.01,
            "parent",
            by=task,
            object=OBJECT,
            scope=scope,
            leaves=[[ADDRESS, MIB]],
        )
        call = builder.call(
            "call", begin + 0.04, 0.02, place="parent", by=task, kind="task", task=f"{step:047x}a", name="child",
            line=CHILD_LINE,
        )  # fmt: skip
        builder.send(call, begin + 0.041, 0.01, bytes=size, leaves=[[ADDRESS, size]])
        builder.task(task, "parent", begin + 0.001, 0.08)
        builder.call("get", begin + 0.001, 0.09, objects=[f"{task}01"], line=f"{LINE}9")
    (finding,) = forwarded.find(builder.program(), make_steps())
    return finding


@pytest.mark.parametrize(
    ("size", "words"), [(MIB, "only passed on there"), (MIB // 4, "take its part")]
)
def test_an_argument_is_passed_inside_of_a_list(size, words):
    finding = make_finding(size)
    assert [finding.line, *finding.other_lines] == [LINE, CHILD_LINE]
    assert "Pass `[ref]`" in finding.change and words in finding.change
    assert "do not call ray.get" not in finding.change.lower()


def test_what_is_got_is_not_to_be_got():
    finding = make_finding(is_got=True)
    assert finding.line == "/made/train.py:15"
    assert "do not call ray.get" in finding.change


def find_awaited(place: str) -> Finding:
    """Return what is found if code submits a task, awaits its 1 MiB, and sends it on."""
    builder = Builder()
    for step in range(STEPS):
        begin = 1.0 + STEP_SECONDS * step
        by = f"{step:047x}c" if place else DRIVER_TASK
        task = f"{step:047x}d"
        reader = f"{step:047x}e"
        own = {"place": place, "by": by, "kind": "task"}
        if place:
            builder.call("call", begin, 0.001, kind="task", task=by, name=place, line=LINE)
            builder.task(by, place, begin + 0.002, 0.09)
        builder.call("call", begin + 0.012, 0.001, task=task, name="rollout", line=LINE, **own)
        builder.task(task, "rollout", begin + 0.014, 0.02)
        builder.send(
            None, begin + 0.03, 0.002, process="node-rollout-0", by=task, by_name="rollout"
        )
        awaited = {"by": by, "object": f"{task}01000000", "leaves": [[ADDRESS, MIB]]}
        builder.receive(begin + 0.04, 0.01, place, **awaited)
        call = builder.call(
            "call", begin + 0.06, 0.02, task=reader, name="train", line=CHILD_LINE, **own
        )
        builder.send(call, begin + 0.061, 0.01, leaves=[[ADDRESS, MIB]])
    (finding,) = forwarded.find(builder.program(), make_steps())
    return finding


@pytest.mark.parametrize("place", ["", "controller"])
def test_what_is_awaited_is_no_argument(place):
    finding = find_awaited(place)
    assert finding.line == CHILD_LINE
    assert "do not await the reference" in finding.change
    assert "Pass `[ref]`" not in finding.change
