"""Install the recorder in the driver and in Ray's workers.

Ray calls `add_to_runtime_env` in ray.init (RAY_RUNTIME_ENV_HOOK). If the driver starts the cluster, and without a
runtime_env of the user, workers import this module at their start. Else they get the source text of this package, so
that it need not be installed where they run. If recording fails, the program goes on without it.
"""

import inspect
import os
import pkgutil
import sys
from types import ModuleType

PACKAGE = "raymeter.inside"
MODULES = (
    "raylet",
    "ray_internals",
    "place",
    "identity",
    "describe",
    "conversions",
    "alternatives",
    "recorder",
    "tasks",
    "memory",
    "calls",
    "hook",
)
FOLDER = "RAYMETER_FOLDER"
MIN_BYTES = "RAYMETER_MIN_BYTES"
USERS_HOOK = "RAYMETER_USERS_HOOK"
OUR_SETTINGS = (FOLDER, MIN_BYTES)


def add_to_runtime_env(runtime_env):
    """Return the user's runtime_env, if needed with a hook for workers. Record this process from now on."""
    from raymeter.inside import calls, ray_internals

    if ray_internals.is_connected():  # ray.init is called again, for example in a worker
        return runtime_env
    if os.environ.get(USERS_HOOK):
        runtime_env = pkgutil.resolve_name(os.environ[USERS_HOOK])(runtime_env)
    calls.install()
    if not runtime_env and is_starting_cluster():
        # Ray starts workers in advance only if they have no runtime_env.
        names = [os.environ.get(ray_internals.PRELOAD), f"{PACKAGE}.hook"]
        os.environ[ray_internals.PRELOAD] = ",".join(filter(None, names))
        return runtime_env
    merged = dict(runtime_env or {})
    merged["worker_process_setup_hook"] = make_worker_hook(merged.get("worker_process_setup_hook"))
    return merged


def is_starting_cluster():
    """Return whether the ray.init that has called this module starts a cluster, and joins none."""
    from raymeter.inside import ray_internals

    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "init" and "_temp_dir" in frame.f_locals:
            return ray_internals.starts_cluster(frame.f_locals)
        frame = frame.f_back
    return False


def make_worker_hook(users_hook):
    """Return a function that Ray sends to workers by value, with the source text of this package inside of it."""
    texts = {name: source_of(f"{PACKAGE}.{name}") for name in MODULES}
    settings = {name: os.environ[name] for name in OUR_SETTINGS}

    def set_up_worker():
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
