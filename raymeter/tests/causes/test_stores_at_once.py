# SPDX-License-Identifier: Apache-2.0
"""Results that several threads of an actor store at the same time: which ones get shorter, and what the others gain."""

import pytest
from made_programs import Builder
from raymeter.findings import Finding, Saving
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.simulate.contention import Machine
from raymeter.simulate.graph import Edge, build
from raymeter.simulate.predict import simulate

PASSES = 4
STORE_SECONDS = 0.04
APART = 0.004  # from the start of a store to that of the next one


def make_server(results: int, cores: int) -> Program:
    """Return a driver that waits for results which an actor stores at the same time."""
    builder = Builder()
    process = builder.process_of("Server.get")
    for known in builder.recording.processes:
        known.cores = cores
    for step in range(PASSES):
        names = [f"{step:024x}{number:024x}" for number in range(results)]
        for number, name in enumerate(names):
            start = step + 0.001 * number
            builder.call(
                "call",
                start,
                0.0005,
                kind="method",
                task=name,
                name="Server.get",
                line="/made/a.py:1",
            )
            begin = step + 0.01 + APART * number
            builder.task(name, "Server.get", begin, STORE_SECONDS, actor="a")
            task = builder.recording.tasks[-1]
            task.deserialise = (begin, begin)
            task.execute = (begin, begin + 0.0001)
            task.store = (begin + 0.0001, begin + STORE_SECONDS)
        start = step + 0.008
        end = step + 0.0105 + APART * (results - 1) + STORE_SECONDS
        objects = [f"{name}01000000" for name in names]
        builder.call("get", start, end - start, objects=objects, count=results, line="/made/a.py:2")
        builder.call("put", end, 0.0001, object=f"{step:056x}", line="/made/a.py:3")
    assert process == "node-Server-0"
    return builder.program()


def make_steps(results: int) -> Steps:
    seconds = 0.0106 + APART * (results - 1) + STORE_SECONDS
    times = [(float(step), step + seconds) for step in range(PASSES)]
    return Steps("a pass", times, "node-1", 1, "/made/a.py:1")


def save_all_but_first(program: Program, share: float = 1.0) -> Finding:
    """Return a finding that saves the storing of all results of each step but the first one."""
    savings = []
    for task in program.tasks.values():
        assert task.store is not None
        start, end = task.store
        if int(task.task[24:], 16):
            saving = Saving("node-Server-0", 0, (start + end) / 2, share * (end - start), "store")
            savings.append(saving)
    return Finding("cause", "title", "/made/a.py:1", "change", 0.1, savings)


def saved_seconds(program: Program, steps: Steps, share: float = 1.0) -> float:
    after = simulate(build(program), steps, save_all_but_first(program, share))
    return steps.seconds - after


def test_each_saving_shortens_its_own_result():
    # The first of four stays as it is, and is ready 12 ms before the last one was.
    saved = saved_seconds(make_server(4, cores=4), make_steps(4))
    assert saved == pytest.approx(3 * APART, abs=0.001)


def test_a_result_that_is_left_has_a_core_for_itself():
    # On one core, the first one gets on with a quarter of its speed when all four are stored.
    saved = saved_seconds(make_server(4, cores=1), make_steps(4))
    assert 0.03 < saved < 0.04


def test_results_that_get_only_a_little_shorter_keep_their_cores():
    saved = saved_seconds(make_server(4, cores=1), make_steps(4), share=0.2)
    assert saved < 0.009


def make_stores(count: int) -> list[Edge]:
    """Return results whose storing begins one after the other, and ends at the same time."""
    return [
        Edge(0, STORE_SECONDS, start=number / 1e9, end=STORE_SECONDS, part="store")
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [3, 300])
def test_a_result_counts_however_many_are_stored_with_it(count):
    stores = make_stores(count)
    machine = Machine(stores, cores=2)
    first, *others = stores
    for edge in others:
        machine.remove(edge)
    (relief,) = machine.relieve([first])
    least = STORE_SECONDS * 2 / count
    assert relief.seconds == pytest.approx(least, rel=0.2)


def test_results_that_all_have_a_core_get_no_shorter():
    first, second = make_stores(2)
    machine = Machine([first, second], cores=2)
    machine.remove(second)
    assert not machine.relieve([first])
