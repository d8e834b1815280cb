# SPDX-License-Identifier: Apache-2.0
"""Write what happens in this process, as lines of JSON in one file per process.

Every line has "event": what it describes, as raymeter.profile.events explains field by field. Lines wait in memory
for at most FLUSH_SECONDS, because writing each one would cost more than many calls of Ray. A thread writes those that
wait: a driver that is killed has its steps, and a worker that has become idle, which Ray may end without a word, has
written all. No value of a message is ever written.

The recorder measures the time that it takes itself. If short calls with small messages take more of it than MAX_SHARE
of the time that has passed, they are sampled: the others are counted by line, with their seconds. If large messages
take more than MESSAGE_SHARE of the CPU time of the process, some are left out together with their calls, and those of
LEFT_OUT_SECONDS or more are written in short. All processes go on to write them at the next full second, so that many
of those that are written have their sender and their readers. They write all messages until the budget is spent again,
so that the steps in this time are complete.
"""

import atexit
import json
import os
import queue
import sys
import threading
import time

from . import by_class, ray_internals

FLUSH_SECONDS = 0.5
DRIVER_FLUSH_SECONDS = 0.2  # by the thread
IDLE_SECONDS = 0.1  # after which a worker without a new line is idle; half of what ray.shutdown waits in a driver
JOIN_SECONDS = 1.0  # for which the end of the program waits for that thread, and then for the lines
MAX_WAITING_LINES = 2_000
MAX_SHARE = 0.01  # of the time that has passed, for short calls with small messages
MESSAGE_SHARE = 0.008  # of the CPU time of this process, for large messages
MESSAGE_WINDOW_SECONDS = 1.0  # after which this budget grows, in all processes at the same time
FIRST_MESSAGE_SECONDS = 0.2  # for the first ones, so that those of a short program are all written
MAX_MESSAGE_SECONDS = 0.02  # that were not used, for the messages of a burst
WRITING_SECONDS = 5e-5  # that a message takes later, when it is written
ALWAYS_SECONDS = 0.001  # of a call that is always written
MAX_COUNTED_SECONDS = (
    1e-4  # that counting a call takes: what is longer, another program has interrupted
)
MAX_SLOWER = 4  # times so long must a call be that is always written, while calls are sampled
LEFT_OUT_SECONDS = 0.01  # of a message that is always written, if only in short, and of its call
ALWAYS_SHARE = (
    0.01  # of the time of a slow message, with less than which it is written over the budget, too
)
DESCRIBED_FIRST = 3  # messages of a kind that are described
RARE_SECONDS = 0.05  # after the last one of a line that was written, the next one is, too
MEASURED_ENTRIES = 50  # of a call, to know what one takes
MAX_EXTRA_SHARE = 0.005  # of the time that has passed, for each of these measurements
EXTRA_SECONDS = {  # that measurements which are not needed for each message may take in any case
    "repeats": 0.1,
    "alternatives": 0.4,
}
MIN_CALLS = 100  # in a window, below which no call is sampled
MAX_PERIOD = 256  # one of so many small calls is written at least
MAX_KNOWN = 1_000  # calls of which messages of one type are known
MAX_EVENTS = 200_000  # lines per process; later ones are only counted
NO_TASK = "f" * 32  # begins the id that Ray has outside of tasks
NAMES_OF_MESSAGE = ("line", "by_name", "type")  # with which its kind is known
WINDOW_SECONDS = 0.25  # for which the share is judged
SETTINGS = (
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_ARENA_MAX",
    "LD_PRELOAD",
    "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS",
    "RAYMETER_MEMORY_SECONDS",
)

now = time.time  # the same clock in all processes of a machine


