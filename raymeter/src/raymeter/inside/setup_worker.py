# SPDX-License-Identifier: Apache-2.0
"""Start a worker that has a runtime_env as Ray does, and let it find this package in any case.

Ray runs this script in place of its own one, and only for workers with a runtime_env. The `env_vars` of that replace
variables of the worker. If PYTHONPATH is one of them, the folder of this package is added behind the user's folders,
and raymeter's own settings stay as they are. Then Ray's script runs, which becomes the worker.
"""

import contextlib
import os
import runpy
import sys

SETTINGS = ("RAYMETER_FOLDER", "RAYMETER_MIN_BYTES")


def keep_package(folder, update):
    """Return a function that updates os.environ as `update` does, and then adds a folder to PYTHONPATH if needed."""

    def update_environment(env_vars):
        settings = {name: os.environ[name] for name in SETTINGS if name in os.environ}
        update(env_vars)
        os.environ.update(settings)
        users = os.environ.get("PYTHONPATH", "")
        if folder not in users.split(os.pathsep):
            # An empty entry of the user stays: it is the current folder.
            os.environ["PYTHONPATH"] = f"{users}{os.pathsep}{folder}" if users else folder

    return update_environment


def main():
    """Let workers find this package whatever their `env_vars` say, and run Ray's script, which becomes the worker.

    The folder of this script is no place to import modules from, so another one takes its place in sys.path.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folder = os.path.dirname(package)
    sys.path[0] = folder
    # The program goes on, also with a version of Ray in which this is another function.
    with contextlib.suppress(Exception):
        from raymeter.inside import ray_internals

        context = ray_internals.environment_context()
        context.update_envs = keep_package(folder, context.update_envs)
    script = find_script()
    sys.path[0] = os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")


def find_script():
    """Return the script of Ray that starts workers with a runtime_env."""
    import ray

    return os.path.join(os.path.dirname(ray.__file__), "_private", "workers", "setup_worker.py")


if __name__ == "__main__":
    main()
