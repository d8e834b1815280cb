"""Make another flow of a flow: with messages of another form or size, or with a task that the suite adds."""

from collections.abc import Callable
from dataclasses import replace

from dataflow.flows.flow import DRIVER, PROXY, Flow, Task
from dataflow.flows.message import (
    ACKNOWLEDGEMENT,
    ITEM_BYTES,
    NUMBER_BYTES,
    Field,
    Message,
    flat_message,
    jagged_message,
)


def jagged_flow(flow: Flow) -> Flow:
    return change_messages(flow, jagged_message)


def packed_flow(flow: Flow) -> Flow:
    return change_messages(flow, lambda message: flat_message(message.packed_bytes))


def with_proxy_actor(flow: Flow) -> Flow:
    """Return the same flow with an actor that sends the query and reads the results in place of the driver.

    The driver starts each iteration with 8 bytes and gets an acknowledgement.
    """
    tasks = [replace(task, reads=tuple("query" if s == DRIVER else s for s in task.reads)) for task in flow.tasks]
    begin = Task("query", (DRIVER,), flow.query, PROXY)
    end = Task("result", flow.returns, ACKNOWLEDGEMENT, PROXY)
    return replace(flow, query=ACKNOWLEDGEMENT, tasks=(begin, *tasks, end), returns=("result",))


def scale_flow(flow: Flow, iteration_bytes: int) -> Flow:
    """Return the flat flow with about `iteration_bytes` per iteration: each message keeps its share, in int64 words.

    Acknowledgements keep their 8 bytes, unless the flow has no other messages.
    """
    smallest = NUMBER_BYTES * len(flow.edges)
    if iteration_bytes < smallest:
        raise ValueError(f"--iteration-bytes {iteration_bytes}: {flow.name} has {len(flow.edges)} messages of at least "
                         f"8 bytes per iteration: give {smallest} or more")  # fmt: skip
    fixed_bytes = sum(edge.bytes for edge in flow.edges if edge.message == ACKNOWLEDGEMENT)
    if fixed_bytes == flow.bytes_per_iteration:
        fixed_bytes = 0
    factor = (iteration_bytes - fixed_bytes) / (flow.bytes_per_iteration - fixed_bytes)

    def scale(message: Message) -> Message:
        if fixed_bytes and message == ACKNOWLEDGEMENT:
            return message
        return flat_message(NUMBER_BYTES * max(1, round(message.bytes * factor / NUMBER_BYTES)))

    return change_messages(flow, scale)


def cut_messages(flow: Flow, count: int) -> Flow:
    """Return the flow with each tensor cut into `count` tensors of nearly equal size. Lists stay as they are."""

    def cut(field: Field) -> list[Field]:
        if field.is_list:
            return [field]
        items, remainder = divmod(field.bytes // ITEM_BYTES[field.dtype], count)
        if not items:
            raise ValueError(f"--fields {count}: {flow.name} has a tensor of only {field.bytes} bytes: give fewer "
                             "fields or a larger --iteration-bytes")  # fmt: skip
        name = field.name or "part"
        return [Field(f"{name}_{n}", field.dtype, (items + (n < remainder),)) for n in range(count)]

    def cut_all(message: Message) -> Message:
        if message == ACKNOWLEDGEMENT:
            return message
        return Message(tuple(part for field in message.fields for part in cut(field)))

    return change_messages(flow, cut_all)


def shrink_messages(flow: Flow) -> Flow:
    """Return the flow with as many fields in each message, of one tensor of 8 bytes each, and tasks that only send."""

    def shrink(message: Message) -> Message:
        return Message(tuple(Field(field.name, "int64", (1,)) for field in message.fields))

    shrunk = change_messages(flow, shrink)
    return replace(shrunk, tasks=tuple(replace(task, work=None, other_bytes=0) for task in shrunk.tasks))


def change_messages(flow: Flow, change: Callable[[Message], Message]) -> Flow:
    tasks = tuple(replace(task, sends=change(task.sends)) for task in flow.tasks)
    return replace(flow, query=change(flow.query), tasks=tasks)