class CallScope:
    """A call of Ray that is running in this thread, such as ray.put, and the messages inside of it."""

    # Most calls change none of these, so that a scope has only what differs.
    messages = ()  # numbers of "sent" events
    left_out = 0  # large messages that are not written
    has_short = False  # whether a slow one of them is written in short
    contained = 0  # references inside of the messages
    deserialise_seconds = 0.0
    small_bytes = 0  # of the messages that are not written
    own_seconds = 0.0  # of the recorder, inside of the call, by the clock
    place = None  # line and function of the user's code, once they were looked for
    record = None  # what writes its event
    key = None  # of the call in the user's code, once a large message over the budget was looked at

    def __init__(self, number, outer):
        self.number = number
        self.outer = outer
        self.start = now()


class RunningCall(threading.local):
    """The scope of the call of Ray that runs in this thread, or None."""

    scope = None


class LineCounter:
    """Calls with small messages from one line of the user's code, or its large messages, that were not all written."""

    __slots__ = (
        "count",
        "last",
        "last_names",
        "left_out",
        "left_out_seconds",
        "own_seconds",
        "seconds",
        "written",
    )

    def __init__(self):
        self.own_seconds = 0.0  # of the recorder, for the last one that was written
        self.count = 0
        self.last = 0.0  # when one was written
        self.last_names = {}  # its line, task, type and kind, if it was a message
        self.left_out = 0  # since then
        self.left_out_seconds = 0.0  # that those took
        self.seconds = 0.0
        self.written = 0

    def write(self, seconds, end):
        """Count a call that is written."""
        self.count += 1
        self.seconds += seconds
        self.written += 1
        self.last = end

    def leave_out(self, seconds):
        """Count a call that is not written."""
        self.count += 1
        self.seconds += seconds
        self.left_out += 1
        self.left_out_seconds += seconds


