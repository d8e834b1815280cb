# SPDX-License-Identifier: Apache-2.0
"""Time the user's functions in a worker: how long they computed, and when their generators gave which item.

Ray itself records only when a task began and ended. It does not record that a coroutine has kept its event loop for
itself, or how much of a stream of items is the user's own code. Each function still gets the same arguments, and
returns an object of the same kind.
"""

import functools
import inspect
import os
import resource
import sys
import time
import types

MIN_SECONDS = 0.005  # of a function that is written
MIN_BLOCK_SECONDS = 0.002  # of a part of a coroutine that is written
MAX_BLOCKS = 32  # parts of a coroutine that are written
MAX_ITEMS = 2_000  # of a generator whose times are written
MANY_SHORT = 64  # runs of a function in a row, after which the next one is taken for short, too
LATER = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)


class Run:
    """One run of a function of the user.

    `code_seconds` are those of the user's code, without what it awaits or what Ray does between items, and
    `awaited_seconds` those in which it awaits something.
    """

    def __init__(self, kind):
        self.kind = kind  # "function", "coroutine" or "generator"
        self.start = time.time()
        self.code_seconds = 0.0
        self.cpu_seconds = 0.0
        self.awaited_seconds = 0.0
        self.process_seconds = -1.0  # of all threads; -1 if that is not all that it used
        self.peak_bytes = 0
        self.blocks = []  # start, seconds and CPU seconds of each long part of a coroutine
        self.items = []  # when each item was given, and when the generator was asked for the next one
        self.count = 0  # of items
        self.line = ""  # of the first yield

    def resume(self):
        """Begin a part of the user's code."""
        self.part_start = time.time()
        self.cpu_start = time.thread_time()

    def pause(self):
        """End a part of the user's code."""
        seconds = time.time() - self.part_start
        cpu_seconds = time.thread_time() - self.cpu_start
        self.code_seconds += seconds
        self.cpu_seconds += cpu_seconds
        is_long = seconds >= MIN_BLOCK_SECONDS and len(self.blocks) < MAX_BLOCKS
        if self.kind == "coroutine" and is_long:
            self.blocks.append([self.part_start, seconds, cpu_seconds])

    def ask(self):
        """Begin the next item of a generator, which its reader asks for."""
        if self.count and len(self.items) < 2 * MAX_ITEMS:
            self.items.append(time.time() - self.start)

    def give(self, frame):
        """Count an item that the generator gives to Ray, in a line of its frame."""
        if not self.line and frame is not None:
            self.line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if len(self.items) < 2 * MAX_ITEMS:
            self.items.append(time.time() - self.start)
        self.count += 1

    def is_written(self):
        is_long = time.time() - self.start >= MIN_SECONDS
        return is_long or bool(self.blocks or self.count)

    def describe(self):
        """Return the event of this run until now, without the task and the line, which are added when it is written."""
        return {
            "event": "run",
            "kind": self.kind,
            "start": self.start,
            "seconds": time.time() - self.start,
            "code_seconds": self.code_seconds,
            "cpu_seconds": self.cpu_seconds,
            "awaited_seconds": self.awaited_seconds,
            "process_seconds": self.process_seconds,
            "peak_bytes": self.peak_bytes,
            "blocks": self.blocks,
            "items": [round(seconds, 6) for seconds in self.items],
            "count": self.count,
        }


def make_timed(function, record):
    """Return a function that does the same, and calls `record(run, function)` once, when it has ended.

    A coroutine or generator has ended when all of it has. A short run is not recorded. After many short ones in a row,
    the CPU clocks are not read, which costs more than anything else here. If such a run is long, it is not recorded,
    but those after it are. An error of the function goes on, and its run is recorded as any other.
    """
    short_in_row = 0

    @functools.wraps(function)
    def call(*args, **kwargs):
        nonlocal short_in_row
        start = time.time()
        clocks = None
        if short_in_row < MANY_SHORT:
            clocks = time.thread_time(), time.process_time()
        result = None
        try:
            result = function(*args, **kwargs)
        finally:
            is_long = time.time() - start >= MIN_SECONDS
            short_in_row = 0 if is_long else short_in_row + 1
            if is_long and clocks is not None and not isinstance(result, LATER):
                record_long(Begin(start, *clocks), function, record)
        if isinstance(result, LATER):
            return time_later_parts(result, function, record)
        return result

    call.__raymeter_timed__ = True
    return call


class Begin:
    """The clocks at the begin of a function."""

    __slots__ = ("process_seconds", "start", "thread_seconds")

    def __init__(self, start, thread_seconds, process_seconds):
        self.start = start
        self.thread_seconds = thread_seconds
        self.process_seconds = process_seconds


