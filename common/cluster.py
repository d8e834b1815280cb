"""Start a private Ray cluster, or join one. Leave nothing behind: no process, shared memory, semaphore or file."""

import argparse
import ctypes
import os
import re
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

SHUTDOWN_SECONDS = 10  # Ray waits longer for the actors of a compiled graph if one of them hangs
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ray_cluster(flags: argparse.Namespace) -> Iterator[None]:
    """Connect this process to Ray. An error of Ray becomes SuiteError, with one line that names the actor."""
    # PR_SET_CHILD_SUBREAPER: processes that lose their parent become children of this one, which can end them.
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    ray._private.worker.print_to_stdstream = lambda *_, **__: None  # Ray would print advice if an actor dies
    temporary = tempfile.gettempdir()  # or a shorter one, because Ray puts sockets below it
    folder = tempfile.mkdtemp(prefix="ray-", dir=temporary if len(temporary) < 22 else "/tmp")
    settings = {"include_dashboard": False, "object_store_memory": store_bytes(flags.sizes), "_temp_dir": folder}
    if flags.address:
        variables = {name: value for name, value in os.environ.items() if name.startswith("RAY_CGRAPH_")}
        settings = {"runtime_env": {"py_modules": [str(Path(__file__).parent)], "env_vars": variables}}
    try:
        ray.init(flags.address or "local", log_to_driver=False, logging_level="critical", **settings)
        for number in SIGNALS:  # each ends the run as Ctrl-C does; Ray has set handlers of its own
            signal.signal(number, signal.default_int_handler)
        yield
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # results of a graph that outlive the connection to Ray crash
        if isinstance(error, (RayError, ConnectionError)):
            raise SuiteError(explain(error)) from None
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # nothing interrupts what follows
        leave(folder)


def explain(error: Exception) -> str:
    """Return one line: which actor died, or else what an actor raised, or what Ray says."""
    if isinstance(error, RayError) and (died := set(MODELS) - set(ray.util.list_named_actors())):
        return f"{' and '.join(sorted(died))} died"
    return str(getattr(error, "cause", error)).strip().partition("\n")[0]


def leave(folder: str) -> None:
    """Disconnect from Ray, end all processes that were started, and remove their files."""
    processes = psutil.Process().children(recursive=True)
    killer = Timer(SHUTDOWN_SECONDS, kill, [processes])
    killer.start()
    ray.shutdown()
    killer.cancel()
    kill([*processes, *psutil.Process().children(recursive=True)])
    for path in Path("/dev/shm").glob("sem.*-*"):  # Ray leaves two per channel; their names have the raylet's id
        creator = re.match(r"sem\.(?:obj|hdr)(\d+)-", path.name)
        if creator and int(creator[1]) in [process.pid for process in processes]:
            path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=SHUTDOWN_SECONDS)
