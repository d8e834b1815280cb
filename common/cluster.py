# SPDX-License-Identifier: Apache-2.0
"""Start a private Ray cluster, or join one. Leave nothing behind: no process, shared memory or file."""

import argparse
import ctypes
import os
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any

import psutil
import ray
from ray.exceptions import RayError

from common import SuiteError
from common.cuda_files import remove_cuda_files
from common.gpus import count_gpus
from common.ray_settings import SENT_VARIABLES
from common.sizes import EDGES, MIN_STORE_BYTES, MODELS, STORED_ITERATIONS
from common.temporary import find_temporary_folder

PR_SET_CHILD_SUBREAPER = 36
END_SECONDS = 10
START_SECONDS = 120  # for all models: Ray waits without an end for GPUs that are not free


@contextmanager
def ray_cluster(flags: argparse.Namespace) -> Iterator[None]:
    """Connect this process to Ray; at the end of the block, disconnect, and end all processes that this one started.

    SIGTERM and SIGHUP act as Ctrl-C from then on, also after the block. Raise SuiteError, with one line, if Ray cannot
    be started or joined, if there is no folder for temporary files, or for an error of Ray in the block; then, the line
    names the models that died, if any did.
    """
    # Orphans become children of this process, which ends them.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parent = find_temporary_folder()
    folder = TemporaryDirectory(prefix="ray-", dir=parent, ignore_cleanup_errors=True)
    try:
        connect(flags, folder.name)
        # They end a run as Ctrl-C does, in place of Ray's handlers.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.default_int_handler)
        yield
    except BaseException as error:
        # Results of a graph that outlive the connection to Ray crash.
        traceback.clear_frames(error.__traceback__)
        if isinstance(error, (RayError, ConnectionError)):
            raise SuiteError(describe(error)) from None
        raise
    finally:
        with uninterrupted():
            disconnect_and_end_processes()
            folder.cleanup()


def connect(flags: argparse.Namespace, folder: str) -> None:
    """Join the cluster of --address, or start one with its files in this folder; raise SuiteError if it fails."""
    if flags.address:
        settings = join_settings()
        failure = f"--address {flags.address}: cannot join the cluster"
        advice = "check that it runs with this version of Ray and Python"
    else:
        settings = start_settings(flags, folder)
        failure = "Ray did not start"
        advice = "end other programs that need the processors, and try again"
    try:
        ray.init(
            flags.address or "local", log_to_driver=False, logging_level="critical", **settings
        )
    # RuntimeError with another version of Ray or Python, and Exception if a node does not start in time.
    except Exception as error:
        raise SuiteError(f"{failure} ({first_line(error)}): {advice}") from None


def start_settings(flags: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Return the arguments of ray.init for a private cluster, whose store holds the messages."""
    iteration_bytes = sum(flags.sizes[sender] for sender, _ in EDGES)
    settings = {
        "include_dashboard": False,
        "object_store_memory": max(MIN_STORE_BYTES, STORED_ITERATIONS * iteration_bytes),
        "_temp_dir": folder,
    }
    if flags.gpus_per_model:
        # Ray itself would find none where NVML is missing, as in some containers.
        settings["num_gpus"] = count_gpus()
    return settings


def join_settings() -> dict[str, Any]:
    """Return the arguments of ray.init for an existing cluster: its processes get our code and variables."""
    variables = {
        name: value for name, value in os.environ.items() if name.startswith(SENT_VARIABLES)
    }
    modules = [str(Path(__file__).parent)]
    return {"runtime_env": {"py_modules": modules, "env_vars": variables}}


def start_models(
    model_class: type, flags: argparse.Namespace, *arguments: Any, seconds: float = START_SECONDS
) -> list[Any]:
    """Start model_class(name, sizes, device, *arguments) as an actor per model, and return them when all have started.

    Raise SuiteError with the names of those that have not started in time, and the error of Ray if one has died.
    """
    actor_class = ray.remote(num_cpus=0, num_gpus=flags.gpus_per_model)(model_class)
    models = []
    for name in MODELS:
        actor = actor_class.options(name=name)
        models.append(actor.remote(name, flags.sizes, flags.device, *arguments))
    calls = [model.__ray_ready__.remote() for model in models]
    started, late = ray.wait(calls, num_returns=len(calls), timeout=seconds)
    ray.get(started)  # raises the error of a model that died
    if late:
        missing = [name for name, call in zip(MODELS, calls, strict=True) if call in late]
        raise SuiteError(f"{', '.join(missing)} did not start in {seconds:g} s{advise(flags)}")
    return models


def advise(flags: argparse.Namespace) -> str:
    """Return what the models that did not start may lack, and what to do."""
    if not flags.gpus_per_model:
        return ": end other programs that need the processors, and try again"
    gpus = ray.cluster_resources().get("GPU", 0)
    share = flags.gpus_per_model
    unit = "GPU" if share == 1 else "GPUs"
    needed = f"each of {len(MODELS)} models needs {share:g} {unit}"
    return f": {needed}, and Ray has {gpus:g}: use --device cpu, or more GPUs"


def describe(error: BaseException) -> str:
    """Return why a run of Ray failed, as one line."""
    if isinstance(error, RayError):
        died = set(MODELS) - set(ray.util.list_named_actors())
        if died:
            return f"{' and '.join(sorted(died))} died"
    return first_line(getattr(error, "cause", error))


def first_line(error: object) -> str:
    return str(error).strip().partition("\n")[0]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay all signals until the end of the block. Then Ctrl-C works again."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def disconnect_and_end_processes() -> None:
    """Disconnect from Ray, and end all processes that this one has started."""
    processes = psutil.Process().children(recursive=True)
    # Ray waits longer if an actor of a compiled graph hangs.
    killer = Timer(END_SECONDS, kill, [processes])
    killer.start()
    ray.shutdown()
    killer.cancel()
    kill([*processes, *psutil.Process().children(recursive=True)])


def kill(processes: list[psutil.Process]) -> None:
    """End these processes, wait until they have ended, and remove what CUDA leaves of them."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    ended, _ = psutil.wait_procs(processes, timeout=END_SECONDS)
    for process in ended:
        remove_cuda_files(process.pid)


@contextmanager
def remove_semaphores() -> Iterator[None]:
    """Remove the unused semaphores that the channels of Ray's compiled graphs leave in /dev/shm."""
    before = find_semaphores()
    try:
        yield
    finally:
        with uninterrupted():
            used = find_used_inodes()
            for path in find_semaphores() - before:
                with suppress(OSError):
                    if path.stat().st_ino not in used:
                        path.unlink()


def find_semaphores() -> set[Path]:
    shared_memory = Path("/dev/shm")
    return {*shared_memory.glob("sem.hdr*"), *shared_memory.glob("sem.obj*")}


def find_used_inodes() -> set[int]:
    """Return the inodes of the semaphores that processes use."""
    used = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # the process has ended
            lines = maps.read_text().splitlines()
            used |= {int(line.split()[4]) for line in lines if "/sem." in line}
    return used
