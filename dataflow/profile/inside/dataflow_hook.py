"""Wrap the functions of Ray through which messages pass, in the driver and in its workers. It changes no result.

Ray calls `add_to_runtime_env` in ray.init (RAY_RUNTIME_ENV_HOOK). Workers get the source text of these modules, so they
work on nodes where this project is not installed. If recording fails, one line says so, and the program goes on.
"""

import functools
import inspect
import os
import sys
from pkgutil import resolve_name

from dataflow_recorder import Recorder, readings

MODULES = ("dataflow_describe", "dataflow_recorder", "dataflow_hook")
SETTINGS, USERS_HOOK = "DATAFLOW_PROFILE", "DATAFLOW_PROFILE_USERS_HOOK"
recorder = None


def add_to_runtime_env(runtime_env):
    """Return the runtime_env of the user with a hook for workers, which calls the user's own hook first."""
    if os.environ.get(USERS_HOOK):
        runtime_env = resolve_name(os.environ[USERS_HOOK])(runtime_env)
    try:
        folder, _, min_bytes = os.environ[SETTINGS].rpartition(":")
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
    recorder = None
    print(f"dataflow profile: recording ended in this process: {type(error).__name__}: {error}", file=sys.stderr)


def install(folder, min_bytes):
    """Wrap the functions, once per process."""
    global recorder
    if recorder is not None:
        return
    missing = []
    for name, how in WRAPPED.items():
        owner, _, function = name.rpartition(".")
        try:
            owner = resolve_name(owner)
            setattr(owner, function, wrap(getattr(owner, function), *how))
        except (ImportError, AttributeError):
            missing.append(name.partition(":")[2])
    recorder = Recorder(folder, min_bytes, missing)


def wrap(original, kind, describe):
    """Return the function with its calls recorded, for `kind` see WRAPPED."""

    @functools.wraps(original)
    def call(*args, **kwargs):
        current, result = recorder, None
        if current is None:
            return original(*args, **kwargs)
        begun = readings() if kind in SIDES else current.enter(kind)
        try:
            result = original(*args, **kwargs)
            return result
        finally:
            try:
                if kind not in SIDES:
                    current.leave(begun, lambda: describe(args, kwargs, result))
                elif result is not None:
                    current.record(kind, begun, *describe(args, kwargs, result))
            except Exception as error:
                stop(error)

    return call


def describe_received(args, _, result):
    data, ref, tensors = args[1], args[3], args[4:]
    return result, sum(tensor.nbytes for tensor in tensors[0]) if tensors and tensors[0] else len(data or b""), ref


def identify_task(args, _, result):
    """Return the identity of the arguments of the task or actor that was submitted; None if it returns nothing."""
    first = result[0] if isinstance(result, (list, tuple)) and result else result
    if hasattr(first, "_actor_id"):  # a new actor
        return "A" + type(recorder.worker.current_task_id).for_actor_creation_task(first._actor_id).hex()
    first = getattr(first, "_generator_ref", first)
    return "A" + first.task_id().hex() if hasattr(first, "task_id") else None


SIDES = ("sent", "received")
SERIALIZATION = "ray._private.serialization:SerializationContext."
# A function that serialises or deserialises a message, its side, and what describes it: value, bytes, reference. Or a
# function during which messages are sent or received, in which way, and what returns their identity.
WRAPPED = {
    SERIALIZATION + "serialize": ("sent", lambda args, kwargs, result: (args[1], result.total_bytes)),
    SERIALIZATION + "serialize_rdt_objects":
        ("sent", lambda args, kwargs, result: (args[1], sum(tensor.nbytes for tensor in result[1]))),
    SERIALIZATION + "_deserialize_object": ("received", describe_received),
    "ray._private.worker:Worker.put_object":
        ("put", lambda _, kwargs, ref: "O" + ref.hex() if ref and "_is_experimental_channel" not in kwargs else None),
    "ray._private.worker:Worker.get_objects": ("get", lambda args, kwargs, result: None),
    "ray.experimental.channel.shared_memory_channel:Channel.write":
        ("channel", lambda args, kwargs, result: "O" + args[0]._writer_ref.hex()),
    "ray.actor:ActorHandle._actor_method_call": ("argument", identify_task),
    "ray.actor:ActorClass._remote": ("argument", identify_task),
    "ray.remote_function:RemoteFunction._remote": ("argument", identify_task),
}  # fmt: skip
