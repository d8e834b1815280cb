# SPDX-License-Identifier: Apache-2.0
"""The causes of waiting and of many small operations: when they are named, what they save, and when they are silent."""

from made_programs import DRIVER_TASK, Builder
from raymeter.causes import calls, captured, event_loop, items, order, references, wait_one
from raymeter.profile.events import Captured, CountedLine, Export, Run
from raymeter.profile.program import Program, join
from raymeter.profile.steps import Steps, find_steps
from raymeter.simulate.graph import build
from raymeter.simulate.nesting import outermost
from raymeter.simulate.predict import predict, simulate

STEPS = 4
PLACE = "work"


def make_steps(seconds: float) -> Steps:
    times = [(seconds * step, seconds * (step + 1)) for step in range(STEPS)]
    return Steps("a pass of the loop at /made/a.py:1", times, "node-1", 1, "/made/a.py:1")


def predict_first(program: Program, steps: Steps, findings: list) -> float:
    """Return what the best of these findings saves of a step."""
    return predict(program, steps, findings)[0].prediction.saved_seconds


def make_results(handling: float, slow: float = 0.2) -> Program:
    """Return a driver that submits four tasks in each step, the first of which is slow, and gets them in this order."""
    builder = Builder()
    for step in range(STEPS):
        begin = float(step)
        names = [f"{step:024x}{number:024x}" for number in range(4)]
        for number, name in enumerate(names):
            builder.call(
                "call",
                begin + number / 1000,
                0.0005,
                kind="task",
                task=name,
                name=PLACE,
                line="/made/a.py:1",
            )
            builder.task(name, f"{PLACE}-{number}", begin + 0.01, slow if number == 0 else 0.02)
        time = begin + 0.006
        for number, name in enumerate(names):
            end = max(time, begin + 0.01 + (slow if number == 0 else 0.02)) + 0.001
            builder.call(
                "get", time, end - time, objects=[f"{name}01000000"], count=1, line="/made/a.py:2"
            )
            time = end + handling
        builder.call("put", time, 0.001, object=f"{step:056x}", line="/made/a.py:3")
    for task in builder.recording.tasks:
        task.name = PLACE
    return builder.program()


def make_order_steps(program: Program) -> Steps:
    ends = [call.end for call in program.recording.calls if call.event == "put"]
    times = [(float(step), end) for step, end in enumerate(ends)]
    return Steps("a pass", times, "node-1", 1, "/made/a.py:1")


def test_results_in_the_order_of_submission_are_handled_as_they_come():
    program = make_results(handling=0.03)
    steps = make_order_steps(program)
    (finding,) = order.find(program, steps)
    assert finding.cause == order.CAUSE
    assert finding.line == "/made/a.py:2"
    # Before: 0.21 s for the slow one, and then 4 times 0.03 s. After: the last of these comes after the slow one.
    assert 0.08 < predict_first(program, steps, [finding]) < 0.1


def test_the_order_does_not_matter_if_results_are_hardly_handled():
    program = make_results(handling=0.0001)
    steps = make_order_steps(program)
    assert not predict(program, steps, order.find(program, steps))


def test_results_that_are_ready_in_the_order_of_submission_are_no_problem():
    program = make_results(handling=0.03, slow=0.02)
    assert not order.find(program, make_order_steps(program))


def test_calls_after_each_other_are_not_nested_however_short_they_are():
    builder = Builder()
    for number in range(4):
        builder.call("put", number / 10_000, 0.0001, object=f"{number:056x}")
    builder.call("get", 1.0, 0.1)
    builder.call("get", 1.05, 0.04)
    kept = outermost(builder.recording.calls)
    assert [call.start for call in kept] == [0.0, 0.0001, 0.0002, 0.0003, 1.0]