def record_long(begin, function, record):
    """Record a run of a function that has ended, and took MIN_SECONDS or more."""
    seconds = time.time() - begin.start
    run = Run("function")
    run.start = begin.start
    run.code_seconds = seconds
    run.cpu_seconds = time.thread_time() - begin.thread_seconds
    if not has_had_children():
        run.process_seconds = time.process_time() - begin.process_seconds
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run.peak_bytes = peak if sys.platform == "darwin" else 1024 * peak
    record(run, function)


def has_had_children():
    """Return whether this process has other ones that compute for it, or has had them; True if that is unknown."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.ru_utime + ended.ru_stime > 0 or not hasattr(os, "waitid"):
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # it takes nothing away
    except ChildProcessError:  # there is none
        return False
    except OSError:
        return True
    return True


def time_later_parts(result, function, record):
    """Return a coroutine or generator that does the same as this one, and is timed."""
    if inspect.iscoroutine(result):
        return time_coroutine(result, function, record)
    if inspect.isgenerator(result):
        return time_generator(result, function, record)
    return time_async_generator(result, function, record)


class TimedAwaitable:
    """Await a coroutine or the next item of a generator, and time each part that lets nothing else run."""

    def __init__(self, coroutine, run):
        self.coroutine = coroutine
        self.run = run

    def __await__(self):
        """Pass on what the coroutine awaits, and what is sent or thrown into it. Return its result, or raise its error.

        Each part of it is one of the run. If this is closed, so is the coroutine.
        """
        send = self.coroutine.send
        value = None
        while True:
            self.run.resume()
            try:
                awaited = send(value)
            except StopIteration as end:
                return end.value
            finally:
                self.run.pause()
            try:
                send = self.coroutine.send
                value = yield awaited
            except GeneratorExit:
                self.coroutine.close()
                raise
            except BaseException as error:  # such as a cancellation, which the coroutine may handle
                send = self.coroutine.throw
                value = error


async def time_coroutine(coroutine, function, record):
    """Await a coroutine, and record the run when it has ended, also by an error; not a short one without long parts."""
    run = Run("coroutine")
    try:
        return await TimedAwaitable(coroutine, run)
    finally:
        run.awaited_seconds = time.time() - run.start - run.code_seconds
        if run.is_written():
            record(run, function)


def time_generator(generator, function, record):
    """Yield what a generator yields; what Ray does with an item happens between `give` and `ask`.

    The generator gets what is sent or thrown into this one: Ray sends how long it took to store an item. The run is
    recorded when it has ended, also by an error, or because this one was closed.
    """
    run = Run("generator")
    resume = functools.partial(next, generator)
    try:
        while True:
            run.ask()
            run.resume()
            try:
                item = resume()
            except StopIteration as end:
                return end.value
            finally:
                run.pause()
            run.give(generator.gi_frame)
            try:
                sent = yield item
                resume = functools.partial(generator.send, sent)
            except GeneratorExit:
                raise
            except BaseException as error:
                resume = functools.partial(generator.throw, error)
    finally:
        generator.close()
        if run.is_written():
            record(run, function)


async def time_async_generator(generator, function, record):
    """Yield what an async generator yields; it gets what is sent or thrown into this one.

    The run is recorded when the generator has ended, also by an error, or because this one was closed.
    """
    run = Run("generator")
    resume = functools.partial(anext, generator)
    try:
        while True:
            run.ask()
            begin = time.time()
            code_before = run.code_seconds
            try:
                item = await TimedAwaitable(resume(), run)
            except StopAsyncIteration:
                return
            finally:
                computed = run.code_seconds - code_before
                run.awaited_seconds += time.time() - begin - computed
            run.give(generator.ag_frame)
            try:
                sent = yield item
                resume = functools.partial(generator.asend, sent)
            except GeneratorExit:
                raise
            except BaseException as error:
                resume = functools.partial(generator.athrow, error)
    finally:
        await generator.aclose()
        if run.is_written():
            record(run, function)


def make_method_wrapper(record, prepare):
    """Return what wraps the function of Ray that makes the executor of a method of an actor, so that this is timed.

    `prepare()` is called when the user's modules are imported.
    """

    def make_wrapper(original):
        @functools.wraps(original)
        def make_executor(*args, **kwargs):
            prepare()
            return make_timed(original(*args, **kwargs), record)

        return make_executor

    return make_wrapper


def make_task_wrapper(record, prepare):
    """Return what wraps the function of Ray that finds the function of a task, and times that, once per worker.

    `prepare()` is called when the modules of the function are imported.
    """

    def make_wrapper(original):
        @functools.wraps(original)
        def find(manager, job, descriptor, *args):
            found = original(manager, job, descriptor, *args)
            if getattr(found.function, "__raymeter_timed__", False):
                return found
            prepare()
            timed = found._replace(function=make_timed(found.function, record))
            manager._function_execution_info[descriptor.function_id] = timed
            return timed

        return find

    return make_wrapper