def open_events(folder, process):
    """Return the descriptor of the file of a process's events, which only their owner can read."""
    os.makedirs(folder, 0o700, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    return os.open(os.path.join(folder, f"{process}.jsonl"), flags, 0o600)


class Recorder:
    """Collect the events of this process, and write them."""

    def __init__(self, folder, min_bytes, missing):
        self.min_bytes = int(min_bytes)
        self.folder = folder
        self.local = RunningCall()
        self.lock = threading.Lock()
        self.lines = []
        self.last_result = "", 0  # the task that stored a large result last, and its position
        self.last_flush = self.started_at = now()
        self.own_seconds = 0.0
        self.start_window(self.started_at)
        self.message_seconds = FIRST_MESSAGE_SECONDS  # that large messages may take now
        self.message_window = int(self.started_at / MESSAGE_WINDOW_SECONDS)
        self.cpu_at_start = self.cpu_seconds = time.process_time()  # the latter of this window
        self.readings = 0  # of the clocks of a thread
        self.reading_seconds = 0.0  # that one of them takes
        self.message_counters = {}
        self.known_messages = (
            by_class.ByClass()
        )  # of a type: key of a call -> counter of its messages
        self.left_out_messages = 0
        self.extra_seconds = dict.fromkeys(EXTRA_SECONDS, 0.0)
        self.first_seconds = 0.0  # of these, for the first measurement of each kind
        self.end_seconds = 0.0
        self.written_bytes = 0
        self.events = 0
        self.left_out_events = 0
        self.left_out_tasks = 0
        self.next_number = 0
        self.period = 1
        self.counters = {}
        self.of_calls = {}  # key of a call in the user's code -> the last counter of its line
        self.always_seconds = ALWAYS_SECONDS  # of a short call that is written in any case
        self.has_failed = False
        self.error = ""  # type of the one that has ended recording
        self.has_ended = False
        self.ending = threading.Event()
        self.is_awake = True  # while the thread has lines to look after
        # Other than an Event, it has no lock that a destructor could meet in its own thread.
        self.wake_ups = queue.SimpleQueue()
        self.thread = None
        self.entry_seconds = self.measure_entry()
        self.process = f"{os.uname().nodename}-{os.getpid()}"
        self.file = open_events(folder, self.process)
        self.begin(missing)

    def begin(self, missing):
        """Write the first line of the file, and see to it that the last one is written when this process ends."""
        self.is_driver = not ray_internals.is_worker()
        self.write(self.describe_process(missing))
        self.flush()
        atexit.register(self.end)

    def measure_entry(self):
        """Return the CPU time that it takes to enter and leave a call, which is too short to be timed in each one."""
        begin = time.thread_time()
        for _ in range(MEASURED_ENTRIES):
            scope = self.enter()
            self.leave(scope)
        seconds = time.thread_time() - begin
        self.next_number = 0
        return seconds / MEASURED_ENTRIES

    def all_own_seconds(self):
        """Return the CPU time that the recorder has taken, with what was counted and not timed."""
        entries = self.next_number * self.entry_seconds
        readings = self.readings * self.reading_seconds
        return self.own_seconds + entries + readings

    def describe_process(self, missing):
        """Return the first event of the file; `missing` are functions that this version of Ray does not have."""
        return {
            "event": "process",
            "process": self.process,
            "pid": os.getpid(),
            "host": os.uname().nodename,
            "role": "driver" if self.is_driver else "worker",
            "ray": ray_internals.ray.__version__,
            "python": sys.version.split()[0],
            "start": self.started_at,
            "cores": len(os.sched_getaffinity(0)),
            "folder": os.getcwd(),
            "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
            "min_bytes": self.min_bytes,
            "missing": missing,
        }

    def start_flushing(self):
        """Write the lines that wait again and again, in a thread."""
        self.thread = threading.Thread(
            target=self.flush_regularly, name="raymeter-flush", daemon=True
        )
        self.thread.start()

    def flush_regularly(self):
        """Write the lines that wait until recording ends: in a worker only when no line was added since the last look.

        A worker with much to do writes its lines in its calls, as often as without this thread.
        """
        is_worker = ray_internals.is_worker()
        seconds = IDLE_SECONDS if is_worker else DRIVER_FLUSH_SECONDS
        known_events = 0
        while not self.ending.wait(seconds):
            is_busy = is_worker and self.events != known_events
            known_events = self.events
            if is_busy:
                continue
            if not self.lines:
                self.sleep_until_lines()
                continue
            begin = time.thread_time()
            try:
                self.flush()
            except OSError:
                return  # the next call ends recording
            self.own_seconds += time.thread_time() - begin

    def sleep_until_lines(self):
        """Wait for the next line, without a look again and again. A line that came meanwhile is seen."""
        self.is_awake = False
        if not self.lines:
            self.wake_ups.get()

    def wake(self):
        """Let the thread look at the lines again."""
        self.is_awake = True
        self.wake_ups.put(None)

    def number(self):
        """Return a number that no other event of this process has."""
        self.next_number += 1
        return self.next_number

    def write(self, event):
        """Add an event, which is written within FLUSH_SECONDS if another one follows, or at the end.

        Events after MAX_EVENTS are only counted. Raise OSError if lines cannot be written, now or earlier.
        """
        self.events += 1
        if self.events > MAX_EVENTS:
            self.left_out_events += 1
            return
        self.lines.append(event)
        if not self.is_awake:
            self.wake()
        if len(self.lines) >= MAX_WAITING_LINES or now() - self.last_flush > FLUSH_SECONDS:
            self.flush()

    def write_tasks(self, tasks):
        """Add what Ray has recorded, however much was written before. It is no part of the program's time."""
        self.lines += tasks
        self.flush()

    def position_of_result(self, task):
        """Return the position of a large result among those that its task stores one after the other, from 1.

        If tasks run at the same time, a task counts from 1 again when another one has stored a result in between.
        Return 0 for results of coroutines, which Ray stores outside of their tasks, so they all have one id.
        """
        if task.startswith(NO_TASK):
            return 0
        last_task, last_position = self.last_result
        position = last_position + 1 if task == last_task else 1
        self.last_result = task, position
        return position

    def take_lines(self, seconds):
        """Take the lines that wait; after so many seconds, leave them to whoever takes lines now, and return [].

        That may be this thread itself: a destructor or a signal handler may call Ray at any moment.
        """
        if not self.lock.acquire(timeout=seconds):
            return []
        try:
            waiting = self.lines[:]
            del self.lines[: len(waiting)]  # other threads add lines meanwhile
        finally:
            self.lock.release()
        self.last_flush = now()
        return waiting

    def flush(self, lock_seconds=0.0):
        """Write the events that wait, and what the recorder has cost so far.

        If another thread takes them at the moment, wait so long at most, and then leave them to it. Raise OSError if
        they cannot be written, now or earlier: these lines are lost, and recording ends.

        Its time is counted where it is called: in a call, it is a part of what the recorder takes there.
        """
        if self.has_failed:
            raise OSError("an earlier line was not written")
        waiting = self.take_lines(lock_seconds)
        if waiting:
            waiting.append(self.describe_itself())
        encode = json.JSONEncoder(separators=(",", ":"), default=str).encode
        text = "".join(encode(event) + "\n" for event in waiting).encode()
        self.written_bytes += len(text)
        try:
            while text:
                text = text[os.write(self.file, text) :]
        except OSError:  # a full disk: recording ends
            self.has_failed = True
            raise

    def describe_itself(self):
        """Return what the recorder has cost so far, its counts of calls, and how many messages it has left out.

        last_left_out: of each kind, how many were left out after the last one that was written.
        """
        counted = [
            {"line": line, "function": function, "name": name, "kind": kind}
            | {"count": counter.count, "seconds": counter.seconds, "written": counter.written}
            for (line, function, name, kind), counter in list(self.counters.items())
        ]
        last_left_out = [
            counter.last_names | {"count": counter.left_out, "seconds": counter.left_out_seconds}
            for counter in list(self.message_counters.values())
            if counter.left_out
        ]
        return {
            "event": "recorder",
            "time": now(),
            "own_seconds": self.all_own_seconds(),
            "cpu_seconds": time.process_time() - self.cpu_at_start,
            "end_seconds": self.end_seconds,
            "written_bytes": self.written_bytes,
            "events": self.events,
            "left_out_events": self.left_out_events,
            "left_out_messages": self.left_out_messages,
            "left_out_tasks": self.left_out_tasks,
            "period": self.period,
            "has_ended": self.has_ended,
            "error": self.error,
            "counted": counted,
            "last_left_out": last_left_out,
        }

    def stop(self, error):
        """Write that recording has ended by an error: its type only, because its text may have a value.

        Raise OSError if it cannot be written.
        """
        self.error = type(error).__name__
        self.lines.append(self.describe_itself())
        self.flush()

    def end(self):
        """Write everything; the interpreter ends."""
        self.ending.set()
        self.wake()
        if self.thread is not None:
            self.thread.join(JOIN_SECONDS)
        self.close()

    def close(self):
        """Write everything; the driver has left the cluster, or the interpreter ends."""
        if self.has_failed:
            return  # the file may end with a part of a line
        self.has_ended = True
        try:
            self.lines.append(self.describe_itself())
            self.flush(JOIN_SECONDS)
        except OSError:
            pass  # a full disk: what was written before is shown
        self.has_ended = False  # if the program goes on

    def enter(self):
        """Begin a call of Ray in this thread, and return its scope."""
        local = self.local
        self.next_number += 1
        scope = local.scope = CallScope(self.next_number, local.scope)
        return scope

    def leave(self, scope):
        """End a call of Ray in this thread."""
        self.local.scope = scope.outer

    def scope(self):
        """Return the call of Ray that runs in this thread, or None."""
        return self.local.scope

    def counter_of(self, place, name, kind):
        """Return the counter of a line and function of the user's code, and of what it calls."""
        key = (*place, name, kind)
        counter = self.counters.get(key)
        if counter is None:
            counter = self.counters[key] = LineCounter()
        return counter

    def is_written(self, counter, scope, seconds):
        """Count a call with small messages; return whether its event is to be written, too.

        Of short calls, one of `self.period` is written, and the first one after a pause, so that no rare call is
        missing.
        """
        end = now()
        is_long = seconds >= (LEFT_OUT_SECONDS if scope.left_out else self.always_seconds)
        if is_long or self.is_next(counter, end):
            counter.write(seconds, end)
            return True
        counter.leave_out(seconds)
        return False

    def is_next(self, counter, end):
        """Return whether the next short call of a counter is to be written."""
        return end - counter.last >= RARE_SECONDS or (counter.count + 1) % self.period == 0

    def writes_short_message(self, key, seconds, end):
        """Return whether a slow message over the budget is written in short: with few of its parts, and no fields.

        The step in which it is sent needs its time. What is known of the others like it holds for it, too.
        """
        return seconds >= LEFT_OUT_SECONDS and not self.describes_message(key, seconds, end)

    def describes_message(self, key, seconds, end):
        """Return whether a message is described: within the budget, rare, quick to describe, or a slow first one.

        In the last one of those first ones, other ways to send it are measured. Make the counter of `key` if it is new.
        """
        counter = self.message_counters.get(key)
        if counter is None:
            counter = self.message_counters[key] = LineCounter()
        is_rare = end - counter.last >= MESSAGE_WINDOW_SECONDS
        is_slow = seconds >= ALWAYS_SECONDS and counter.own_seconds < ALWAYS_SHARE * seconds
        is_first = seconds >= LEFT_OUT_SECONDS and counter.written < DESCRIBED_FIRST
        return is_rare or is_slow or is_first or self.has_message_time(end)

    def leaves_out_message(self, key, seconds, end):
        """Count a message that is left out; return False if it is to be written.

        The first one of its kind after a whole window is always written, and slow ones that take little more time then.
        """
        if self.describes_message(key, seconds, end):
            return False
        self.message_counters[key].leave_out(seconds)
        self.left_out_messages += 1
        return True

    def remember_counter(self, kind, scope, key):
        """Remember which counter the messages of this type have that a call of the user's code sends.

        `key` is that of the counter, and `scope` the call. Its own key is None unless `leave_out_if_known_sent` has set
        it: then nothing is remembered. At most MAX_KNOWN calls are, per type.
        """
        if scope.key is None:
            return
        counters = self.known_messages.get(kind)
        if counters is None:
            counters = {}
            self.known_messages.set(kind, counters)
        if len(counters) < MAX_KNOWN:
            counters[scope.key] = self.message_counters[key]

    def count_if_left_out(self, counter, seconds, end):
        """Count a message over the budget as left out, and return True.

        Return False, without counting it, if it is slow, or if a whole window has passed since one like it was
        described: then `describes_message` decides.
        """
        is_slow = seconds >= ALWAYS_SECONDS
        is_window_over = end - counter.last >= MESSAGE_WINDOW_SECONDS
        if is_slow or is_window_over:
            return False
        counter.leave_out(seconds)
        self.left_out_messages += 1
        return True

    def write_message(self, key, event):
        """Write a message with the number of those like it that were left out before it, and their seconds.

        `describes_message` was asked for this key before. Raise OSError if lines cannot be written.
        """
        counter = self.message_counters[key]
        if counter.left_out:
            event["left_out"] = counter.left_out
            event["left_out_seconds"] = counter.left_out_seconds
        last_described = counter.last
        counter.write(event["seconds"], event["start"] + event["seconds"])
        if event.get("is_short"):
            counter.last = last_described  # so that one is described again after a whole window
        counter.last_names = {name: event.get(name, "") for name in NAMES_OF_MESSAGE}
        counter.last_names["kind"] = event["event"]
        counter.left_out = 0
        counter.left_out_seconds = 0.0
        self.write(event)

    def has_message_time(self, at):
        """Return whether large messages are within their budget, which grows once per window."""
        window = int(at / MESSAGE_WINDOW_SECONDS)
        if window > self.message_window:
            self.message_window = window
            cpu_seconds = time.process_time()
            earned = MESSAGE_SHARE * (cpu_seconds - self.cpu_seconds)
            self.cpu_seconds = cpu_seconds
            room = max(0.0, MAX_MESSAGE_SECONDS - self.message_seconds)
            self.message_seconds += min(earned, room)
        return self.message_seconds > 0

    def spend_on_message(self, key, seconds):
        """Take the CPU time of a message of this kind from the budget.

        Other programs on a busy machine do not shorten it.
        """
        taken = max(0.0, seconds) + WRITING_SECONDS
        self.message_counters[key].own_seconds = taken
        self.message_seconds -= taken

    def spend_on_short_message(self, seconds):
        """Take the CPU time of a message that was not described from what is left of the budget.

        It is written in any case, so it makes no debt, for which others would never be described again.
        """
        self.spend_what_is_left(max(0.0, seconds) + WRITING_SECONDS)

    def spend_what_is_left(self, seconds):
        """Take time from the budget of large messages, but not below 0; a debt that it has already stays as it is."""
        rest = min(0.0, self.message_seconds)
        self.message_seconds = max(rest, self.message_seconds - seconds)

    def spend_on_call(self, scope, seconds, end):
        """Take the time of a call that was written from the budget of its message, or of short calls."""
        if scope.has_short:
            self.spend_what_is_left(seconds + WRITING_SECONDS)
        elif scope.messages or scope.left_out:
            self.message_seconds -= seconds + WRITING_SECONDS
        else:
            self.spend_on_small_call(seconds, end)

    def spend(self, cpu_seconds, seconds):
        """Add what the recorder took: CPU time to its cost, and the time by the clock to the call that runs.

        While the recorder waits for a core, other programs use it, and the call that runs takes longer all the same.
        """
        self.own_seconds += cpu_seconds
        scope = self.scope()
        if scope is not None:
            scope.own_seconds += seconds

    def spend_on_known_message(self, scope, seconds):
        """Add the time by the clock of a message that was left out because it is known, inside of a call or of none."""
        seconds = min(seconds, MAX_COUNTED_SECONDS)
        self.own_seconds += seconds
        if scope is not None:
            scope.own_seconds += seconds

    def spend_on_small_call(self, seconds, end):
        """Judge the time that short calls took. Sample them less often if it is too much, and else more often."""
        self.window_own_seconds += seconds
        self.window_calls += 1
        if end - self.window_start >= WINDOW_SECONDS:
            self.judge_window(end)

    def spend_on_counted_call(self, outer, seconds, end):
        """Take the time of a call that was only counted, inside of another call if `outer` is one."""
        seconds = min(seconds, MAX_COUNTED_SECONDS)
        self.own_seconds += seconds
        if outer is not None:
            outer.own_seconds += seconds
        self.window_own_seconds += seconds
        self.window_calls += 1
        if end - self.window_start >= WINDOW_SECONDS:
            self.judge_window(end)

    def judge_window(self, end):
        """Let more short calls be written, or fewer, after the time that they took in this window.

        Over the budget, only longer ones are written in any case, because that takes 0.1 to 0.2 ms.
        """
        share = self.window_own_seconds / (end - self.window_start)
        if share > MAX_SHARE and self.window_calls >= MIN_CALLS:
            self.period = min(2 * self.period, MAX_PERIOD)
        elif share < MAX_SHARE / 4:
            self.period = max(self.period // 2, 1)
        self.always_seconds = ALWAYS_SECONDS * min(self.period, MAX_SLOWER)
        self.start_window(end)

    def start_window(self, at):
        """Begin to judge the time that short calls take."""
        self.window_start = at
        self.window_own_seconds = 0.0
        self.window_calls = 0

    def has_time(self, measurement, passed=0.0):
        """Return whether a measurement that is not needed for each message fits into its budget.

        `passed` is what it has taken so far.
        """
        allowed = EXTRA_SECONDS[measurement] + MAX_EXTRA_SHARE * (now() - self.started_at)
        return self.extra_seconds[measurement] + passed < allowed

    def spend_extra(self, measurement, seconds):
        """Add the time of a measurement for which `has_time` was asked."""
        self.extra_seconds[measurement] += seconds
