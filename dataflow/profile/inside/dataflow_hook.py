"""Wrap the functions of Ray through which messages pass, in the driver and in its workers. It changes no result.

Ray calls `add_to_runtime_env` in ray.init (RAY_RUNTIME_ENV_HOOK). Workers get the source text of these modules, so that
they need not be installed there. If recording fails, one line says so, and the program goes on.
"""

import functools
import inspect
import os
import sys
from pkgutil import resolve_name

from dataflow_recorder import Recorder, readings

MODULES = ("dataflow_describe", "dataflow_recorder", "dataflow_hook")
recorder = None


def add_to_runtime_env(runtime_env):
    """Return the runtime_env of the user with a hook for workers, which calls the user's own hook first."""
    if recorder and recorder.worker.connected:  # ray.init is called again, for example in a worker
        return runtime_env
    if os.environ.get("DATAFLOW_PROFILE_USERS_HOOK"):
        runtime_env = resolve_name(os.environ["DATAFLOW_PROFILE_USERS_HOOK"])(runtime_env)
    try:
        folder, _, min_bytes = os.environ["DATAFLOW_PROFILE"].rpartition(":")
        runtime_env = dict(runtime_env or {})
        users_hook = runtime_env.get("worker_process_setup_hook")
        runtime_env["worker_process_setup_hook"] = make_worker_hook(users_hook, folder, int(min_bytes))
        install(folder, int(min_bytes))
    except Exception as error:
        stop(error)
    return runtime_env


def make_worker_hook(users_hook, folder, min_bytes):
    """Return a function without references to these modules, so that Ray sends it by value."""
    texts = {name: inspect.getsource(sys.modules[name]) for name in MODULES}

    def set_up_worker():
        import pkgutil
        import sys
        import types

        if users_hook:
            (users_hook if callable(users_hook) else pkgutil.resolve_name(users_hook))()
        try:
            for name, text in texts.items():
                module = sys.modules[name] = types.ModuleType(name)
                exec(compile(text, f"<{name}>", "exec"), module.__dict__)
            sys.modules["dataflow_hook"].install(folder, min_bytes)
        except Exception as error:
            print(f"dataflow profile: this worker is not recorded: {error}", file=sys.stderr)

    set_up_worker.__module__ = "__main__"
    return set_up_worker


def stop(error):
    """Print why recording ends. The wrapped functions go on without it."""
    global recorder
    recorder = False
    print(f"dataflow profile: recording ended in this process: {type(error).__name__}: {error}", file=sys.stderr)


def install(folder, min_bytes):
    """Wrap the functions, once per process."""
    global recorder
    if recorder is None:
        missing = []
        for name, how in WRAPPED.items():
            owner_name, _, function = name.rpartition(".")
            try:
                owner = resolve_name(owner_name)
                setattr(owner, function, wrap(getattr(owner, function), *how))
            except (ImportError, AttributeError):
                missing.append(name.partition(":")[2])
        recorder = Recorder(folder, min_bytes, missing)


def wrap(original, kind, describe):
    """Return the function with its calls recorded; WRAPPED explains the others."""

    @functools.wraps(original)
    def call(*args, **kwargs):
        current, result = recorder, None
        if not current:
            return original(*args, **kwargs)
        is_message = kind in ("sent", "received")
        begun = readings() if is_message else current.enter(kind)
        try:
            result = original(*args, **kwargs)
            return result
        finally:
            try:
                if not is_message:
                    current.leave(begun, lambda: describe(args, kwargs, result))
                elif result is not None:
                    current.record(kind, begun, *describe(args, kwargs, result))
            except Exception as error:
                stop(error)

    return call


def identify_task(_, __, result):
    """Return the identity of the arguments of the task or actor that was submitted; None if it returns nothing."""
    first = result[0] if isinstance(result, (list, tuple)) and result else result
    if hasattr(first, "_actor_id"):  # a new actor
        return "A" + type(recorder.worker.current_task_id).for_actor_creation_task(first._actor_id).hex()
    first = getattr(first, "_generator_ref", first)
    return "A" + first.task_id().hex() if hasattr(first, "task_id") else None


# A function that serialises or deserialises a message, its side, and what returns value, bytes and reference. Or a
# function during which messages are sent or received, in which way, and what returns their identity.
WRAPPED = {
    "ray._private.serialization:SerializationContext.serialize": ("sent", lambda a, _, r: (a[1], r.total_bytes)),
    "ray._private.serialization:SerializationContext.serialize_rdt_objects":
        ("sent", lambda a, _, r: (a[1], sum(tensor.nbytes for tensor in r[1]))),
    "ray._private.serialization:SerializationContext._deserialize_object": ("received", lambda a, _, r: (
        r, sum(tensor.nbytes for tensor in a[4]) if a[4:] and a[4] else len(a[1] or b""), a[3])),
    "ray._private.worker:Worker.put_object":
        ("put", lambda _, k, r: "O" + r.hex() if r and "_is_experimental_channel" not in k else None),
    "ray._private.worker:Worker.get_objects": ("get", lambda a, _, r: None),
    "ray.experimental.channel.shared_memory_channel:Channel.write":
        ("channel", lambda a, _, r: "O" + a[0]._writer_ref.hex()),
    "ray.actor:ActorHandle._actor_method_call": ("argument", identify_task),
    "ray.actor:ActorClass._remote": ("argument", identify_task),
    "ray.remote_function:RemoteFunction._remote": ("argument", identify_task),
}  # fmt: skip
