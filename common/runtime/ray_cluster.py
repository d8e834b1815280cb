"""A Ray cluster for one case, and its removal without a trace."""

import os
import re
import secrets
import shutil
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from common.flow.flow import Flow
from common.run.clock import TripTimeout, deadline
from common.run.options import UsageError
from common.runtime import needs as memory
from common.runtime.ray_actors import RayRoles

SHARED_MEMORY = Path("/dev/shm")


def configure(arguments: Namespace) -> None:
    """Set what Ray reads when it is imported or started. Call it before anything imports Ray."""
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_DEDUP_LOGS": "0",
        "RAY_CGRAPH_get_timeout": str(max(1, round(arguments.timeout))),
        "RAY_CGRAPH_submit_timeout": str(max(1, round(arguments.timeout))),
        # A read that is tried again after this long hangs on an NCCL edge whose sender was slow: Ray has
        # consumed the tensors by then. So no read is tried again.
        "RAY_CGRAPH_read_iteration_timeout_s": str(max(1, round(arguments.timeout))),
        "RAY_CGRAPH_teardown_timeout": "5",
        # Later than our own deadline: when it expires, Ray ends both actors, and the one that hangs is not named.
        "RAY_rdt_fetch_fail_timeout_milliseconds": str((max(1, round(arguments.timeout)) + 30) * 1000),
        "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": str(int(arguments.zero_copy)),
    }
    if not arguments.address:
        settings |= {
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # every listener on 127.0.0.1
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),  # of this run alone, so none is written to disk
            "RAY_worker_niceness": "0",  # Ray's own choice is 15
            "RAY_enable_worker_prestart": "0",
            "GLOO_SOCKET_IFNAME": "lo",
            "UCX_NET_DEVICES": "lo",  # NIXL's UCX listens on the machine's outside address otherwise
        }
    os.environ.update(settings)


def reserve(arguments: Namespace, flow: Flow) -> int:
    """Bytes of the private cluster's object store; UsageError where they, or the payloads, do not fit."""
    return memory.object_store_bytes(arguments, flow)


@contextmanager
def connect(arguments: Namespace, store_bytes: int, gpus: int) -> Iterator[RayRoles]:
    """A private cluster on this machine, or the one at --address, and its roles, none of them started yet.

    Everything that was started is removed.

    Workers inherit the settings of `configure`: through the environment in a private cluster, through
    the job's runtime environment in another.
    """
    import ray

    if arguments.address:
        variables = {name: value for name, value in os.environ.items() if name.startswith("RAY_CGRAPH_")}
        variables["RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"] = os.environ["RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"]
        root = str(Path(__file__).resolve().parents[2])
        job = {"working_dir": root, "excludes": [".git", ".venv", "img", "results"], "env_vars": variables}
        try:
            with deadline(60):
                ray.init(address=arguments.address, runtime_env=job, log_to_driver=False, logging_level="critical")
        except (OSError, ValueError, RuntimeError, TripTimeout, ray.exceptions.RayError) as error:
            what = str(error).partition("\n")[0][:150]
            raise UsageError(
                f"cannot join the cluster at {arguments.address} ({what}): is it running, and are its "
                "RAY_AUTH_MODE and RAY_AUTH_TOKEN set here?"
            ) from None
        try:
            yield RayRoles(gpus)
        finally:
            ray.shutdown()
        return

    # Ray puts Unix sockets below this folder, and their paths may have 107 characters at most.
    parent = tempfile.gettempdir() if len(tempfile.gettempdir()) < 24 else "/tmp"
    folder = tempfile.mkdtemp(prefix="ray-", dir=parent)
    pids = {os.getpid()}
    try:
        ray.init(
            address="local", include_dashboard=False, log_to_driver=False, logging_level="critical",
            num_gpus=gpus, object_store_memory=store_bytes, _temp_dir=folder,
        )  # fmt: skip
        if arguments.placement == "spread":
            _start_second_raylet(store_bytes, folder)
        yield RayRoles(gpus)
    finally:
        started = psutil.Process().children(recursive=True)
        pids |= {process.pid for process in started}
        ray.shutdown()
        _, alive = psutil.wait_procs(started, timeout=5)
        for process in alive:
            process.kill()
        psutil.wait_procs(alive, timeout=5)
        remove_semaphores(pids)
        shutil.rmtree(folder, ignore_errors=True)


def _start_second_raylet(store_bytes: int, folder: str) -> None:
    """A second node of the private cluster, on this machine; `connect` ends it with the others."""
    import ray
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    # As ray.cluster_utils.Cluster does; `ray start` joins no cluster that listens on loopback alone.
    Node(
        RayParams(
            gcs_address=ray.get_runtime_context().gcs_address, node_ip_address="127.0.0.1", num_cpus=1, num_gpus=0,
            object_store_memory=store_bytes, include_log_monitor=False, temp_dir=folder,
        ),
        head=False, shutdown_at_exit=False, spawn_reaper=False,
    )  # fmt: skip
    begin = time.monotonic()
    while len([node for node in ray.nodes() if node["Alive"]]) < 2:
        if time.monotonic() - begin > 60:
            raise UsageError("the second raylet of --placement spread did not start within 60 s: leave the flag out")
        time.sleep(0.1)


def remove_semaphores(pids: set[int]) -> None:
    """Unlink the named semaphores of channels that these processes made; Ray leaves two a channel."""
    for path in SHARED_MEMORY.glob("sem.*-*"):
        owner = re.match(r"sem\.(?:obj|hdr)(\d+)-", path.name)
        if owner and int(owner[1]) in pids:
            path.unlink(missing_ok=True)
