# SPDX-License-Identifier: Apache-2.0
"""Messages have the right readers and times, also those of async actors, about which Ray says less."""

from made_programs import DRIVER_TASK, MIB, Builder
from raymeter.causes import forwarded
from raymeter.profile.groups import group_messages, store_seconds
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.report.words import name_route

PUT = "/made/train.py:22"
GET = "/made/train.py:31"
STEPS = 4


def object_of(task: str, number: int) -> str:
    """Return the id of an object that a task has put, as Ray makes it: the first byte counts attempts."""
    index = (100_000_000 + number).to_bytes(4, "little").hex()
    return f"00{task[2:]}{index}"


def make_async_actor(name: str, line: str = "/site/ray/util/queue.py:325") -> Program:
    """Return a program in which an async actor gets a value from the driver, and hands it out to Consumer."""
    builder = Builder()
    for step in range(STEPS):
        begin = 1.0 + step / 10
        put_task = f"{step:044x}aaaa"
        get_task = f"{step:044x}bbbb"
        call = builder.call(
            "call", begin, 0.02, kind="method", task=put_task, name=f"{name}.put", line=PUT, actor="q"
        )  # fmt: skip
        builder.send(call, begin, 0.001)
        builder.receive(
            begin + 0.02, 0.001, name, by="c" * 48, object=object_of(DRIVER_TASK, step),
            owner_task=object_of(DRIVER_TASK, step)[:48], leaves=[[4096 + step * MIB, MIB]],
        )  # fmt: skip
        builder.task(put_task, f"{name}.put", begin + 0.021, 0.001, actor="q")
        builder.call(
            "call", begin + 0.03, 0.001, kind="method", task=get_task, name=f"{name}.get", line=GET,
            place="Consumer.run", actor="q",
        )  # fmt: skip
        builder.send(
            None, begin + 0.0395, 0.0001, by=get_task, by_name=f"{name}.get", line=line,
            process=builder.process_of(name), leaves=[[4096 + step * MIB, MIB]],
        )  # fmt: skip
        builder.task(get_task, f"{name}.get", begin + 0.03, 0.01, actor="q")
        builder.receive(
            begin + 0.04, 0.001, "Consumer.run", by="e" * 48, object=f"{get_task}01", owner_task=get_task
        )  # fmt: skip
    for process in builder.recording.processes:
        process.pid = 7 if name in process.process else process.pid
    for task in builder.recording.tasks:
        task.pid = 7
    return builder.program()


def find_steps() -> Steps:
    times = [(1.0 + step / 10, 1.1 + step / 10) for step in range(STEPS)]
    return Steps("made", times, "node-1", 1, PUT)


def test_arguments_that_an_async_actor_reads_outside_of_its_tasks_have_a_reader():
    program = make_async_actor("_QueueActor")
    arguments = [message for message in program.messages if message.how == "argument"]
    for message in arguments:
        assert [received.by_name for received in message.received] == ["_QueueActor.put"]
    objects = [message.received[0].object for message in arguments]
    assert objects == [object_of(DRIVER_TASK, step) for step in range(STEPS)]


def make_sampled_queue(left_out: int) -> Program:
    """Return a program whose first argument was not seen to be read, and whose second and third were not sent."""
    builder = Builder()
    for step in range(STEPS):
        begin = 1.0 + step / 10
        task = f"{step:048x}"
        if step in (0, 3):
            call = builder.call("call", begin, 0.02, task=task, name="Queue.put", actor="q")
            builder.send(call, begin, 0.001)
        builder.task(task, "Queue.put", begin + 0.021, 0.001, actor="q")
        if step > 0:
            name = object_of(DRIVER_TASK, step)
            builder.receive(
                begin + 0.021, 0.001, "Queue.put", by="c" * 48, object=name, owner_task=name[:48]
            )
    builder.recording.processes[0].recorder.left_out_messages = left_out
    return builder.program()


def test_what_was_read_of_an_argument_that_was_left_out_is_not_given_to_another_one():
    first, last = make_sampled_queue(left_out=3).messages
    assert not first.received
    (received,) = last.received
    assert received.object == object_of(DRIVER_TASK, 3)
    first, _ = make_sampled_queue(left_out=0).messages
    assert first.received


def test_messages_to_a_queue_are_shown_as_such():
    program = make_async_actor("_QueueActor")
    routes = {name_route(group) for group in group_messages(program.messages)}
    assert routes == {"driver -> Queue.put", "Queue.get -> Consumer.run"}


def test_an_argument_is_not_given_to_a_call_that_came_later_or_to_another_actor():
    program = make_async_actor("Store")
    early, late = Builder(), program.recording.received[0]
    call = early.call("call", 5.0, 0.01, task="a" * 48, name="Store.put", actor="other")
    early.send(call, 5.0, 0.001)
    early.recording.received.append(late)
    assert not early.program().messages[0].received


def test_values_through_a_queue_are_found_with_the_users_lines():
    (finding,) = forwarded.find(make_async_actor("_QueueActor"), find_steps())
    assert finding.line == PUT
    assert finding.other_lines == [GET]
    assert "Put a reference into the queue" in finding.change


def test_an_actor_of_the_user_that_only_stores_values_is_found():
    (finding,) = forwarded.find(make_async_actor("Store", "/made/store.py:7"), find_steps())
    assert finding.line == PUT
    assert finding.other_lines == [GET, "/made/store.py:7"]
    assert "only stores the value and hands it out" in finding.change
    deserialised = [saving for saving in finding.savings if saving.part == "deserialise"]
    assert len(deserialised) == STEPS


def test_the_copy_of_a_result_belongs_to_the_phase_that_contains_it_and_not_to_its_task():
    builder = Builder()
    worker = builder.process_of("Store.get")
    builder.send(None, 2.01, 0.001, by="a" * 48, by_name="Store.get", process=worker)
    builder.task("a" * 48, "Store.get", 1.0, 0.0001)  # Ray shows the phases of two tasks in turns
    builder.task("b" * 48, "Store.get", 1.92, 0.1)
    (message,) = builder.program().messages
    assert message.stored is not None
    assert abs(store_seconds(message) - 0.01) < 1e-9


def test_results_of_one_task_share_the_time_in_which_they_are_stored():
    builder = Builder()
    worker = builder.process_of("Store.get")
    for start in (1.092, 1.095):
        builder.send(None, start, 0.001, by="a" * 48, by_name="Store.get", process=worker)
    builder.task("a" * 48, "Store.get", 1.0, 0.1)
    for message in builder.program().messages:
        assert abs(store_seconds(message) - 0.005) < 1e-9


def test_results_share_the_time_with_those_of_their_task_that_were_left_out():
    builder = Builder()
    worker = builder.process_of("Store.get")
    values = {"by_name": "Store.get", "process": worker, "own_seconds": 0.001}
    builder.send(None, 1.091, 0.0005, by="a" * 48, position=2, **values)
    builder.send(None, 2.097, 0.0005, by="b" * 48, position=9, left_out=16, **values)
    builder.task("a" * 48, "Store.get", 1.0, 0.1)
    builder.task("b" * 48, "Store.get", 2.0, 0.1)
    for message in builder.program().messages:
        assert abs(store_seconds(message) - 0.001) < 1e-9
