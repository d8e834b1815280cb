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