def make_waits(references: int, waiting: float = 0.0) -> Program:
    """Return a driver that takes the results of tasks one by one, in calls that take 1 ms after a result is ready."""
    builder = Builder()
    for step in range(STEPS):
        for number in range(30):
            name = f"{step:024x}{number:024x}"
            start = step + number / 40
            builder.task(name, PLACE, start + waiting - 0.002, 0.002)
            builder.call(
                "wait", start, waiting + 0.001, objects=[f"{name}01000000"], count=references, ready=1,
                line="/made/a.py:5",
            )  # fmt: skip
    return builder.program()


def test_ray_wait_of_one_of_many_is_named_with_its_own_work():
    program = make_waits(references=400, waiting=0.02)
    (finding,) = wait_one.find(program, make_steps(1.0))
    assert finding.cause == wait_one.CAUSE
    assert finding.line == "/made/a.py:5"
    assert 0.025 < finding.seconds < 0.031  # of 30 times 21 ms


def test_ray_wait_of_few_references_is_no_problem():
    assert not wait_one.find(make_waits(references=8), make_steps(1.0))


def make_requests(cpu_share: float, others: int = 4, has_event_loop: bool = True) -> Program:
    """Return an actor whose method takes 20 ms in its event loop, and gets five requests at once in each step."""
    builder = Builder()
    name = "Judge.score"
    process = builder.process_of(name)
    for step in range(STEPS):
        names = [f"{step:024x}{number:024x}" for number in range(others + 1)]
        for number, task in enumerate(names):
            builder.call(
                "call",
                step + number / 1000,
                0.0005,
                kind="method",
                task=task,
                name=name,
                line="/made/a.py:1",
            )
            start = step + 0.01 + 0.02 * number
            builder.task(task, name, start, 0.02, actor="a")
            builder.recording.tasks[-1].running = step + 0.01
            builder.recording.tasks[-1].submitted = step + 0.005
            builder.recording.runs.append(Run(
                process, "coroutine", task, name, 7, "/made/a.py:9", has_event_loop, start, 0.02, 0.02,
                0.02 * cpu_share, [[start, 0.02, 0.02 * cpu_share]],
            ))  # fmt: skip
        end = step + 0.02 * (others + 1) + 0.012
        objects = [f"{task}01000000" for task in names]
        builder.call(
            "get",
            step + 0.006,
            end - step - 0.006,
            objects=objects,
            count=len(objects),
            line="/made/a.py:2",
        )
    return builder.program()


def make_request_steps() -> Steps:
    times = [(float(step), step + 0.113) for step in range(STEPS)]
    return Steps("a pass", times, "node-1", 1, "/made/a.py:1")


def test_a_method_that_blocks_its_event_loop_is_named():
    program = make_requests(cpu_share=0.01)
    (finding,) = event_loop.find(program, make_request_steps())
    assert finding.cause == event_loop.CAUSE
    assert finding.line == "/made/a.py:9"
    # Five requests of 20 ms at the same time.
    assert 0.07 < predict_first(program, make_request_steps(), [finding]) < 0.09


def test_an_event_loop_that_computes_is_no_problem():
    assert not event_loop.find(make_requests(cpu_share=0.9), make_request_steps())


def test_an_event_loop_for_which_nobody_waits_is_no_problem():
    assert not event_loop.find(make_requests(cpu_share=0.0, others=0), make_request_steps())


def test_an_actor_without_an_event_loop_is_not_meant():
    program = make_requests(cpu_share=0.0, has_event_loop=False)
    assert not event_loop.find(program, make_request_steps())


