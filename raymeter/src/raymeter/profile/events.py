# SPDX-License-Identifier: Apache-2.0
"""The events that raymeter.inside writes, with types. Times are in seconds, points in time since 1970.

Ids of tasks, objects and actors are hexadecimal, as Ray shows them. The id of an object begins with the id of the task
that made it. `by` is the task that did it; the driver has a task, too. A `line` is "file:line" of the user's code.
"""

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any


@dataclass
class Process:
    """A process of the program, from its first line. `role` is "driver" or "worker"."""

    process: str  # host and pid
    pid: int = 0
    host: str = ""
    role: str = ""
    ray: str = ""
    python: str = ""
    start: float = 0.0
    cores: int = 1
    folder: str = ""  # in which it was started
    settings: dict[str, str] = field(
        default_factory=dict
    )  # variables that change how memory is used
    min_bytes: int = 0
    missing: list[str] = field(default_factory=list)  # functions of Ray that are not recorded
    recorder: "RecorderCost | None" = None  # the last one


@dataclass
class RecorderCost:
    """What recording has cost a process so far, and the short calls that were only counted."""

    time: float = 0.0
    own_seconds: float = 0.0  # CPU time; mostly time by the clock in profiles of older versions
    cpu_seconds: float = 0.0  # of the process since it is recorded, with what recording took
    end_seconds: float = 0.0  # in which the driver has waited for what Ray knows of its tasks
    written_bytes: int = 0
    events: int = 0
    left_out_messages: int = 0  # large ones, sent and received
    left_out_events: int = 0  # after the first 200,000 of a process
    left_out_tasks: int = 0  # of which Ray has recorded the times
    has_ended: bool = True  # the driver has left the cluster, or the process has ended by itself
    error: str = ""  # type of the error that has ended recording, while the program went on
    period: int = 1  # of short calls with small messages, one of so many is written
    counted: list["CountedLine"] = field(default_factory=list)
    last_left_out: list["LeftOut"] = field(default_factory=list)


@dataclass
class LeftOut:
    """Large messages that were left out after the last one like them that was written."""

    kind: str = ""  # "sent" or "received"
    line: str = ""
    by_name: str = ""
    type: str = ""
    count: int = 0
    seconds: float | None = None  # that serialising or reading them took; None in older profiles


@dataclass
class CountedLine:
    """All calls of one line with small messages, whether they were written or not."""

    line: str = ""
    function: str = ""
    name: str = ""  # of the task or method that is called, or ray.get, ray.put, ray.wait
    kind: str = ""  # "call", "get", "put", "wait", "next"
    count: int = 0
    seconds: float = 0.0
    written: int = 0


