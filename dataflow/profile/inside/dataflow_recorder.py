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
        self.min_bytes = int(min_bytes)
        self.local = threading.local()
        self.tokens = {}
        self.next_token = 0
        self.counts = {"events": 0, "small": 0, "largest_small_bytes": 0}
        os.makedirs(folder, 0o700, exist_ok=True)
        process = f"{os.uname().nodename}-{os.getpid()}"
        self.file = os.open(
            os.path.join(folder, process + ".jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )
        header = {
            "process": process,
            "ray": ray.__version__,
            "missing": missing,
            "retained": "MALLOC_TRIM_THRESHOLD_" in os.environ,
        }
        self.write(self.counts | header)
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
        seconds = time.time() - scope["start"]
        identity = identify()
        line, function = self.find_line()
        if scope["how"] == "put" and not identity:  # the memory of a channel
            return
        for event in scope["events"]:
            if event["place"] == "driver":
                event["place"] = f"driver.{function}"
            rest = "other" if event["side"] == "sent" else "wait"
            event[rest] = seconds / len(scope["events"])
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
        end, faults, modules = readings()
        start, faults_before, modules_before = before
        scope = getattr(self.local, "scope", None)
        task = worker.current_task_id.hex()
        place, line = self.find_place()
        if not how and scope:
            how = scope["how"]
        event = {
            "side": side,
            "how": how or ("result" if side == "sent" else "argument"),
            "place": place,
            "line": line,
            "start": start,
            "seconds": end - start,
            "faults": faults - faults_before,
            "stored": stored,
            "imports": modules - modules_before,
            "token": self.find_token(value),
            "node": worker.current_node_id.hex(),
        }
        if side == "sent":
            event |= {"id": f"R{task}", **describe(value)}
        else:
            event |= {"object": ref.hex(), "from": ref.task_id().hex(), "task": task}
        if scope:
            scope["events"].append(event)
            scope["start"] += time.time() - start  # with the time of describing it
        else:
            self.save(event)

    def find_token(self, value):
        """Return a number that is equal for messages with the same tensor object, as long as it lives; or None."""
        leaf = find_first_tensor(value)
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
        frame = sys._getframe(2)
        calls = []
        while frame is not None:
            file = frame.f_code.co_filename
            is_own = os.path.basename(file).startswith("dataflow_")
            if not is_own and not file.startswith((RAY_FOLDER, "<")):
                calls.append((f"{file}:{frame.f_lineno}", frame.f_code.co_name))
            frame = frame.f_back
        installed = f"{os.sep}site-packages{os.sep}"
        users = [call for call in calls if installed not in call[0]] or calls
        if not users:
            return "", "main"
        for _, function in users:
            if not function.startswith("<"):  # not a comprehension or the module
                return users[0][0], function
        return users[0][0], "main"


def describe(value):
    """Return the bytes that a value holds, and its fields; each is [name, dtype, shape, count, items, bytes, causes].

    A field is a tensor, an array, or everything in one list. Its shape is that of the part with the most items.
    """
    fields = {}
    for name, part, is_own_pickle in walk(value, MAX_PARTS):
        leaf = describe_leaf(part, is_own_pickle)
        if leaf is None:
            continue
        dtype, shape, size, causes = leaf
        field = fields.setdefault((name, dtype), [name, dtype, shape, 0, 0, 0, []])
        field[2] = max(field[2], shape, key=prod)
        field[3] += 1
        field[4] += prod(shape)
        field[5] += size
        field[6] += [cause for cause in causes if cause not in field[6]]
    kept = [field for field in fields.values() if field[5]]
    kept.sort(key=lambda field: -field[5])
    return {"bytes": sum(field[5] for field in kept), "fields": kept[:MAX_NAMES]}


def find_first_tensor(value):
    """Return the first tensor or array of a message, or None."""
    for _, part, _ in walk(value, MAX_NAMES):
        if is_tensor(part):
            return part
    return None


def is_tensor(part):
    of = type(part)  # an image of PIL has no nbytes; to ask the object could run code of the user
    return hasattr(of, "nbytes") and (
        hasattr(of, "untyped_storage") or hasattr(of, "__array_interface__")
    )


def is_numbers(part):
    if not isinstance(part, (list, tuple)) or not part:
        return False
    types = {type(item) for item in (*part[:8], part[-1])}
    return types <= {int, float}


def describe_leaf(part, is_own_pickle=False):
    """Return dtype, shape, bytes and causes of a tensor, array, text or list of numbers; None for others.

    `is_own_pickle`: it is in an object whose class decides how it is pickled.
    """
    if is_tensor(part):
        return describe_tensor(part, is_own_pickle)
    if isinstance(part, str):
        return "str", (len(part),), len(part), []
    if isinstance(part, (bytes, bytearray)):
        return "bytes", (len(part),), len(part), ["bytes in the pickle"]
    if is_numbers(part):
        dtype = "floats" if isinstance(part[0], float) else "ints"
        causes = ["numbers"] if len(part) >= 1000 else []
        return dtype, (len(part),), 8 * len(part), causes
    return None


def describe_tensor(part, is_own_pickle):
    """Return dtype, shape, bytes and causes of a tensor or array."""
    is_plain = str(getattr(part, "layout", "torch.strided")) == "torch.strided"
    size = int(part.nbytes) if is_plain else 0  # a sparse tensor is not described
    causes = []
    if not getattr(getattr(part, "flags", None), "forc", True):
        causes.append("not contiguous")
    if hasattr(part, "untyped_storage") and part.device.type == "cpu":
        if is_own_pickle:  # Ray does not see its tensors
            causes.append("pickled by its class")
        elif not getattr(ray._private.ray_constants, "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS", False):
            causes.append("tensors in the pickle")  # with the part of its storage that it hides
        if is_plain and not part.is_nested and part.untyped_storage().nbytes() > size:
            causes.append("view")
    shape = (size,) if getattr(part, "is_nested", False) else tuple(part.shape)
    return str(part.dtype).replace("torch.", ""), shape, size, causes


def pickles_itself(part):
    """Return whether the class of an object decides how it is pickled, as verl's DataProto does with torch.save."""
    for name in ("__getstate__", "__reduce__", "__reduce_ex__"):
        inherited = getattr(object, name, None)
        if getattr(type(part), name, None) is not inherited:
            return True
    return False


def is_opaque(part):
    """Return whether the parts of an object are not walked: it is a tensor, a text, a class or a function."""
    return is_tensor(part) or isinstance(part, (str, bytes, bytearray, type)) or callable(part)


def walk(value, max_parts):
    """Yield each part of a message once: name, value, and whether it is in an object that pickles itself.

    A key that cannot be a name is not stored.
    """
    parts = [("", value, False)]
    seen = set()
    while parts and len(seen) < max_parts:
        name, part, is_own_pickle = parts.pop()
        if id(part) in seen:  # for example, an object that refers to its parent
            continue
        seen.add(id(part))
        yield name, part, is_own_pickle
        if isinstance(part, (list, tuple, set)):
            if not is_numbers(part):
                parts += [(f"{name}[]", item, is_own_pickle) for item in islice(part, max_parts)]
        elif isinstance(part, dict):
            parts += name_items(name, part, is_own_pickle, max_parts)
        elif not is_opaque(part):
            is_own_pickle = is_own_pickle or pickles_itself(part)
            items = getattr(part, "__dict__", {})
            parts += name_items(name, items, is_own_pickle, max_parts)


def name_items(name, items, is_own_pickle, max_parts):
    """Return the items of a dict, or the attributes of an object, as parts for `walk`."""
    parts = []
    for key, item in islice(items.items(), max_parts):
        is_text = isinstance(key, str) and len(items) <= MAX_NAMES
        is_name = is_text and key.replace(".", "_").isidentifier()
        label = key if is_name else "*"
        parts.append((f"{name}.{label}".lstrip("."), item, is_own_pickle))
    return parts
