"""Wrap the functions of Ray through which messages pass, in the driver and in its workers. It changes no result.

Ray calls `add_to_runtime_env` in ray.init (RAY_RUNTIME_ENV_HOOK). If the driver starts the cluster, and without a
runtime_env, workers import this module; else they get its source text. If recording fails, the program goes on.
"""

import functools
import inspect
import os
import sys
from pkgutil import resolve_name
from types import ModuleType

from dataflow_recorder import Recorder, ray, readings, worker

PRELOAD = "RAY_preload_python_modules"  # a setting of Ray: what each worker imports at its start
recorder = None


def add_to_runtime_env(runtime_env):
    """Return the runtime_env of the user, if needed with a hook for workers, which calls the user's own hook first."""
    if worker.connected:  # ray.init is called again, for example in a worker
        return runtime_env
    if os.environ.get("DATAFLOW_PROFILE_USERS_HOOK"):
        runtime_env = resolve_name(os.environ["DATAFLOW_PROFILE_USERS_HOOK"])(runtime_env)
    install()
    if (
        not runtime_env and starts_cluster()
    ):  # Ray can start workers in advance only if they have no runtime_env
        os.environ[PRELOAD] = ",".join(filter(None, (os.environ.get(PRELOAD), "dataflow_hook")))
        return runtime_env
    hook = make_worker_hook(
        (runtime_env or {}).get("worker_process_setup_hook"), os.environ["DATAFLOW_PROFILE"]
    )
    return {**(runtime_env or {}), "worker_process_setup_hook": hook}


def starts_cluster():
    """Return whether the call of ray.init that has called this module does not connect to a cluster that exists."""
    frame = inspect.currentframe()
    while frame and not (frame.f_code.co_name == "init" and "_temp_dir" in frame.f_locals):
        frame = frame.f_back
    find_address = getattr(ray._private.services, "canonicalize_bootstrap_address", None)
    return bool(frame and find_address) and not find_address(
        frame.f_locals["address"], frame.f_locals["_temp_dir"]
    )


def make_worker_hook(users_hook, settings):
    """Return a function that Ray sends by value, as one of the user's script, with the texts of these modules."""
    texts = {
        name: inspect.getsource(sys.modules[name])
        for name in ("dataflow_recorder", "dataflow_hook")
    }

    def set_up_worker():
        if users_hook:
            (users_hook if callable(users_hook) else resolve_name(users_hook))()
        os.environ["DATAFLOW_PROFILE"] = settings
        try:
            for name, text in texts.items():
                if name not in sys.modules:  # Ray has not imported it at the start
                    sys.modules[name] = ModuleType(name)
                    exec(compile(text, f"<{name}>", "exec"), vars(sys.modules[name]))
        except Exception as error:
            print(f"dataflow profile: this worker is not recorded: {error}", file=sys.stderr)

    set_up_worker.__module__ = "__main__"
    return set_up_worker


def stop(error):
    """Print why recording ends. The wrapped functions go on without it."""
    global recorder
    recorder = False
    print(
        f"dataflow profile: recording ended in this process: {type(error).__name__}: {error}",
        file=sys.stderr,
    )


def install():
    """Wrap the functions, once per process."""
    global recorder
    if recorder is not None:
        return
    missing = []
    for name, how in WRAPPED.items():
        owner, _, function = name.rpartition(".")
        try:
            setattr(
                resolve_name(owner), function, wrap(getattr(resolve_name(owner), function), *how)
            )
        except Exception:  # another version of Ray does not have it, or cannot import it
            missing.append(name.partition(":")[2])
    try:
        recorder = Recorder(*os.environ["DATAFLOW_PROFILE"].rsplit(":", 1), missing)
    except Exception as error:
        stop(error)


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
        return "A" + type(worker.current_task_id).for_actor_creation_task(first._actor_id).hex()
    first = getattr(first, "_generator_ref", first)
    return "A" + first.task_id().hex() if hasattr(first, "task_id") else None


# Name: "sent" or "received", and what returns value, bytes and reference; or a way, and what returns an identity.
WRAPPED = {
    "ray._private.serialization:SerializationContext.serialize": ("sent", lambda a, _, r: (a[1], r.total_bytes)),
    "ray._private.serialization:SerializationContext.serialize_rdt_objects":
        ("sent", lambda a, _, r: (a[1], sum(tensor.nbytes for tensor in r[1]), None, "RDT")),
    "ray._private.serialization:SerializationContext._deserialize_object": ("received", lambda a, _, r: (
        r, sum(tensor.nbytes for tensor in a[4]) if a[4:] and a[4] else len(a[1] or b""), a[3])),
    "ray._private.worker:Worker.put_object":
        ("put", lambda _, k, r: "O" + r.hex() if r and "_is_experimental_channel" not in k else None),
    "ray._private.worker:Worker.get_objects": ("get", lambda a, _, r: None),
    "ray.experimental.channel.shared_memory_channel:Channel.write":
        ("channel", lambda a, _, r: "O" + a[0]._writer_ref.hex()),
    "ray.actor:ActorHandle._actor_method_call": ("by value", identify_task),
    "ray.actor:ActorClass._remote": ("by value", identify_task),
    "ray.remote_function:RemoteFunction._remote": ("by value", identify_task),
}  # fmt: skip

if worker.mode == ray.WORKER_MODE:
    install()
