"""Start a private Ray cluster, or join one, and leave nothing behind: no process, shared memory, semaphore or file."""

import argparse
import ctypes
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer

import psutil
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from common import RunFailed
from common.sizes import MODELS, store_bytes

PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
SHUTDOWN_SECONDS = 5


@contextmanager
def ray_cluster(flags: argparse.Namespace) -> Iterator[None]:
    """Connect this process to Ray. Errors of Ray are raised again as RunFailed with one line, which names the actor."""
    # Processes of Ray that lose their parent become children of this one, so that they can be found and ended.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ray._private.worker.print_to_stdstream = lambda *_, **__: None  # Ray would print long advice on a dead actor
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # a short name, because Ray puts sockets below it
    try:
        if flags.address:
            _join(flags.address)
        else:
            memory = {"object_store_memory": store_bytes(flags.sizes), "_temp_dir": folder}
            ray.init("local", include_dashboard=False, log_to_driver=False, logging_level="critical", **memory)
        for number in (signal.SIGTERM, signal.SIGHUP):  # they end a run as Ctrl-C does; Ray has set its own handlers
            signal.signal(number, signal.default_int_handler)
        yield
    except RayError as error:
        raise RunFailed(_explain(error)) from None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # nothing interrupts the cleanup
        _stop(folder)


def _join(address: str) -> None:
    variables = {name: value for name, value in os.environ.items() if name.startswith("RAY_CGRAPH_")}
    root = Path(__file__).resolve().parents[1]
    job = {"working_dir": str(root), "excludes": ["*", "!/common/**"], "env_vars": variables}
    try:
        ray.init(address, runtime_env=job, log_to_driver=False, logging_level="critical")
    except (OSError, ValueError, RuntimeError, RayError) as error:
        raise RunFailed(f"--address {address}: cannot join the cluster ({str(error).splitlines()[0]:.150})") from None


def _explain(error: RayError) -> str:
    """Return one line that names the actor which is the cause of an error."""
    if isinstance(error, RayTaskError) and not isinstance(error.cause, RayActorError):
        return f"{type(error.cause).__name__}: {str(error.cause).splitlines()[0]}"
    died = [name for name in MODELS if name not in ray.util.list_named_actors()]
    if died:
        return f"{' and '.join(died)} died"
    return str(error).splitlines()[0]


def _stop(folder: str) -> None:
    """Disconnect from Ray, end all processes that this one has started, and remove their files."""
    processes = psutil.Process().children(recursive=True)
    killer = Timer(SHUTDOWN_SECONDS, _kill_descendants)  # Ray waits for a compiled graph whose actor hangs
    killer.start()
    ray.shutdown()
    killer.cancel()
    _kill_descendants()
    for path in Path("/dev/shm").glob("sem.*-*"):  # Ray leaves two per channel, named after the raylet
        creator = re.match(r"sem\.(?:obj|hdr)(\d+)-", path.name)
        if creator and int(creator[1]) in [process.pid for process in processes]:
            path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _kill_descendants() -> None:
    while processes := psutil.Process().children(recursive=True):
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=0.2)  # it also reaps those that have become children of this process
