"""Start a private Ray cluster, or join one. Leave nothing behind: no process, shared memory, semaphore or file."""

import argparse
import ctypes
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer

import psutil
import ray
from ray.exceptions import RayError

from common import SuiteError
from common.sizes import MODELS, store_bytes


@contextmanager
def ray_cluster(flags: argparse.Namespace) -> Iterator[None]:
    """Connect this process to Ray. An error of Ray becomes SuiteError, with one line that names the actor."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans become children of this process
    ray._private.worker.print_to_stdstream = lambda *_, **__: None  # Ray would print advice if an actor dies
    shared_before = os.listdir("/dev/shm")
    # Paths of sockets, which Ray puts below this folder, must be short.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp" if len(tempfile.gettempdir()) > 21 else None)
    settings = {"include_dashboard": False, "object_store_memory": store_bytes(flags.sizes), "_temp_dir": folder}
    if flags.address:
        variables = {name: value for name, value in os.environ.items() if name.startswith("RAY_CGRAPH_")}
        settings = {"runtime_env": {"py_modules": [str(Path(__file__).parent)], "env_vars": variables}}
    try:
        ray.init(flags.address or "local", log_to_driver=False, logging_level="critical", **settings)
        for number in (signal.SIGTERM, signal.SIGHUP):  # they end a run as Ctrl-C does, in place of Ray's handlers
            signal.signal(number, signal.default_int_handler)
        yield
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # results of a graph that outlive the connection to Ray crash
        if isinstance(error, (RayError, ConnectionError)):
            raise SuiteError(explain(error)) from None
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # nothing interrupts what follows
        leave(folder, shared_before)


def explain(error: Exception) -> str:
    """Return one line: which actor died, or else what an actor raised, or what Ray says."""
    if isinstance(error, RayError) and (died := set(MODELS) - set(ray.util.list_named_actors())):
        return f"{' and '.join(sorted(died))} died"
    return str(getattr(error, "cause", error)).strip().partition("\n")[0]


def leave(folder: str, shared_before: list[str]) -> None:
    """Disconnect from Ray, end all processes that were started, and remove their files."""
    processes = psutil.Process().children(recursive=True)
    killer = Timer(10, kill, [processes])  # Ray waits longer if an actor of a compiled graph hangs
    killer.start()
    ray.shutdown()
    killer.cancel()
    kill([*processes, *psutil.Process().children(recursive=True)])
    shutil.rmtree(folder, ignore_errors=True)
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # the process has ended
            mapped |= {int(line.split()[4]) for line in maps.read_text().splitlines() if "/sem." in line}
    for path in Path("/dev/shm").glob("sem.[oh][bd][jr]*"):  # Ray leaves two per channel, which no process uses
        with suppress(OSError):
            if path.name not in shared_before and path.stat().st_ino not in mapped:
                path.unlink()


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10)
