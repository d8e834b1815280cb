"""Record what messages cost and hold, as lines of JSON in one file per process. It runs in the user's processes.

Each message from `min_bytes` on is an event, which is written at once, so that a process that is killed loses none. The
first MAX_EVENTS of a process are written; later and smaller ones are only counted. So its memory does not grow.
"""

import atexit
import json
import os
import resource
import sys
import threading
import time
import weakref
from inspect import unwrap
from itertools import islice
from math import prod

import ray

MAX_EVENTS = 20_000
MAX_PARTS = 50_000  # of a message; the others are not described
MAX_NAMES = 64  # of keys in a dict; more are probably data and not names
worker = ray._private.worker.global_worker
RAY_FOLDER = os.path.dirname(ray.__file__) + os.sep


def readings():
    """Return the time, how often this thread has touched a page for the first time, and the number of modules."""
    return time.time(), resource.getrusage(resource.RUSAGE_THREAD).ru_minflt, len(sys.modules)


class Recorder:
    """Write the events of this process, one per message from `min_bytes` on, and the number of the others."""

    def __init__(self, folder, min_bytes, missing):
        self.min_bytes, self.local, self.tokens, self.next_token = (
            int(min_bytes),
            threading.local(),
            {},
            0,
        )
        self.counts = {"events": 0, "small": 0, "largest_small_bytes": 0}
        os.makedirs(folder, 0o700, exist_ok=True)
        process = f"{os.uname().nodename}-{os.getpid()}"
        self.file = os.open(
            os.path.join(folder, process + ".jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )
        self.write({**self.counts, "process": process, "ray": ray.__version__, "missing": missing,
                    "retained": "MALLOC_TRIM_THRESHOLD_" in os.environ})  # fmt: skip
        atexit.register(lambda: self.write(self.counts))

    def write(self, line):
        os.write(self.file, json.dumps(line, separators=(",", ":"), default=str).encode() + b"\n")

    def save(self, event):
        """Write an event, unless this process has written many; then, the counts say so."""
        self.counts["events"] += 1
        if self.counts["events"] <= MAX_EVENTS + 1:
            self.write(event if self.counts["events"] <= MAX_EVENTS else self.counts)

    def enter(self, how):
        """Begin a call of Ray during which messages are sent or received, such as ray.put; return its scope."""
        self.local.scope = {
            "how": how,
            "start": time.time(),
            "events": [],
            "outer": getattr(self.local, "scope", None),
        }
        return self.local.scope

    def leave(self, scope, identify):
        """End the call: write its events with the identity of its result, and the time outside of them."""
        self.local.scope = scope["outer"]
        if not scope["events"]:
            return
        seconds, identity, (line, function) = (
            time.time() - scope["start"],
            identify(),
            self.find_line(),
        )
        for event in (
            scope["events"] if identity or scope["how"] != "put" else ()
        ):  # the memory of a channel
            if event["place"] == "driver":
                event["place"] = f"driver.{function}"
            event["other" if event["side"] == "sent" else "wait"] = seconds / len(scope["events"])
            self.save(event | {"id": identity, "line": line})

    def find_place(self):
        """Return the actor's method or the task that runs, such as Rollout.generate, or "driver"; and its file:line."""
        if worker.mode != ray.WORKER_MODE:
            return "driver", ""
        actor = worker.actors.get(
            worker.actor_id
        )  # an async one reads its arguments outside of its tasks
        place = worker.current_task_name or (type(actor).__name__ if actor else "worker")
        method = getattr(type(actor), place.rpartition(".")[2], None)
        code = getattr(unwrap(method), "__code__", None) if method else None  # a task has none
        return place, f"{code.co_filename}:{code.co_firstlineno}" if code else ""

    def record(self, side, before, value, stored, ref=None, how=None):
        """Record a message of `stored` bytes. `before` are the readings before it was serialised or deserialised."""
        if stored < self.min_bytes:
            self.counts["small"] += side == "sent"
            self.counts["largest_small_bytes"] = max(self.counts["largest_small_bytes"], stored)
            if (
                side == "sent" and self.counts["small"] % 100 == 1
            ):  # a worker that is killed cannot do it at its end
                self.write(self.counts)
        if stored < self.min_bytes or (side == "received" and (ref is None or ref.is_nil())):
            return
        seconds, faults, modules = (
            now - then for now, then in zip(readings(), before, strict=True)
        )
        scope, task, (place, line) = (
            getattr(self.local, "scope", None),
            worker.current_task_id.hex(),
            self.find_place(),
        )
        how = how or (scope["how"] if scope else "result" if side == "sent" else "argument")
        event = {"side": side, "how": how, "place": place, "line": line, "start": before[0], "seconds": seconds,
                 "faults": faults, "stored": stored, "imports": modules, "token": self.find_token(value),
                 "node": worker.current_node_id.hex()}  # fmt: skip
        if side == "sent":
            event |= {"id": f"R{task}", **describe(value)}
        else:
            event |= {"object": ref.hex(), "from": ref.task_id().hex(), "task": task}
        if scope:
            scope["events"].append(event)
            scope["start"] += time.time() - before[0]  # with the time of describing it
        else:
            self.save(event)

    def find_token(self, value):
        """Return a number that is equal for messages with the same tensor object, as long as it lives; or None."""
        leaf = next((part for _, part in walk(value, MAX_NAMES) if is_tensor(part)), None)
        if type(leaf).__weakrefoffset__ == 0:  # there is none, or it is a number of numpy
            return None
        key = id(leaf)
        if key not in self.tokens:
            self.next_token += 1
            self.tokens[key] = (
                self.next_token,
                weakref.ref(leaf, lambda _: self.tokens.pop(key, None)),
            )
        return self.tokens[key][0]

    def find_line(self):
        """Return file:line and function of the innermost call outside of Ray, and of libraries if there is one."""
        frame, calls = sys._getframe(2), []
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith((RAY_FOLDER, "<")) and not os.path.basename(file).startswith(
                "dataflow_"
            ):
                calls.append((f"{file}:{frame.f_lineno}", frame.f_code.co_name))
            frame = frame.f_back
        users = (
            [call for call in calls if f"{os.sep}site-packages{os.sep}" not in call[0]]
            or calls
            or [("", "main")]
        )
        functions = [
            function for _, function in users if not function.startswith("<")
        ]  # a comprehension, the module
        return users[0][0], functions[0] if functions else "main"


def describe(value):
    """Return the bytes that a value holds, and its fields; each is [name, dtype, shape, count, items, bytes, causes].

    A field is a tensor, an array, or everything in one list. Its shape is that of the part with the most items.
    """
    fields = {}
    for name, part in walk(value, MAX_PARTS):
        leaf = describe_leaf(part)
        if leaf is not None:
            dtype, shape, size, causes = leaf
            field = fields.setdefault((name, dtype), [name, dtype, shape, 0, 0, 0, []])
            field[2:6] = (
                max(field[2], shape, key=prod),
                field[3] + 1,
                field[4] + prod(shape),
                field[5] + size,
            )
            field[6] += [cause for cause in causes if cause not in field[6]]
    kept = sorted((field for field in fields.values() if field[5]), key=lambda field: -field[5])
    return {"bytes": sum(field[5] for field in kept), "fields": kept[:MAX_NAMES]}


def is_tensor(part):
    of = type(part)  # an image of PIL has no nbytes; to ask the object could run code of the user
    return hasattr(of, "nbytes") and (
        hasattr(of, "untyped_storage") or hasattr(of, "__array_interface__")
    )


def is_numbers(part):
    return (
        isinstance(part, (list, tuple))
        and len(part) > 0
        and {*map(type, (*part[:8], part[-1]))} <= {int, float}
    )


def describe_leaf(part):
    """Return dtype, shape, bytes and causes of a tensor, array, text or list of numbers; None for others."""
    if is_tensor(part):
        causes, is_plain = [], str(getattr(part, "layout", "torch.strided")) == "torch.strided"
        size = int(part.nbytes) if is_plain else 0  # a sparse tensor is not described
        if not getattr(getattr(part, "flags", None), "forc", True):
            causes.append("not contiguous")
        if hasattr(part, "untyped_storage") and part.device.type == "cpu":
            if not getattr(ray._private.ray_constants, "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS", False):
                causes.append(
                    "tensors in the pickle"
                )  # with the part of its storage that it does not show
            if is_plain and not part.is_nested and part.untyped_storage().nbytes() > size:
                causes.append("view")
        shape = (size,) if getattr(part, "is_nested", False) else tuple(part.shape)
        return str(part.dtype).replace("torch.", ""), shape, size, causes
    if isinstance(part, (bytes, bytearray, str)):
        is_text = isinstance(part, str)
        return (
            "str" if is_text else "bytes",
            (len(part),),
            len(part),
            [] if is_text else ["bytes in the pickle"],
        )
    if is_numbers(part):
        dtype = "floats" if isinstance(part[0], float) else "ints"
        return dtype, (len(part),), 8 * len(part), ["numbers"] if len(part) >= 1000 else []
    return None


def walk(value, max_parts):
    """Yield name and value of each part of a message once. A key that cannot be a name is not stored."""
    parts, seen = [("", value)], set()
    while parts and len(seen) < max_parts:
        name, part = parts.pop()
        if id(part) in seen:  # for example, an object that refers to its parent
            continue
        seen.add(id(part))
        yield name, part
        if isinstance(part, (list, tuple, set)):
            parts += (
                []
                if is_numbers(part)
                else [(f"{name}[]", item) for item in islice(part, max_parts)]
            )
        elif (
            not is_tensor(part)
            and not isinstance(part, (str, bytes, bytearray, type))
            and not callable(part)
        ):
            items = part if isinstance(part, dict) else getattr(part, "__dict__", {})
            for key, item in islice(items.items(), max_parts):
                named = (
                    len(items) <= MAX_NAMES
                    and isinstance(key, str)
                    and key.replace(".", "_").isidentifier()
                )
                parts.append((f"{name}.{key if named else '*'}".lstrip("."), item))
