# SPDX-License-Identifier: Apache-2.0
"""Wrap the functions of Ray through which messages pass and in which programs wait. No wrapper changes a result.

Each wrapper calls the original, whatever happens to the recorder. If recording fails, it ends for this process, with
one line on standard error.
"""

import atexit
import contextlib
import functools
import os
import resource
import sys
import threading
import time
from pkgutil import resolve_name

from . import (
    alternatives,
    by_class,
    captured,
    class_code,
    data_batches,
    describe,
    identity,
    memory,
    place,
    ray_internals,
    runs,
    tasks,
)
from .recorder import ALWAYS_SECONDS, DESCRIBED_FIRST, LEFT_OUT_SECONDS, Recorder

MAX_REFERENCES = 256  # of a call that are written; more are only counted
DESCRIBED_AGAIN = 64  # then this one, and the one with twice its number, and so on
# Of a content that was seen before, so often all bytes are summed, so that a change is noticed.
VERIFIED_REPEATS = 8
MAX_CONTENTS = 1_000  # that are remembered
MAX_KINDS = 1_000  # of messages that are remembered
COMPARED_WITH_OTHERS = 4  # contents of a process that are compared with those of other processes
MIN_PART_BYTES = 2**16  # of an array that is compared with earlier ones
FIRST_PASSES = 5  # times its serialisation, which a message of a new kind may be measured
FIRST_SECONDS = 0.5  # that it may take in any case
MAX_FIRST_SECONDS = 2.0
ALL_FIRST_SECONDS = (
    4.0  # that first messages of all kinds may take in a process; then only what the budget has
)
MAX_FIRST_BYTES = (
    64 * 2**20
)  # of a message that is measured although it may be the only one of its kind
TORCH_PICKLE = b"_load_from_bytes"  # in the pickle of a tensor that torch itself has pickled
MANY_REFERENCES = 50  # inside of a result, which is written then even if it is small
SMALL_TYPES = (int, float, bool, type(None))  # whose messages are never large
MEASURED_READINGS = 20
MANY_SMALL = 64  # messages of a type in a row, after which the next one is taken for small, too

recorder = None  # of this process; False after an error
memory_sampler = None  # of the driver


class PickledParts(threading.local):
    """What the pickle of the message that this thread serialises consists of."""

    def __init__(self):
        self.clear()

    def clear(self):
        self.inband_bytes = 0
        self.inband = b""
        self.buffers = []


class Read:
    """It stands for the type of a message, which is not known before the message is read."""


parts = PickledParts()
live_objects = identity.LiveObjects()
known_parts = identity.KnownParts()
contents = {}  # sum of samples -> [how often it was seen, sum of all bytes or None]
compared_contents = set()  # sums of samples of messages that were compared with an earlier one
kinds_seen = {}  # kind of a message -> how often; the last one that was seen is at the end
measured_kinds = {}  # kind of a message -> what was measured of its alternatives
small_in_row = by_class.ByClass()  # how many messages of a type were small since the last large one
slow_kinds = (
    by_class.ByClass()
)  # types of messages that are sent, and Read, if the last one was slow


def readings():
    """Return the time, CPU seconds and page faults of this thread, and the number of imported modules."""
    current = recorder  # another thread may end recording meanwhile
    if current:
        current.readings += 1
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return time.time(), usage.ru_utime + usage.ru_stime, usage.ru_minflt, len(sys.modules)


def measure_reading():
    """Return the CPU time that `readings` takes, which is too short to be timed in each message."""
    begin = time.thread_time()
    for _ in range(MEASURED_READINGS):
        readings()
    seconds = time.thread_time() - begin
    recorder.readings = 0
    return seconds / MEASURED_READINGS


def first_readings(kind, small):
    """Return the readings before a message is serialised.

    CPU seconds and page faults are None if messages of this type are always small, or if it will probably be left out:
    to read them takes longer than the time. `small` are those in a row that were.
    """
    begin = time.time()
    if small >= MANY_SMALL or is_left_out_if_fast(kind, begin):
        return begin, None, None, len(sys.modules)
    return readings()


def is_left_out_if_fast(kind, at):
    """Return whether large messages are over their budget, and the last one of this kind was fast."""
    current = recorder
    if not current or kind in slow_kinds:
        return False
    return not current.has_message_time(at)


def last_readings(before):
    """Return the readings after a message was serialised or read, of what was read before it."""
    if before[1] is None:
        return time.time(), None, None, len(sys.modules)
    return readings()


def note_speed(kind, seconds):
    """Remember whether a message was so slow that the next one of this kind is read completely."""
    if seconds >= ALWAYS_SECONDS:
        slow_kinds.set(kind, True)
    else:
        slow_kinds.discard(kind)


def stop(error):
    """End recording in this process; the wrapped functions go on without it."""
    global recorder
    current = recorder
    recorder = False
    parts.clear()  # of the user's values
    if current:
        with contextlib.suppress(Exception):  # the program goes on
            current.stop(error)
    text = f"raymeter: recording ended in process {os.getpid()}: {type(error).__name__}: {error}"
    print(text, file=sys.stderr)


