# SPDX-License-Identifier: Apache-2.0
"""Install the recorder in the driver and in Ray's workers.

Ray calls `add_to_runtime_env` in ray.init (RAY_RUNTIME_ENV_HOOK). If the driver starts the cluster, and without a
runtime_env of the user, workers import this module at their start. Else they get the source text of this package, so
that it need not be installed where they run. If recording fails, the program goes on without it.
"""

import contextlib
import inspect
import os
import pkgutil
import sys
from types import ModuleType

PACKAGE = "raymeter.inside"
MODULES = (
    "by_class",
    "raylet",
    "ray_internals",
    "place",
    "reading",
    "containers",
    "identity",
    "special_arrays",
    "padding",
    "describe",
    "limits",
    "conversions",
    "samples",
    "alternatives",
    "recorder",
    "runs",
    "tasks",
    "memory",
    "captured",
    "class_code",
    "data_batches",
    "calls",
    "hook",
)
FOLDER = "RAYMETER_FOLDER"
MIN_BYTES = "RAYMETER_MIN_BYTES"
USERS_HOOK = "RAYMETER_USERS_HOOK"
USERS_UV_RUN = "RAYMETER_USERS_UV_RUN"  # whether Ray's own hook for `uv run` is on
REASON = "not-recorded.txt"  # in the folder of the profile
STARTED_CLUSTER = "RAYMETER_STARTED_CLUSTER"
SETUP_WORKER = "setup_worker.py"  # beside this file
FILE = globals().get("__file__")  # none if this module came as text: workers cannot import it then
OUR_SETTINGS = (FOLDER, MIN_BYTES)


def add_to_runtime_env(runtime_env):
    """Return the user's runtime_env, if needed with a hook for workers. Record this process from now on.

    An error of the user's own hook goes on to ray.init. After another one, the program is not recorded, and the reason
    is printed, and written into the folder of the profile.
    """
    from raymeter.inside import ray_internals

    if ray_internals.is_connected():  # ray.init is called again, for example in a worker
        return runtime_env
    runtime_env = apply_other_hooks(runtime_env)
    try:
        return begin_to_record(runtime_env)
    except Exception as error:  # the program goes on
        print(f"raymeter: this program is not recorded: {error}", file=sys.stderr)
        note_reason(f"{error}.")
        return runtime_env


def begin_to_record(runtime_env):
    """Record this process, and return a runtime_env with which its workers are recorded: the same one if it needs none.

    Raise RuntimeError if the program has removed a variable of raymeter. `runtime_env` may be None.
    """
    from raymeter.inside import calls, ray_internals

    removed = [name for name in OUR_SETTINGS if name not in os.environ]
    if removed:
        raise RuntimeError(
            f"the program has removed {' and '.join(removed)} from os.environ before ray.init. Keep the variables that "
            "begin with RAYMETER_"
        )
    note_other_folder()
    is_own_cluster = is_starting_cluster()
    os.environ[STARTED_CLUSTER] = "1" if is_own_cluster else "0"
    calls.install()
    if not runtime_env and is_own_cluster and FILE:
        # Ray starts workers in advance only if they have no runtime_env.
        preload_in_workers(ray_internals.PRELOAD)
        folder = os.path.dirname(os.path.abspath(FILE))
        ray_internals.start_workers_with(os.path.join(folder, SETUP_WORKER))
        return runtime_env
    merged = dict(runtime_env or {})
    merged["worker_process_setup_hook"] = make_worker_hook(merged.get("worker_process_setup_hook"))
    return merged