def make_stream(own: float, sending: float, count: int = 100) -> Program:
    """Return a generator that computes each item for `own` seconds, and a driver that gets one after the other."""
    builder = Builder()
    name = "Model.generate"
    process = builder.process_of(name)
    each = own + sending
    for step in range(STEPS):
        task = f"{step:048x}"
        begin = 10.0 * step
        builder.call("call", begin, 0.001, kind="method", task=task, name=name, line="/made/a.py:1")
        start = begin + 0.002
        builder.task(task, name, start, each * count, actor="a")
        builder.recording.tasks[-1].deserialise = (start, start)
        builder.recording.tasks[-1].execute = (start, start + each * count)
        builder.recording.tasks[-1].store = None
        times = []
        last = begin + 0.001
        for number in range(count):
            times += [each * number + own, each * (number + 1)]
            item = f"{task}{(number + 2).to_bytes(4, 'little').hex()}"
            ready = start + each * (number + 1)
            builder.call(
                "next", last, ready + 0.0001 - last, objects=[item], count=1, line="/made/a.py:2"
            )
            last = ready + 0.0001
        builder.call("put", last, 0.0001, object=f"{step:056x}", line="/made/a.py:3")
        builder.recording.runs.append(Run(
            process, "generator", task, name, 7, "/made/a.py:9", False, start, each * count, own * count, 0.0, [],
            times, count,
        ))  # fmt: skip
    return builder.program()


def make_stream_steps(seconds: float) -> Steps:
    times = [(10.0 * step, 10.0 * step + seconds) for step in range(STEPS)]
    return Steps("a pass", times, "node-1", 1, "/made/a.py:1")


def test_many_small_items_of_a_generator_are_named_with_what_sending_them_takes():
    program = make_stream(own=0.0002, sending=0.001)
    steps = make_stream_steps(0.1223)
    (finding,) = items.find(program, steps)
    assert finding.cause == items.CAUSE
    assert finding.line == "/made/a.py:9"
    assert 0.09 < predict_first(program, steps, [finding]) < 0.11


def test_items_that_take_long_to_make_are_no_problem():
    program = make_stream(own=0.02, sending=0.0002)
    steps = make_stream_steps(2.0223)
    assert not predict(program, steps, items.find(program, steps))


def test_an_item_of_a_generator_is_ready_before_its_task_ends():
    program = make_stream(own=0.001, sending=0.001)
    graph = build(program)
    task = f"{1:048x}"
    first = graph.time_of(graph.ready[f"{task}02000000"])
    assert abs(first - 10.004) < 1e-6
    assert graph.time_of(graph.ready[task]) > 10.2


def make_small_calls(count: int, task_seconds: float = 0.0001) -> Program:
    """Return a driver that submits tasks in 0.5 ms each, and then waits for all of them."""
    builder = Builder()
    for step in range(STEPS):
        for number in range(count):
            name = f"{step:024x}{number:024x}"
            start = step + number / 2000
            builder.call(
                "call",
                start,
                0.0004,
                kind="task",
                task=name,
                name=PLACE,
                line="/made/a.py:1",
                function="main",
            )
            builder.task(name, PLACE, start + 0.001, task_seconds)
        builder.call(
            "get",
            step + count / 2000,
            0.01,
            objects=[f"{name}01000000"],
            count=count,
            line="/made/a.py:2",
        )
    return builder.program()


def test_many_small_calls_leave_enough_batches_for_all_cores():
    program = make_small_calls(400)
    program.recording.processes[0].cores = 10
    (finding,) = calls.find(program, make_steps(1.0))
    assert "a batch of 10 or more" in finding.change


def test_calls_of_long_tasks_are_not_small():
    assert not calls.find(make_small_calls(400, task_seconds=0.05), make_steps(1.0))


def make_single_gets(event: str) -> Program:
    builder = Builder()
    for step in range(STEPS):
        for number in range(200):
            item = f"{step:024x}{number:024x}01000000"
            values = {"object": item} if event == "put" else {"objects": [item], "count": 1}
            values |= {"name": f"ray.{event}", "function": "main"}
            builder.call(event, step + number / 1000, 0.0008, line="/made/a.py:1", **values)
    return builder.program()


def test_objects_that_are_put_or_got_one_by_one_are_named():
    for event in ("put", "get"):
        (finding,) = calls.find(make_single_gets(event), make_steps(1.0))
        assert finding.cause == calls.CAUSE
        assert f"ray.{event}" in finding.title


