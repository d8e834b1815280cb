# SPDX-License-Identifier: Apache-2.0
"""What runs may leave behind: processes, shared memory, semaphores, and frozen objects in this process."""

import gc
import os
import re
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from dataflow.workers import cleanup

LEAVE_SECONDS = 10  # other tests that run at the same time may remove what they have made
# The processes of the shared Ray cluster, which keeps idle workers.
CLUSTER: list[psutil.Process] = []


def pytest_configure():
    """Make this process inherit every process that a run leaves behind, and make its runs wait only for its own."""
    cleanup.become_subreaper()
    # Other processes run tests too, without waiting.
    os.environ["DATA_FLOW_LOCK"] = f"/proc/{os.getpid()}"


@pytest.fixture(autouse=True, scope="module")
def collect_frozen_objects():
    """Free what the actors of a module's tests have left in this process, such as mapped files.

    An actor freezes all objects after its first iteration, so that Python does not collect them while the clock runs.
    """
    yield
    gc.unfreeze()
    gc.collect()


def descendants() -> set[psutil.Process]:
    """Return the living descendants of this process, without the shared cluster's."""
    living, waiting = set(), psutil.Process().children()
    while waiting:
        process = waiting.pop()
        with suppress(psutil.Error):
            if process not in CLUSTER and process.status() != psutil.STATUS_ZOMBIE:
                living.add(process)
                waiting += process.children()
    return living


def shared_memory_files(temporary: Path) -> set[Path]:
    """Return the files in /dev/shm without those of living processes, and of runs with another temporary folder.

    Their names have the id of the process, or begin with the name of the run's folder.
    """
    runs = (
        *Path("/tmp").glob(f"{cleanup.PREFIX}*"),
        *Path("/tmp").glob(f"t-*/tmp/{cleanup.PREFIX}*"),
    )
    of_others = tuple(run.name for run in runs if run.parent != temporary)
    own = {process.pid for process in psutil.Process().children(recursive=True)} | {os.getpid()}
    left = set()
    for path in cleanup.SHARED_MEMORY.iterdir():
        name = path.name.removeprefix("sem.")
        if name.startswith(of_others):
            continue
        process = find_process_id(name)
        if process is None or process in own or not psutil.pid_exists(process):
            left.add(path)
    return left


def find_process_id(name: str) -> int | None:
    """Return the id in the name of a file in shared memory; None if it has none, or the name of a run's folder."""
    if name.startswith(cleanup.PREFIX):
        return None
    number = re.search(r"(?<!\d)\d{1,8}(?!\d)", name)  # longer ones are times
    return int(number[0]) if number else None