@dataclass
class Call:
    """A call of Ray: a submission ("call"), "get", "wait", "next" of a generator, "put" or "channel".

    `own_seconds` is the part of `seconds` that the recorder took. `messages` are the numbers of the large messages
    that were serialised inside of it, in the same process.
    """

    event: str = ""
    process: str = ""
    number: int = 0
    start: float = 0.0
    seconds: float = 0.0
    own_seconds: float = 0.0
    messages: list[int] = field(default_factory=list)
    contained: int = 0  # references inside of the messages
    name: str = ""  # for a submission: of the task or method
    by: str = ""
    by_name: str = ""
    thread: int = 0
    line: str = ""
    function: str = ""
    frames: list[int] = field(
        default_factory=list
    )  # numbers of the run of this function, and of its callers; [] if unknown
    instruction: int = (
        -1
    )  # of the function, because one line can call a library twice; -1 if unknown
    entry: int = (
        0  # number of the run of the library's function that this line has called; 0 if unknown
    )
    graph_function: str = ""  # of Ray, which made or ended a compiled graph with this call
    # Of a submission
    kind: str = ""  # "task", "method" or "actor"
    task: str = ""  # id of the task that was submitted
    actor: str = ""
    references: list[str] = field(default_factory=list)  # objects that are arguments themselves
    # Of get, wait and next
    has_failed: bool = False  # a get that has raised an error, such as that its time is over
    objects: list[str] = field(default_factory=list)  # at most 256 of them; of wait, those ready
    count: int = 0
    deserialise_seconds: float = 0.0  # of large messages
    ready: int = 0
    fetch_local: bool = True
    # Of put and channel
    object: str = ""
    is_restored: bool = (
        False  # it was only counted, and is made again from what Ray knows of its task
    )
    # Of calls with small messages, or with large ones over the budget, not all of which are written
    left_out: int = 0  # calls of this line since the last one that was written
    left_out_messages: int = 0  # large ones inside of it that are not in `messages`
    small_bytes: int = (
        0  # of small messages inside of it, without numbers, None, and those with references
    )
    weight: float = 1.0  # calls for which this one stands; it is computed, and not in the file

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass
class Field:
    """Parts of a message with one path: an array, tensor, table, text, bytes or list of numbers."""

    path: str = ""
    count: int = 1
    type: str = ""
    dtype: str = ""
    shape: list[int] = field(default_factory=list)
    bytes: int = 0
    storage_bytes: int = 0  # of the memory that views look at
    is_contiguous: bool = True
    device: str = "cpu"
    requires_grad: bool = False
    columns: int = 0
    chunks: int = 0  # of all columns of a table
    object_columns: int = 0
    form: str = (
        ""  # of a type whose arrays are copied into the pickle, such as "sparse" or "masked"
    )
    one_value: float = 0.0  # share of its numbers that are one value, such as that of padding
    is_part: bool = False  # only a part of the message's items was looked at


@dataclass
class OwnPickling:
    """A class in a message that says itself how it is pickled."""

    type: str = ""
    path: str = ""  # in the message; "" if it is the message
    line: str = ""
    method: str = ""


@dataclass
class ClassCode:
    """A class whose code travels with a message, because readers cannot import it."""

    type: str = ""
    bytes: int = 0
    seconds: float = 0.0  # that pickling the code takes


@dataclass
class Alternative:
    """What one message of a kind took if it was serialised in another way, or "as it is", in its sender."""

    convert: float = 0.0
    serialise: float = 0.0
    deserialise: float = 0.0
    is_read: bool = True  # else reading it would run code of its classes: it takes an unknown time
    bytes: int = 0
    inband_bytes: int = 0
    buffers: int = 0
    share: float = 1.0  # of the items that were measured; the numbers are scaled to all of them