def test_calls_that_were_only_counted_are_part_of_the_saving():
    program = make_single_gets("put")
    (all_of_them,) = calls.find(program, make_steps(1.0))
    counted = CountedLine("/made/a.py:1", "main", "ray.put", "put", 800, 0.64, 100)
    program.recording.processes[0].recorder.counted.append(counted)
    program.recording.calls = program.recording.calls[::8]
    (sampled,) = calls.find(join(program.recording), make_steps(1.0))
    assert abs(sampled.seconds - all_of_them.seconds) < 0.05 * all_of_them.seconds


def make_two_phases() -> Program:
    """Return a step in which a line puts 800 objects, one of eight of them written, and one in which it puts ten."""
    builder = Builder()
    many = [number / 1000 for number in range(0, 800, 8)]
    few = [1 + number / 1000 for number in range(10)]
    for start in many + few:
        is_first = start == many[0]
        left_out = 7 if start <= few[0] and not is_first else 0
        values = {"name": "ray.put", "function": "main", "left_out": left_out}
        builder.call("put", start, 0.0008, line="/made/a.py:1", object=f"{start}", **values)
    counted = CountedLine("/made/a.py:1", "main", "ray.put", "put", 810, 1.0, 110)
    builder.recording.processes[0].recorder.counted.append(counted)
    return builder.program()


def test_a_phase_with_many_calls_and_one_with_few_are_not_mixed_up():
    recorded = make_two_phases().recording.calls
    many = [call.weight for call in recorded if call.start < 1]
    few = [call.weight for call in recorded if call.start >= 1]
    assert many == [8.0] * 100
    assert few == [1.0] * 10


def test_a_function_that_is_defined_again_saves_the_whole_call_that_exports_it():
    builder = Builder()
    for step in range(STEPS):
        start = float(step)
        builder.call(
            "call", start, 0.02, kind="task", task=f"{step:048x}", name=PLACE, line="/made/a.py:2"
        )
        builder.recording.exports.append(Export(
            "node-1", "function", "main.<locals>.work", 600, start + 0.001, 0.002, DRIVER_TASK, 1, "/made/a.py:2",
            "main", "/made/a.py:1",
        ))  # fmt: skip
    program = builder.program()
    (finding,) = captured.find(program, make_steps(1.0))
    assert finding.cause == captured.REDEFINED
    assert 0.019 < finding.seconds < 0.02  # and not only 2 ms for pickling it


def test_a_class_that_brings_data_with_it_is_to_be_defined_once():
    builder = Builder()
    table = Captured("table", "numpy.ndarray", 4_000_000)
    export = Export("node-1", "class", "Actor", 4_000_600, 0.1, 0.002, line="/made/a.py:2")
    export.captured = [table]
    builder.recording.exports.append(export)
    (finding,) = captured.find(builder.program(), make_steps(1.0))
    assert finding.line == "/made/a.py:2"
    assert "table" in finding.title
    assert finding.change.endswith("and define the class once.")


def test_a_loop_that_only_takes_results_is_a_part_of_a_step():
    program = make_stream(own=0.001, sending=0.001)
    steps = find_steps(program)
    assert steps.line == "/made/a.py:1"
    assert steps.count == STEPS


def test_a_change_that_was_simulated_leaves_the_graph_as_it_was():
    program = make_results(handling=0.03)
    steps = make_order_steps(program)
    graph = build(program)
    (finding,) = order.find(program, steps)
    first = simulate(graph, steps, finding)
    assert simulate(graph, steps, finding) == first