def install():
    """Wrap the functions of Ray, and begin to record.

    If this process has begun before, only read the memory of the cluster that it joins now. A function that this
    version of Ray does not have is noted as missing. If the recorder cannot be made, recording ends without an error.
    """
    global recorder
    if recorder is not None:
        sample_memory()
        return
    missing = []
    for name, make_wrapper in WRAPPERS.items():
        try:
            replace(name, make_wrapper)
        except Exception:  # this version of Ray does not have it, or it cannot be imported
            missing.append(name)
    if not ray_internals.NAMES_OF_NEXT.issubset(missing):
        missing = [name for name in missing if name not in ray_internals.NAMES_OF_NEXT]
    try:
        folder = os.environ["RAYMETER_FOLDER"]
        recorder = Recorder(folder, os.environ["RAYMETER_MIN_BYTES"], missing)
    except Exception as error:
        stop(error)
        return
    recorder.reading_seconds = measure_reading()
    os.register_at_fork(after_in_child=functools.partial(forget, recorder))
    atexit.register(read_tasks_once)  # before Ray's own shutdown, which was registered earlier
    sample_memory()
    recorder.start_flushing()


def sample_memory():
    """Begin to read the object stores if this is a driver, for each cluster that it joins."""
    global memory_sampler
    if recorder and not ray_internals.is_worker():
        memory_sampler = memory.Sampler(recorder)


def forget(made):
    """Record nothing in a child of fork, which would write into the file of its parent, also when it ends."""
    global recorder
    recorder = False
    atexit.unregister(made.end)


def replace(name, make_wrapper):
    """Put a wrapper in the place of a function of Ray, and of what calls it in the module `ray`.

    `name` is "module:function" or "module:class.method". Raise ImportError or AttributeError if there is none. One that
    is wrapped already stays as it is.
    """
    owner_name, _, attribute = (
        name.rpartition(".") if "." in name.partition(":")[2] else name.partition(":")
    )
    owner = resolve_name(owner_name)
    original = getattr(owner, attribute)
    if hasattr(original, "__raymeter__"):  # it has two names in this version of Ray
        return
    wrapper = make_wrapper(original)
    wrapper.__raymeter__ = True
    setattr(owner, attribute, wrapper)
    ray_internals.replace_in_ray(attribute, original, wrapper)


def ending_recording(record):
    """Return a function that calls `record`, and adds the time that it takes to the cost of the recorder.

    If `record` raises an error, recording ends in this process, and the function returns None.
    """

    @functools.wraps(record)
    def call(*arguments):
        begin = time.perf_counter()
        cpu_begin = time.thread_time()
        try:
            return record(*arguments)
        except Exception as error:
            stop(error)
            return None
        finally:
            current = recorder  # another thread may end recording meanwhile
            if current:
                current.spend(time.thread_time() - cpu_begin, time.perf_counter() - begin)

    return call