@dataclass
class Sent:
    """A large message that was serialised. Which call did it is `scope`; 0 is the result of the task `by`."""

    process: str = ""
    number: int = 0
    scope: int = 0  # number of a Call in the same process
    how: str = ""  # "rdt" for Ray Direct Transport
    by: str = ""
    by_name: str = ""
    thread: int = 0
    node: str = ""
    start: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    own_seconds: float = 0.0  # of the recorder, after the message was serialised
    faults: int = 0
    imports: int = 0  # modules that were imported meanwhile; then, the time is not typical
    position: int = 0  # among the large results of its task, from 1; 0 for other messages, and in older profiles
    bytes: int = 0
    references: int = 0  # to objects, inside of the message
    inband_bytes: int = 0  # inside of the pickle, which each reader copies
    buffers: int = 0  # outside of it
    type: str = ""
    leaves: list[list[int]] = field(default_factory=list)  # address and bytes of the largest arrays
    token: int = 0  # of its largest array, as long as this object lives; 0: unknown
    is_hidden_in_short: bool = False  # in short, another array is the largest one, or none is
    content: int = 0  # equal for equal samples of the bytes
    is_same: bool | None = (
        None  # all bytes are those of the last message with this content; None: not verified
    )
    whole: int = 0  # sum of all bytes; 0: not computed
    parts: list[tuple[int, int, bool | None]] = field(
        default_factory=list
    )  # bytes, sum of samples and `is_same` of its largest arrays
    line: str = ""
    function: str = ""
    has_equal_names: bool = (
        False  # its line is unknown, and its worker knows several functions of its name
    )
    fields: list[Field] = field(default_factory=list)
    own_pickling: OwnPickling | None = None
    class_code: ClassCode | None = None
    is_torch_pickle: bool = False  # a tensor in it was pickled by torch itself
    alternatives: dict[str, Alternative] = field(default_factory=dict)
    unfit: list[str] = field(default_factory=list)  # alternatives that do not fit it
    is_short: bool = False  # only its content is known, and few of its parts: more takes too long
    left_out: int = 0  # messages like it since the last one that was written
    left_out_seconds: float | None = None  # that they took; None in older profiles
    weight: float = 1.0  # messages for which this one stands; it is computed, and not in the file

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass
class Received:
    """A large message that was deserialised by the task `by`, as an argument or in the call `scope`."""

    process: str = ""
    scope: int = 0
    object: str = ""
    owner_task: str = ""
    by: str = ""
    by_name: str = ""
    thread: int = 0
    node: str = ""
    start: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    faults: int = 0
    imports: int = 0
    bytes: int = 0
    type: str = ""
    leaves: list[list[int]] = field(default_factory=list)
    line: str = ""  # of ray.get, or where the method is defined that has it as an argument
    is_short: bool = False  # only few of its parts were looked at
    left_out: int = 0
    left_out_seconds: float | None = None
    weight: float = 1.0

    @property
    def end(self) -> float:
        return self.start + self.seconds

    @property
    def is_argument(self) -> bool:
        """Return whether Ray deserialised it before a task or method began, and not in a call of the user."""
        return not self.scope


@dataclass
class Captured:
    """A variable that a function or a class brings with it when it is sent to the workers."""

    name: str = ""
    type: str = ""
    bytes: int = 0


@dataclass
class Export:
    """A function or a class of actors that was pickled for the workers, `defined` at file:line."""

    process: str = ""
    kind: str = ""  # "function" or "class"
    name: str = ""
    bytes: int = 0
    start: float = 0.0
    seconds: float = 0.0
    by: str = ""
    thread: int = 0
    line: str = ""
    function: str = ""
    defined: str = ""
    content: int = 0
    captured: list[Captured] = field(default_factory=list)


@dataclass
class Fetch:
    """The time in which a worker got and unpickled the code of a function."""

    process: str = ""
    by: str = ""
    start: float = 0.0
    seconds: float = 0.0


@dataclass
class Batch:
    """A batch with lists of numbers, of which Ray Data has made a block in the task `by`.

    `line` and `function` are those of the user's function that has returned it; "" if they are unknown.
    """

    process: str = ""
    by: str = ""
    by_name: str = ""
    thread: int = 0
    line: str = ""
    function: str = ""
    column: str = ""  # of most numbers
    rows: int = 0
    start: float = 0.0
    seconds: float = 0.0
    array_seconds: float | None = (
        None  # with arrays in the place of lists; -1 if they have none, None if not measured
    )
    to_list_seconds: float = 0.0  # of tolist() of these arrays, if the function calls it somewhere