def make_lists_of_references(count: int, message_bytes: int = 0) -> Program:
    """Return a driver that sends five messages with references in 10 ms each, and waits for their reader."""
    builder = Builder()
    for step in range(STEPS):
        for number in range(5):
            task = f"{step:024x}{number:024x}"
            start = step + number / 100
            values = {"kind": "method", "task": task, "name": PLACE, "contained": count}
            call = builder.call("call", start, 0.01, line="/made/a.py:1", **values)
            if message_bytes:
                builder.send(call, start, 0.008, bytes=message_bytes)
            builder.task(task, PLACE, start + 0.01, 0.005, actor="a")
        builder.call("get", step + 0.05, 0.006, objects=[f"{task}01000000"], line="/made/a.py:2")
    return builder.program()


def test_many_references_in_one_message_are_named():
    program = make_lists_of_references(500)
    times = [(float(step), step + 0.056) for step in range(STEPS)]
    steps = Steps("a pass", times, "node-1", 1, "/made/a.py:1")
    (finding,) = references.find(program, steps)
    assert finding.cause == references.CAUSE
    assert finding.line == "/made/a.py:1"
    # Before: 56 ms. After: the five readers one after the other, of which each still runs for 4.5 ms.
    assert 0.03 < predict_first(program, steps, [finding]) < 0.034


def test_few_references_or_much_data_are_no_problem_of_references():
    assert not references.find(make_lists_of_references(5), make_steps(1.0))
    assert not references.find(make_lists_of_references(60, 10**8), make_steps(1.0))


def sample_calls(program: Program, period: int) -> Program:
    """Return the program as it is recorded if most of its short calls are only counted."""
    recording = program.recording
    submissions = [call for call in recording.calls if call.event == "call"]
    kept = submissions[::period]
    for task in recording.tasks:
        task.parent = DRIVER_TASK
    seconds = sum(call.seconds for call in submissions)
    counted = CountedLine(
        "/made/a.py:1", "main", PLACE, "call", len(submissions), seconds, len(kept)
    )
    recording.processes[0].recorder.counted.append(counted)
    others = [call for call in recording.calls if call.event != "call"]
    recording.calls = sorted([*kept, *others], key=lambda call: call.start)
    return join(recording)


def test_tasks_whose_calls_were_only_counted_are_part_of_the_saving():
    steps = Steps(
        "a pass",
        [(float(step), step + 0.085) for step in range(STEPS)],
        "node-1",
        1,
        "/made/a.py:1",
    )
    program = make_small_calls(150)
    whole = predict_first(program, steps, calls.find(program, steps))
    sampled = sample_calls(make_small_calls(150), period=50)
    assert sum(call.event == "call" for call in sampled.recording.calls) == 150 * STEPS
    saved = predict_first(sampled, steps, calls.find(sampled, steps))
    assert saved > 0.04
    assert abs(saved - whole) < 0.1 * whole


def test_tasks_that_ray_has_forgotten_are_part_of_the_saving():
    whole = seconds_in_tasks(make_small_calls(150))
    program = make_small_calls(150)
    calls_of_tasks = [call for call in program.recording.calls if call.event == "call"]
    kept = {call.task for call in calls_of_tasks[::2]}
    tasks = [task for task in program.recording.tasks if task.task in kept]
    program.recording.tasks = tasks
    assert abs(seconds_in_tasks(sample_calls(program, period=2)) - whole) < 0.01 * whole


def seconds_in_tasks(program: Program) -> float:
    """Return what fewer calls save of reading arguments and storing results."""
    (finding,) = calls.find(program, make_steps(1.0))
    around = [saving for saving in finding.savings if saving.part in ("deserialise", "store")]
    return sum(saving.seconds for saving in around)


def test_a_ray_get_of_more_objects_than_were_written_waits_for_all_of_them():
    program = make_small_calls(400)
    recording = program.recording
    for call in recording.calls:
        if call.event == "get":
            call.objects = [f"{call.objects[0][:24]}{0:024x}01000000"]
    for task in recording.tasks:
        task.submitted -= 0.001  # in its call
    join(recording)
    gets = [call for call in recording.calls if call.event == "get"]
    assert [len(set(call.objects)) for call in gets] == [400] * STEPS