def in_scope(record):
    """Return what makes a wrapper of a call during which messages are sent or received.

    `record(event, scope, arguments, keywords, result)` writes the event of the call, also of one that has raised an
    error: `result` is None then, and the error goes on. A short call may only be counted. Without a recorder, only the
    original is called.
    """

    def make_wrapper(original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            current = recorder
            if not current:
                return original(*args, **kwargs)
            scope = current.enter()
            scope.record = record
            result = None
            try:
                result = original(*args, **kwargs)
                return result
            finally:
                current.local.scope = scope.outer
                if recorder:
                    write_scope(current, record, scope, args, kwargs, result)

        return call

    return make_wrapper


def write_scope(current, record, scope, args, kwargs, result):
    """Write the event of a call, and let short calls with small messages have their own budget.

    `current` is the recorder, which another thread may end meanwhile.
    """
    end = time.time()
    if (current.period > 1 or scope.left_out) and only_count(current, record, scope, end):
        current.spend_on_counted_call(scope.outer, time.time() - end, end)
        return
    cpu_begin = time.thread_time()
    write_event_of_scope(record, scope, end, args, kwargs, result)
    current.spend_on_call(scope, time.thread_time() - cpu_begin, end)


def find_place(scope):
    """Return line and function of the user's code that has made a call of Ray, or runs now if `scope` is None."""
    if scope is None:
        return place.find_line()
    if scope.place is None:
        scope.place = place.find_line()
    return scope.place


def only_count(current, record, scope, end):
    """Count a short call that is sampled, without describing it; return False if it is to be described.

    Then nothing was counted: it has a large message, is long, is the next one to be written, or its line is not known.

    One function does all of it, because this happens in most calls of a program with many of them.
    """
    if scope.messages or scope.deserialise_seconds:
        return False
    seconds = end - scope.start
    if seconds >= (LEFT_OUT_SECONDS if scope.left_out else current.always_seconds):
        return False
    counter = current.of_calls.get(scope.key) if scope.key is not None else None
    if counter is None:
        counter = current.of_calls.get(place.key_of_call(record))
    if counter is None:
        return False
    # A call whose message is not written would be taken for one with a small message.
    if not scope.left_out and current.is_next(counter, end):
        return False
    counter.count += 1
    counter.seconds += seconds
    counter.left_out += 1
    counter.left_out_seconds += seconds
    return True


@ending_recording
def write_event_of_scope(record, scope, end, args, kwargs, result):
    event = {"number": scope.number, "start": scope.start, "seconds": end - scope.start}
    event["own_seconds"] = scope.own_seconds
    event["messages"] = scope.messages
    event["contained"] = scope.contained
    record(event, scope, args, kwargs, result)


def write_call(event, name, scope):
    """Write the event of a call with its task, thread and line. Calls without a large message may be sampled.

    One that creates an actor is always written.
    """
    frame = place.find_frame()
    line, function = place.line_of(frame)
    if not line and scope.messages:
        line = place.running_line(ray_internals.current_name())
    counter = recorder.counter_of((line, function), name, event["event"])
    is_large = bool(scope.messages or scope.deserialise_seconds)
    is_actor = event.get("kind") == "actor"
    if not is_actor:
        recorder.of_calls[place.key_of_frame(scope.record, frame)] = counter
    if is_large or is_actor:
        counter.write(event["seconds"], time.time())
    elif not recorder.is_written(counter, scope, event["seconds"]):
        return
    if counter.left_out:
        event["left_out"] = counter.left_out
        counter.left_out = 0
    if scope.left_out:
        event["left_out_messages"] = scope.left_out
    if scope.small_bytes:
        event["small_bytes"] = scope.small_bytes
    event["name"] = name
    event["by"] = ray_internals.current_task()
    event["by_name"] = ray_internals.current_name()
    event["thread"] = threading.get_ident()
    event["line"] = line
    event["function"] = function
    event["frames"] = place.number_frames(frame)
    event["instruction"] = place.instruction_of(frame)
    event["entry"] = place.number_entry(frame)
    graph_function = ray_internals.graph_function()
    if graph_function:
        event["graph_function"] = graph_function
    recorder.write(event)


def hexadecimal(references):
    """Return the ids of references, at most MAX_REFERENCES of them."""
    return [item.hex() for item in references[:MAX_REFERENCES] if hasattr(item, "hex")]


def record_get(event, scope, args, _, result):
    references = args[1]
    event["event"] = "get"
    if result is None:
        event["has_failed"] = True
    event["objects"] = hexadecimal(references)
    event["count"] = len(references)
    event["deserialise_seconds"] = scope.deserialise_seconds
    write_call(event, "ray.get", scope)


def record_wait(event, scope, args, kwargs, result):
    if scope.outer is not None:
        return  # inside of the next item of a generator
    references = args[0] if args else kwargs.get("ray_waitables", kwargs.get("object_refs", []))
    ready = result[0] if result else []
    event["event"] = "wait"
    event["objects"] = hexadecimal(ready)
    event["count"] = len(references)
    event["ready"] = len(ready)
    event["fetch_local"] = kwargs.get("fetch_local", True)
    write_call(event, "ray.wait", scope)


def record_next(event, scope, args, _, result):
    event["event"] = "next"
    event["objects"] = [result.hex()] if hasattr(result, "hex") else []
    event["count"] = 1
    write_call(event, "next", scope)


def record_put(event, scope, _, kwargs, result):
    if result is None or kwargs.get("_is_experimental_channel"):
        return  # the memory of a channel
    event["event"] = "put"
    event["object"] = result.hex()
    write_call(event, "ray.put", scope)


def record_channel(event, scope, args, _, __):
    event["event"] = "channel"
    event["object"] = args[0]._writer_ref.hex()
    write_call(event, "channel", scope)


def record_method(event, scope, args, kwargs, result):
    handle = args[0]
    method = args[1] if len(args) > 1 else kwargs.get("method_name", "")
    class_name = getattr(handle, "_ray_actor_creation_function_descriptor", None)
    owner = class_name.class_name.rpartition(".")[2] if class_name is not None else "actor"
    values = kwargs.get("args") or (args[2] if len(args) > 2 else ())
    keywords = kwargs.get("kwargs") or (args[3] if len(args) > 3 else None) or {}
    event["actor"] = handle._actor_id.hex()
    write_submission(
        event, scope, f"{owner}.{method}", "method", [*values, *keywords.values()], result
    )


def record_task(event, scope, args, kwargs, result):
    function = args[0]
    name = getattr(function, "_function_name", "task").rpartition(".")[2]
    values = kwargs.get("args") or (args[1] if len(args) > 1 else ())
    keywords = kwargs.get("kwargs") or (args[2] if len(args) > 2 else None) or {}
    write_submission(event, scope, name, "task", [*values, *keywords.values()], result)


def record_actor(event, scope, args, kwargs, result):
    name = args[0].__ray_metadata__.class_name
    values = kwargs.get("args") or (args[1] if len(args) > 1 else ())
    keywords = kwargs.get("kwargs") or (args[2] if len(args) > 2 else None) or {}
    event["actor"] = result._actor_id.hex() if result is not None else ""
    write_submission(
        event, scope, f"{name}.__init__", "actor", [*values, *keywords.values()], result
    )


def write_submission(event, scope, name, kind, values, result):
    """Write the call of a task, a method, or the creation of an actor, with the references in its arguments."""
    event["event"] = "call"
    event["kind"] = kind
    event["task"] = submitted_task(result)
    event["references"] = hexadecimal([value for value in values if is_reference(value)])
    write_call(event, name, scope)


def is_reference(value):
    return isinstance(value, ray_internals.ray.ObjectRef)


def submitted_task(result):
    """Return the id of the task that was submitted; "" if it returns nothing."""
    first = result[0] if isinstance(result, (list, tuple)) and result else result
    if hasattr(first, "_actor_id"):  # a new actor
        return ray_internals.creation_task(first._actor_id)
    first = getattr(first, "_generator_ref", first)
    return first.task_id().hex() if hasattr(first, "task_id") else ""


def make_serialise_wrapper(original):
    """Wrap the function that serialises a message, for whichever call.

    Small messages without references are only counted. `parts` are those of this thread. An error of Ray's function
    goes on to the caller. If writing the message fails, recording ends, and the user's call goes on.
    """

    @functools.wraps(original)
    def serialise(context, value, *args, **kwargs):
        kind = type(value)
        current = recorder  # another thread may end recording meanwhile
        if not current or kind in SMALL_TYPES:
            return original(context, value, *args, **kwargs)
        parts.clear()
        small = small_in_row.get(kind, 0)
        before = first_readings(kind, small)
        try:
            result = original(context, value, *args, **kwargs)
        except BaseException:
            parts.clear()
            raise
        if not recorder:
            parts.clear()
        elif is_only_small(current, result):
            if small < MANY_SMALL:
                small_in_row.set(kind, small + 1)
        else:
            small_in_row.set(kind, 0)
            after = last_readings(before)
            is_over = (
                before[1] is None and small < MANY_SMALL
            )  # the budget, and the last one was fast
            if not (is_over and leave_out_if_known_sent(current, before, after, kind, result)):
                write_sent(before, after, value, result)
        return result

    return serialise


def is_only_small(current, result):
    """Return whether a message is small and without references, and count its bytes in the call that sends it then.

    `current` is the recorder, which another thread may end meanwhile.
    """
    # A tuple has tensors that travel outside of the store.
    if isinstance(result, tuple) or result.total_bytes >= current.min_bytes:
        return False
    if getattr(result, "contained_object_refs", ()):
        return False
    scope = current.scope()
    if scope is not None:
        scope.small_bytes += result.total_bytes
    if parts.buffers:
        parts.clear()  # they may keep large objects
    return True


def leave_out_if_known_sent(current, before, after, kind, result):
    """Leave out a message over the budget like those before it of the same call of the user's code, and of its type.

    Return True if nothing remains to be done: it was left out, or recording has ended. The caller has found that the
    budget is spent. `current` is the recorder, and `kind` the type of the value. Only a driver does that, because the
    same line of a worker may belong to several tasks. It also sets `scope.key`, which `remember_counter` and
    `only_count` need.
    """
    scope = current.scope()
    if scope is None or not current.is_driver:
        return False
    if isinstance(result, tuple) or getattr(result, "contained_object_refs", ()):
        return False
    try:
        scope.key = place.key_of_call(scope.record, "message")
        counter = current.known_messages.get(kind, {}).get(scope.key)
        if counter is None or not current.count_if_left_out(
            counter, after[0] - before[0], after[0]
        ):
            return False
    except Exception as error:  # the program goes on
        stop(error)
        return True
    scope.left_out += 1
    parts.clear()
    current.spend_on_known_message(scope, time.time() - after[0])
    return True


@ending_recording
def write_sent(before, after, value, result):
    """Write a message that was serialised, if it is large, or a result with many references.

    Over the budget, a slow one is written in short, and others are left out and counted.
    """
    is_rdt = isinstance(result, tuple)  # tensors that travel outside of the store
    size = sum(tensor.nbytes for tensor in result[1]) if is_rdt else result.total_bytes
    references = 0 if is_rdt else len(getattr(result, "contained_object_refs", ()))
    scope = recorder.scope()
    if scope is not None:
        scope.contained += references
    is_result_of_references = scope is None and references >= MANY_REFERENCES
    if size < recorder.min_bytes and not is_result_of_references:
        parts.clear()
        return
    position = 0 if scope is not None else recorder.position_of_result(ray_internals.current_task())
    key = "sent", describe.type_name(value), ray_internals.current_name(), *find_place(scope)
    seconds = after[0] - before[0]
    note_speed(type(value), seconds)
    is_short = recorder.writes_short_message(key, seconds, after[0])
    if not is_short and recorder.leaves_out_message(key, seconds, after[0]):
        parts.clear()
        if scope is not None:
            scope.left_out += 1
            recorder.remember_counter(type(value), scope, key)
        return
    begin = extra_clock()
    event = {"event": "sent", "number": recorder.number(), "scope": scope.number if scope else 0}
    event["how"] = "rdt" if is_rdt else ""
    event.update(describe_process(before, after))
    event["position"] = position
    event["bytes"] = size
    event["references"] = references
    event["type"] = describe.type_name(value)
    add_content_of_sent(event, value, scope, is_short)
    event["own_seconds"] = time.time() - after[0]
    recorder.write_message(key, event)
    spend_on_message(key, is_short, extra_clock() - begin)


def add_content_of_sent(event, value, scope, is_short):
    """Add what a message consists of, in full or in short, and its number to the call that sends it, if any."""
    if is_short:
        add_line(event, find_place(scope))
        add_content_of_short(event, value)
    else:
        add_content_and_fields(event, value, find_place(scope))
    if scope is not None:
        scope.messages = [*scope.messages, event["number"]]
        scope.has_short = scope.has_short or is_short


def add_content_and_fields(event, value, called):
    """Add what a message consists of, and forget its parts."""
    size = event["bytes"]
    event["inband_bytes"] = parts.inband_bytes if parts.inband_bytes or parts.buffers else size
    event["buffers"] = len(parts.buffers)
    large = identity.LargeParts(value)
    event["leaves"] = large.leaves
    event["token"] = live_objects.number_of(large.largest)
    largest_of_few = identity.LargeParts(value, identity.FEW_PARTS).largest
    event["is_hidden_in_short"] = largest_of_few is not large.largest
    add_content(event, value)
    add_parts(event, large)
    add_description(event, value, called)
    parts.clear()


def add_content_of_short(event, value):
    """Add what tells whether the same content was sent before, in short, and forget the parts of the message."""
    event["is_short"] = True
    large = identity.LargeParts(value, identity.FEW_PARTS)
    event["leaves"] = large.leaves
    event["token"] = live_objects.number_of(large.largest)
    buffers = stored_parts(value)
    if buffers:
        event["content"] = identity.sample_sum(buffers)
    parts.clear()


def extra_clock():
    """Return a CPU time of this thread that stands still during the measurements that have budgets of their own."""
    return time.thread_time() - sum(recorder.extra_seconds.values())


def describe_process(before, after):
    """Return where a message was serialised or read, and what this took.

    `before` and `after` are readings. CPU seconds and page faults are 0 if only the time was read.
    """
    return {
        "by": ray_internals.current_task(),
        "by_name": ray_internals.current_name(),
        "thread": threading.get_ident(),
        "node": ray_internals.current_node(),
        "start": before[0],
        "seconds": after[0] - before[0],
        "cpu_seconds": 0.0 if before[1] is None else after[1] - before[1],
        "faults": 0 if before[2] is None else after[2] - before[2],
        "imports": after[3] - before[3],
    }


def stored_parts(value):
    """Return the memory that a message consists of, as buffers; [] if it is not known.

    Ray stores bytes as they are, without a pickle.
    """
    if type(value) is bytes:
        return [value]
    if not parts.inband and not parts.buffers:
        return []
    return [parts.inband, *parts.buffers]


def add_content(event, value):
    """Add "content", a number that is equal for equal content: 0 if the bytes are not known.

    Of some messages, "whole" is the sum of all bytes. "is_same" says whether it is that of the last message with this
    content; it is only there if both sums were made, for the first VERIFIED_REPEATS and as long as there is time.
    """
    buffers = stored_parts(value)
    if not buffers:
        event["content"] = 0
        return
    content = identity.sample_sum(buffers)
    event["content"] = content
    seen = contents.get(content)  # how often it was seen, and the last sum of all bytes
    if seen is None:
        if len(contents) < MAX_CONTENTS:
            seen = contents[content] = [1, None]
        if len(contents) <= COMPARED_WITH_OTHERS and has_time_for_repeats():
            seen[1] = event["whole"] = full_sum(buffers)
        return
    seen[0] += 1
    if seen[0] > VERIFIED_REPEATS or not may_compare(seen):
        return
    total = event["whole"] = full_sum(buffers)
    if seen[1] is not None:
        event["is_same"] = total == seen[1]
        compared_contents.add(content)
    seen[1] = total


def may_compare(seen):
    """Return whether there is time for the sum of a message; for a first comparison with an earlier one, there is.

    Else nothing would be known of messages of which a few already take the whole budget.
    """
    is_first = seen[1] is not None and not compared_contents
    return is_first or has_time_for_repeats()


def add_parts(event, large):
    """Add the sums of the large arrays of a message, of which some may have been sent before."""
    if event["how"] or event.get("is_same"):
        return
    least = max(MIN_PART_BYTES, event["bytes"] // 8)
    begin = time.perf_counter()
    event["parts"] = known_parts.describe(large.parts, least, has_time_for_repeats)
    recorder.spend_extra("repeats", time.perf_counter() - begin)


def has_time_for_repeats():
    return recorder.has_time("repeats")


def full_sum(buffers):
    """Return the sum of all bytes, and count the time that it takes."""
    begin = time.perf_counter()
    total = identity.full_sum(buffers)
    recorder.spend_extra("repeats", time.perf_counter() - begin)
    return total


def add_description(event, value, called):
    """Add the line, the fields of a message of a new kind, what its class does, and once its alternatives.

    `called` is the line and function of the user's code that has called Ray.
    """
    add_line(event, called)
    kind = (event["line"], event["by_name"], event["type"])
    count = count_kind(kind)
    if is_described(count):
        event["fields"] = describe.describe(value)
        event["own_pickling"] = describe.find_own_pickling(value)
        event["class_code"] = class_code.find_class_code(value, parts.inband)
        event["is_torch_pickle"] = TORCH_PICKLE in parts.inband
    if is_measured(event, count):
        add_alternatives(event, kind, value)


def is_measured(event, count):
    """Return whether other ways to send this message are measured. With it, there were `count` messages of its kind.

    Tensors that travel outside of the store ("how" is "rdt") have no other ways.

    In the first ones, libraries may still be imported. But what the driver sends once may be read by each task of each
    step, so slow messages of the driver count from the first one on, if most of them is inside of the pickle, and they
    are not too large. Workers may live for one step only, and then each of them would take the time.
    """
    if event["how"]:
        return False
    if count >= DESCRIBED_FIRST:
        return True
    if ray_internals.is_worker():
        return False
    is_slow = event["seconds"] >= LEFT_OUT_SECONDS
    is_pickled = event["inband_bytes"] > event["bytes"] / 2
    return is_slow and is_pickled and event["bytes"] <= MAX_FIRST_BYTES


def count_kind(kind):
    """Return how many messages of a kind there were.

    Of very many kinds, the one that was not seen for the longest time is forgotten.
    """
    count = kinds_seen.pop(kind, 0) + 1
    if len(kinds_seen) >= MAX_KINDS:
        oldest, *_ = list(kinds_seen)  # a copy, because another thread may add one meanwhile
        kinds_seen.pop(oldest, None)
        measured_kinds.pop(oldest, None)
    kinds_seen[kind] = count
    return count


def add_line(event, called):
    """Add the line and function that sends a message; of a result, the line that runs."""
    line, function = called
    name = event["by_name"]
    if not line and name:
        line = place.running_line(name)
        if not line and place.has_equal_names(name):
            event["has_equal_names"] = True
    event["line"] = line
    event["function"] = function


def is_described(count):
    """Return whether a message of a kind is described: the first ones, and later ones more and more seldom."""
    is_power_of_two = count & (count - 1) == 0
    return count <= DESCRIBED_FIRST or (count >= DESCRIBED_AGAIN and is_power_of_two)


def add_alternatives(event, kind, value):
    """Measure a message of this kind in other ways, as many as there is time for; later ones in later messages.

    Nothing is added if all ways were measured, or if there is no time. A slow message is measured at least once,
    although this takes longer than its share of the budget. A program with very many lines that send would
    spend seconds on each: together they have a limit.
    """
    known = measured_kinds.get(kind, {})
    if alternatives.is_complete(known):
        return
    begin = time.perf_counter()
    first = FIRST_SECONDS + FIRST_PASSES * event["seconds"]
    left = ALL_FIRST_SECONDS - recorder.first_seconds
    allowed = 0.0 if known else min(MAX_FIRST_SECONDS, first, left)

    def has_time():
        passed = time.perf_counter() - begin
        return passed < allowed or recorder.has_time("alternatives", passed)

    if has_time():
        event["alternatives"] = alternatives.measure(value, event, known, has_time)
        measured_kinds[kind] = event["alternatives"]
        seconds = time.perf_counter() - begin
        recorder.spend_extra("alternatives", seconds)
        if not known:
            recorder.first_seconds += seconds


def make_deserialise_wrapper(original):
    """Wrap the function that makes an object of the bytes of a message. A small message is only read.

    An error of Ray's function goes on to the caller, and nothing is written.
    """

    @functools.wraps(original)
    def deserialise(context, data, metadata, reference, *args):
        current = recorder  # another thread may end recording meanwhile
        if not current or is_small(current, data, args):
            return original(context, data, metadata, reference, *args)
        before = time.time(), None, None, len(sys.modules)
        if not is_left_out_if_fast(Read, before[0]):
            before = readings()
        value = original(context, data, metadata, reference, *args)
        if recorder:
            after = last_readings(before)
            is_over = before[1] is None  # the budget, and the last one was fast
            if not (is_over and leave_out_if_known_read(current, before, after, reference, args)):
                write_received(before, after, data, reference, args, value)
        return value

    return deserialise


def is_small(current, data, tensors):
    """Return whether a message that is read is too small to be written, whatever it holds."""
    return not any(tensors) and len(data or b"") < current.min_bytes


def leave_out_if_known_read(current, before, after, reference, args):
    """Leave out a message that was read over the budget, outside of calls, like those before it of the same task.

    Return True if nothing remains to be done: it was left out, or recording has ended. The caller has found that the
    budget is spent. `current` is the recorder.
    """
    has_tensors = bool(args and args[0])
    if has_tensors or current.scope() is not None or reference is None or reference.is_nil():
        return False
    try:
        key = "received", ray_internals.current_name(), *place.find_line()
        counter = current.message_counters.get(key)
        if counter is None or not current.count_if_left_out(
            counter, after[0] - before[0], after[0]
        ):
            return False
    except Exception as error:  # the program goes on
        stop(error)
        return True
    current.spend_on_known_message(None, time.time() - after[0])
    return True


@ending_recording
def write_received(before, after, data, reference, args, value):
    """Write a message that was read, if it is large, and has a reference.

    Over the budget, a slow one is written in short, and others are left out and counted. The size of a message with
    tensors that travel outside of the store is that of the tensors.
    """
    scope = recorder.scope()
    tensors = args[0] if args else None
    size = sum(tensor.nbytes for tensor in tensors) if tensors else len(data or b"")
    if size < recorder.min_bytes or reference is None or reference.is_nil():
        return
    called = find_place(scope)
    key = "received", ray_internals.current_name(), *called
    seconds = after[0] - before[0]
    note_speed(Read, seconds)
    is_short = recorder.writes_short_message(key, seconds, after[0])
    if not is_short and recorder.leaves_out_message(key, seconds, after[0]):
        return
    begin = extra_clock()
    if scope is not None:
        scope.deserialise_seconds += seconds
    event = {"event": "received", "scope": scope.number if scope else 0}
    event["object"] = reference.hex()
    event["owner_task"] = reference.task_id().hex()
    event.update(describe_process(before, after))
    event["bytes"] = size
    event["type"] = describe.type_name(value)
    if is_short:
        event["is_short"] = True
        event["leaves"] = identity.find_leaves(value, identity.FEW_PARTS)
    else:
        event["leaves"] = identity.find_leaves(value)
    event["line"] = called[0] or place.running_line(event["by_name"])
    recorder.write_message(key, event)
    spend_on_message(key, is_short, extra_clock() - begin)


def spend_on_message(key, is_short, seconds):
    """Take the time of a message from the budget. A short one does not say how long describing the next one takes."""
    if is_short:
        recorder.spend_on_short_message(seconds)
    else:
        recorder.spend_on_message(key, seconds)


class PickleProxy:
    """The module that Ray's serialisation calls `pickle`, with a `dumps` that keeps sizes and buffers."""

    def __init__(self, module):
        self.module = module

    def __getattr__(self, name):
        return getattr(self.module, name)

    def dumps(self, value, *args, **kwargs):
        """Return the pickle of a value. If Ray takes buffers out of it, keep both in `parts`, for the event."""
        callback = kwargs.get("buffer_callback")
        if not recorder or callback is None:
            return self.module.dumps(value, *args, **kwargs)
        buffers = []
        kwargs["buffer_callback"] = buffers.append
        inband = self.module.dumps(value, *args, **kwargs)
        for buffer in buffers:  # Ray's callback keeps each of them, and returns nothing
            callback(buffer)
        parts.inband_bytes += len(inband)
        parts.inband = inband
        parts.buffers = buffers
        return inband


def make_message_pack_wrapper(original):
    """Wrap the class that holds a message which needs no pickle, such as a list of numbers."""

    def make(metadata, data, *args):
        if recorder:
            parts.inband_bytes += len(data)
            if not parts.inband:
                parts.inband = data
        return original(metadata, data, *args)

    return make


def make_export_wrapper(kind):
    """Return what makes a wrapper of the function that pickles functions (or classes of actors) for the workers.

    `kind` is "function" or "class". What Ray pickles before it is connected is not written.
    """

    def make_wrapper(original):
        @functools.wraps(original)
        def pickle_code(value, *args, **kwargs):
            is_setup = not ray_internals.is_connected()  # the hook of workers, during ray.init
            if not recorder or is_setup:
                return original(value, *args, **kwargs)
            begin = time.time()
            data = original(value, *args, **kwargs)
            if recorder:
                write_export(kind, begin, time.time(), value, data)
            return data

        return pickle_code

    return make_wrapper


@ending_recording
def write_export(kind, begin, end, value, data):
    """Write that a function or a class of actors was pickled for the workers; if it is large, with what it captures.

    `value` is what was pickled, of which a class may be the one that Ray has made of the user's, and `data` the pickle.
    """
    line, function = place.find_line()
    users = ray_internals.users_class(value)
    event = {"event": "export", "kind": kind, "name": getattr(users, "__qualname__", "function")}
    event["bytes"] = len(data)
    event["start"] = begin
    event["seconds"] = end - begin
    event["by"] = ray_internals.current_task()
    event["thread"] = threading.get_ident()
    event["line"] = line
    event["function"] = function
    is_class = isinstance(users, type)
    event["defined"] = place.class_line(users) if is_class else place.function_line(users)
    event["content"] = identity.sample_sum([data])
    if len(data) >= recorder.min_bytes:
        event["captured"] = captured.describe_captured(users)
    recorder.write(event)


def make_fetch_wrapper(original):
    """Wrap the function with which a worker gets the code of a task."""

    @functools.wraps(original)
    def fetch(*args, **kwargs):
        begin = time.time()
        result = original(*args, **kwargs)
        if recorder:
            write_fetch(begin, time.time())
        return result

    return fetch


@ending_recording
def write_fetch(begin, end):
    task = ray_internals.current_task()
    recorder.write({"event": "fetch", "by": task, "start": begin, "seconds": end - begin})


def write_run(run, function):
    """Write what the user's function did in the task that has ended, if recording goes on."""
    if recorder:
        write_run_event(run, function)


@ending_recording
def write_run_event(run, function):
    event = run.describe()
    event["by"] = ray_internals.current_task()
    event["by_name"] = ray_internals.current_name()
    event["thread"] = threading.get_ident()
    event["line"] = run.line or place.function_line(function)
    event["has_event_loop"] = ray_internals.has_event_loop()
    recorder.write(event)


@ending_recording
def write_batch(make_block, batch, start, seconds):
    """Write that Ray Data has made a block of a batch with lists of numbers. Another batch is not written."""
    lists = data_batches.lists_of(batch)
    if not lists or not recorder:
        return
    begin = time.perf_counter()
    event = {"event": "batch", "by": ray_internals.current_task(), "thread": threading.get_ident()}
    event["start"] = start
    event["seconds"] = seconds
    event.update(data_batches.describe_batch(make_block, batch, lists, has_time_for_alternatives))
    recorder.spend_extra("alternatives", time.perf_counter() - begin)
    recorder.write(event)


def has_time_for_alternatives():
    return recorder.has_time("alternatives")


@ending_recording
def install_in_data():
    """Record the batches of Ray Data from now on, if the function that runs next has imported it."""
    data_batches.install_if_used(write_batch)


def make_shutdown_wrapper(original):
    """Wrap ray.shutdown, before which the driver asks Ray what it has recorded of the tasks."""

    @functools.wraps(original)
    def shutdown(*args, **kwargs):
        read_tasks_once()
        return original(*args, **kwargs)

    return shutdown


def read_tasks_once():
    """Write the tasks of this driver's job, if it is connected."""
    if recorder and ray_internals.is_connected() and not ray_internals.is_worker():
        write_tasks()


def write_tasks():
    """Write what Ray has recorded, and for how long this kept the driver from ending."""
    current = recorder  # another thread may end recording meanwhile
    begin = time.perf_counter()
    try:
        write_known_tasks()
    except Exception as error:
        stop(error)
        return
    current.end_seconds = time.perf_counter() - begin
    current.close()


def write_known_tasks():
    """Write the last sample of memory, all lines that wait, the tasks of this job, and what the cluster has.

    Raise what Ray raises if it does not give its tasks. The cluster is left out if this version of Ray cannot say it.
    """
    memory_sampler.stop()
    recorder.flush()
    is_own_cluster = os.environ.get("RAYMETER_STARTED_CLUSTER") == "1"
    tasks.wait_for_reports(is_own_cluster)
    known, recorder.left_out_tasks = tasks.read_tasks()
    recorder.write_tasks(known)
    try:
        cluster = tasks.describe_cluster()
    except Exception:  # of this version of Ray; then each host has as many CPUs as cores
        return
    recorder.write_tasks([cluster])


WRAPPERS = {
    ray_internals.GET: in_scope(record_get),
    ray_internals.WAIT: in_scope(record_wait),
    ray_internals.NEXT: in_scope(record_next),
    ray_internals.OLDER_NEXT: in_scope(record_next),
    ray_internals.PUT: in_scope(record_put),
    ray_internals.WRITE_CHANNEL: in_scope(record_channel),
    ray_internals.CALL_METHOD: in_scope(record_method),
    ray_internals.CALL_TASK: in_scope(record_task),
    ray_internals.CREATE_ACTOR: in_scope(record_actor),
    ray_internals.SERIALISE: make_serialise_wrapper,
    ray_internals.SERIALISE_RDT: make_serialise_wrapper,
    ray_internals.DESERIALISE: make_deserialise_wrapper,
    ray_internals.PICKLE_MODULE: PickleProxy,
    ray_internals.MESSAGE_PACK_OBJECT: make_message_pack_wrapper,
    ray_internals.PICKLE_FUNCTION: make_export_wrapper("function"),
    ray_internals.PICKLE_CLASS: make_export_wrapper("class"),
    ray_internals.FETCH_FUNCTION: make_fetch_wrapper,
    ray_internals.MAKE_EXECUTOR: runs.make_method_wrapper(write_run, install_in_data),
    ray_internals.FIND_FUNCTION: runs.make_task_wrapper(write_run, install_in_data),
    ray_internals.SHUTDOWN: make_shutdown_wrapper,
}
