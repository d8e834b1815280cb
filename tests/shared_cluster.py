# SPDX-License-Identifier: Apache-2.0
"""One Ray cluster for all tests of a process, which saves the start of private ones."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from leftovers import CLUSTER
from script_runs import RUN_SECONDS

from dataflow.workers import cleanup


@pytest.fixture
def join_cluster(request):
    """join_cluster(runtime) -> flags that join the shared cluster, which saves the start of a private one.

    Groups of ray.util.collective (rdt) hang on an existing cluster.
    """
    return lambda runtime: (
        request.getfixturevalue("cluster") if runtime in ("store", "graph") else ()
    )


@pytest.fixture(scope="session")
def cluster():
    """Start one Ray cluster for all tests of this process; yield the flags with which a script joins it."""
    folder = Path(tempfile.mkdtemp(prefix="c-", dir="/tmp"))
    environment = os.environ | {
        "HOME": str(folder), "RAY_AUTH_MODE": "disabled", "RAY_enable_metrics_collection": "0",
        "RAY_enable_worker_prestart": "0", "RAY_worker_niceness": "0",
    }  # fmt: skip
    command = [
        Path(sys.executable).with_name("ray"), "start", "--head", "--node-ip-address", "127.0.0.1", "--port", "0",
        "--num-cpus", "4", "--include-dashboard=false", "--disable-usage-stats", "--object-store-memory", "600000000",
        "--temp-dir", folder / "ray",
    ]  # fmt: skip
    before = psutil.Process().children()
    subprocess.run(command, env=environment, timeout=RUN_SECONDS, check=True, capture_output=True)
    CLUSTER.extend(process for process in psutil.Process().children() if process not in before)
    yield ("--address", (folder / "ray" / "ray_current_cluster").read_text().strip())
    for process in CLUSTER:
        with suppress(psutil.Error):
            for child in [*process.children(recursive=True), process]:
                child.kill()
                # Of the channels of graphs.
                for path in cleanup.SHARED_MEMORY.glob(f"sem.???{child.pid}-*"):
                    path.unlink(missing_ok=True)
    CLUSTER.clear()
    shutil.rmtree(folder, ignore_errors=True)
