"""Start a private Ray cluster, or join one. Leave nothing behind: no process, shared memory or file."""

import argparse
import ctypes
import os
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory, gettempdir
from threading import Timer

import psutil
import ray
from ray.exceptions import RayError

from common import SuiteError
from common.sizes import EDGES, MIN_STORE_BYTES, MODELS, STORED_ITERATIONS


@contextmanager
def ray_cluster(flags: argparse.Namespace) -> Iterator[None]:
    """Connect this process to Ray. An error of Ray becomes SuiteError, with one line that names the actor."""
    ctypes.CDLL(None).prctl(
        36, 1, 0, 0, 0
    )  # PR_SET_CHILD_SUBREAPER: orphans become children of this process
    ray._private.worker.print_to_stdstream = lambda *_, **__: (
        None
    )  # Ray would print advice if an actor dies
    parent = (
        "/tmp" if len(gettempdir()) > 21 else None
    )  # paths of sockets, which Ray puts below it, must be short
    with TemporaryDirectory(prefix="ray-", dir=parent, ignore_cleanup_errors=True) as folder:
        store_bytes = max(
            MIN_STORE_BYTES, STORED_ITERATIONS * sum(flags.sizes[sender] for sender, _ in EDGES)
        )
        settings = {
            "include_dashboard": False,
            "object_store_memory": store_bytes,
            "_temp_dir": folder,
        }
        if flags.address:
            variables = {
                name: value for name, value in os.environ.items() if name.startswith("RAY_CGRAPH_")
            }
            settings = {
                "runtime_env": {"py_modules": [os.path.dirname(__file__)], "env_vars": variables}
            }
        try:
            ray.init(
                flags.address or "local", log_to_driver=False, logging_level="critical", **settings
            )
            for number in (
                signal.SIGTERM,
                signal.SIGHUP,
            ):  # they end a run as Ctrl-C does, in place of Ray's handlers
                signal.signal(number, signal.default_int_handler)
            yield
        except BaseException as error:
            traceback.clear_frames(
                error.__traceback__
            )  # results of a graph that outlive the connection to Ray crash
            if not isinstance(error, (RayError, ConnectionError)):
                raise
            if isinstance(error, RayError) and (
                died := set(MODELS) - set(ray.util.list_named_actors())
            ):
                raise SuiteError(f"{' and '.join(sorted(died))} died") from None
            raise SuiteError(
                str(getattr(error, "cause", error)).strip().partition("\n")[0]
            ) from None
        finally:
            signal.pthread_sigmask(
                signal.SIG_BLOCK, signal.valid_signals()
            )  # nothing interrupts what follows
            processes = psutil.Process().children(recursive=True)
            killer = Timer(
                10, kill, [processes]
            )  # Ray waits longer if an actor of a compiled graph hangs
            killer.start()
            ray.shutdown()
            killer.cancel()
            kill([*processes, *psutil.Process().children(recursive=True)])


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10)