@dataclass
class Run:
    """What the user's function did in a worker, for the task `by`.

    `code_seconds` and `cpu_seconds` are those of its own code, without the time in which it let others run. In
    `awaited_seconds`, it awaited something. What Ray does between the items of a generator is in neither. Profiles of
    earlier versions have 0.0 there, and count what an async generator awaited as its own. `process_seconds` are the
    CPU seconds of all threads of its process, and -1 if they are unknown or the process has had children, whose time
    is not in them.

    A coroutine has `blocks`: start, seconds and CPU seconds of each part of 2 ms and more in which it did not let go of
    its event loop. A generator has `items`: the seconds from its start at which it gave an item, and at which it was
    asked for the next one, in turns.
    """

    process: str = ""
    kind: str = ""  # "function", "coroutine" or "generator"
    by: str = ""
    by_name: str = ""
    thread: int = 0
    line: str = ""  # where the function is defined; of a generator, its first yield
    has_event_loop: bool = False  # its actor has coroutines among its methods
    start: float = 0.0
    seconds: float = 0.0
    code_seconds: float = 0.0
    cpu_seconds: float = 0.0
    blocks: list[list[float]] = field(default_factory=list)
    items: list[float] = field(default_factory=list)  # of the first 2,000
    count: int = 0  # of items
    awaited_seconds: float = 0.0
    process_seconds: float = -1.0
    peak_bytes: int = 0  # the most memory that its process has had so far; 0: unknown

    @property
    def end(self) -> float:
        return self.start + self.seconds


@dataclass
class Task:
    """A task as Ray itself has recorded it. States and phases that Ray does not know are None."""

    task: str = ""
    name: str = ""
    type: str = ""  # NORMAL_TASK, ACTOR_TASK, ACTOR_CREATION_TASK, DRIVER_TASK
    parent: str = ""
    actor: str = ""
    pid: int = 0
    node: str = ""
    attempt: int = 0
    cpus: float = 0.0  # that it takes of those of the cluster while it runs
    gpus: float = 0.0  # 0 in older profiles, too
    resources: list[str] = field(default_factory=list)  # all but CPUs that it takes
    runtime_env: int = 0  # equal for equal ones; 0: it has none, or it was not recorded
    parts_of_env: dict[str, int] = field(default_factory=dict)  # equal numbers for equal parts
    submitted: float | None = None
    waits_for_node: float | None = None
    waits_for_store: float | None = None
    sent_to_worker: float | None = None
    running: float | None = None
    finished: float | None = None
    failed: float | None = None
    deserialise: tuple[float, float] | None = None  # start and end of reading the arguments
    execute: tuple[float, float] | None = None
    store: tuple[float, float] | None = None  # of the results: serialising and copying


@dataclass
class Cluster:
    """What Ray has for tasks, on all nodes together."""

    cpus: float = 0.0  # as the program has said, or else the number of cores
    memory: float = 0.0  # bytes
    gpus: list[float] = field(default_factory=list)  # of each node that has some


@dataclass
class Store:
    """The object stores of all nodes together at one time. Spilled and restored bytes are sums since they started."""

    time: float = 0.0
    used: int = 0
    capacity: int = 0
    fallback: int = 0  # bytes in files, because the store was full
    objects: int = 0
    spilled: int = 0
    restored: int = 0
    spill_seconds: float = 0.0  # during which at least one object was spilled
    restore_seconds: float = 0.0
    copy_rate: float = 0.0  # bytes per second, measured once when a store was filled; else 0


@dataclass
class Reference:
    """A large object to which a process referred at one time, as `ray memory` shows it.

    `kind` is LOCAL_REFERENCE, PINNED_IN_MEMORY (a value that looks at the store), USED_BY_PENDING_TASK,
    CAPTURED_IN_OBJECT or UNKNOWN.
    """

    time: float = 0.0
    pid: int = 0
    object: str = ""
    bytes: int = 0
    kind: str = ""
    line: str = ""  # that made the reference
    node: str = ""  # of the process


def make(kind: type, line: dict[str, Any]) -> Any:
    """Return the event of a line: names that this version does not know are left out, and missing ones have defaults.

    Raise TypeError if one is missing that has no default.
    """
    known = names_of(kind)
    if known.issuperset(line):  # most often
        return kind(**line)
    return kind(**{name: value for name, value in line.items() if name in known})


@cache
def names_of(kind: type) -> frozenset[str]:
    """Return the names of the fields of a kind of events."""
    return frozenset(item.name for item in fields(kind))