def folder_at_start():
    """Return the folder of the profile with which this process was started, whatever os.environ has now; else ""."""
    try:
        with open("/proc/self/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return ""
    begin = f"{FOLDER}=".encode()
    found = [os.fsdecode(item[len(begin) :]) for item in variables if item.startswith(begin)]
    return found[0] if found else ""


def note_other_folder():
    """Note in the folder of the profile that the program has set another one."""
    if os.environ[FOLDER] != folder_at_start():
        note_reason(
            f"the program has set {FOLDER} in os.environ to {os.environ[FOLDER]}, where it was recorded: raymeter show "
            f"{os.environ[FOLDER]}"
        )


def note_reason(text):
    """Write in the folder of the profile why nothing is recorded there, for raymeter, which says it at the end."""
    folder = folder_at_start()
    if not folder:
        return
    with contextlib.suppress(OSError), open(os.path.join(folder, REASON), "w") as file:
        file.write(text + "\n")


def apply_other_hooks(runtime_env):
    """Return what Ray would use without raymeter: under `uv run` its own hook, and else the user's."""
    from raymeter.inside import ray_internals

    is_uv_allowed = os.environ.get(USERS_UV_RUN, "1").lower() in ("1", "true")
    if is_uv_allowed and ray_internals.is_started_by_uv_run():
        return pkgutil.resolve_name(ray_internals.UV_HOOK)(runtime_env)
    users_hook = os.environ.get(USERS_HOOK)
    if users_hook:
        return pkgutil.resolve_name(users_hook)(runtime_env)
    return runtime_env


def preload_in_workers(variable):
    """Let workers import this module at their start, once."""
    names = os.environ.get(variable, "").split(",")
    hook = f"{PACKAGE}.hook"
    if hook not in names:
        os.environ[variable] = ",".join(filter(None, [*names, hook]))


def is_starting_cluster():
    """Return whether the ray.init that has called this module starts a cluster, and joins none; False if none has."""
    from raymeter.inside import ray_internals

    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "init" and "_temp_dir" in frame.f_locals:
            return ray_internals.starts_cluster(frame.f_locals)
        frame = frame.f_back
    return False


def make_worker_hook(users_hook):
    """Return a function that Ray sends to workers by value, with the source text of this package inside of it.

    `users_hook` is the user's own setup hook: a function, its name, or None. It is called first.
    """
    texts = {name: source_of(f"{PACKAGE}.{name}") for name in MODULES}
    settings = {name: os.environ[name] for name in OUR_SETTINGS}

    def set_up_worker():
        """Call the user's own hook, make the modules of the recorder from their texts, and begin to record.

        An error of the user's hook goes on to Ray, as without raymeter; another error is printed.
        """
        if users_hook:
            users_function = users_hook
            if isinstance(users_hook, str):
                users_function = pkgutil.resolve_name(users_hook)
            users_function()
        os.environ.update(settings)
        try:
            for package in ("raymeter", "raymeter.inside"):
                if package not in sys.modules:
                    sys.modules[package] = ModuleType(package)
                    sys.modules[package].__path__ = []
            for name, text in texts.items():
                full_name = f"raymeter.inside.{name}"
                if full_name in sys.modules:
                    continue  # Ray has imported it at the start of the worker
                module = sys.modules[full_name] = ModuleType(full_name)
                module.__package__ = "raymeter.inside"
                module.__raymeter_source__ = text
                exec(compile(text, f"<{full_name}>", "exec"), vars(module))
                setattr(sys.modules["raymeter.inside"], name, module)
            sys.modules["raymeter.inside.calls"].install()
        except Exception as error:
            print(f"raymeter: this worker is not recorded: {error}", file=sys.stderr)

    set_up_worker.__module__ = "__main__"  # Ray sends functions of other modules by their name
    return set_up_worker


def source_of(name):
    """Return the source text of a module of this package, also where it came as text itself."""
    module = sys.modules.get(name) or __import__(name, fromlist=["_"])
    return getattr(module, "__raymeter_source__", None) or inspect.getsource(module)


def install_in_worker():
    """Record this process if it is a worker, which imports this module because of RAY_preload_python_modules."""
    from raymeter.inside import calls, ray_internals

    if ray_internals.is_worker() and FOLDER in os.environ:
        calls.install()


if __name__ == f"{PACKAGE}.hook" and FOLDER in os.environ:
    install_in_worker()
