# SPDX-License-Identifier: Apache-2.0
"""Find GPUs and share them among actors, for scripts and suite alike. Nothing here imports torch."""

import importlib.util
import math
import os
import re
import subprocess
from functools import cache, partial
from itertools import takewhile
from pathlib import Path

QUERY_SECONDS = 10  # for nvidia-smi, which can hang if a driver is broken


def count_gpus() -> int:
    """Return the GPUs that torch can use in this process; 0 if torch is built for CPUs."""
    return count_visible_gpus() if cuda_version() else 0


def gpus_in_words(count: int) -> str:
    """Return a number of GPUs in words: 1 GPU, or 3 GPUs."""
    return f"{count} {'GPU' if count == 1 else 'GPUs'}"


def default_device(gpus: int) -> str:
    """Return where tensors lie if no --device is given: on GPUs, if there are any."""
    return "cuda" if gpus else "cpu"


def share_of_gpu(actors: int, gpus: int) -> float:
    """Return the GPUs of each actor: 1, or the largest equal fraction with which all actors fit.

    There is at least one GPU. Ray never splits an actor over several GPUs, and counts in ten-thousandths of a GPU.
    """
    actors_per_gpu = math.ceil(actors / gpus)
    if actors_per_gpu == 1:
        return 1
    return math.floor(10_000 / actors_per_gpu) / 10_000


def gpu_of_actor(position: int, gpus: int) -> str:
    """Return the torch device of an actor as a process names it that sees every GPU: in turn, from the first one on."""
    return f"cuda:{position % gpus}"


def cuda_version() -> str | None:
    """Return the CUDA version of the installed torch from its version.py; None for a CPU build."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    version_file = Path(spec.origin).with_name("version.py").read_text()
    match = re.search(r"^cuda\b[^=]*= '([\d.]+)'", version_file, re.MULTILINE)
    return match[1] if match else None


def count_visible_gpus() -> int:
    """Return the GPUs of this machine that CUDA_VISIBLE_DEVICES lets a process use."""
    devices = len([*Path("/dev").glob("nvidia[0-9]*")])
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return devices
    entries = [entry.strip() for entry in visible.split(",")]
    valid = [*takewhile(partial(is_visible_gpu, devices=devices, first=entries[0]), entries)]
    if len(set(valid)) < len(valid):
        return 0  # CUDA finds none if an entry is there twice
    return min(devices, len(valid))


def is_visible_gpu(entry: str, devices: int, first: str) -> bool:
    """Return whether CUDA uses this entry of CUDA_VISIBLE_DEVICES. It passes over all entries after a wrong one.

    Entries are indices or UUIDs of GPUs, as the first one is. A process sees only one part of a GPU ("MIG-...").
    Sources: NVIDIA's CUDA C++ Programming Guide (CUDA Environment Variables) and Multi-Instance GPU User Guide.
    """
    if first.startswith("MIG-"):
        return entry == first
    if first.startswith("GPU-"):
        return entry.startswith("GPU-")
    return entry.isdecimal() and int(entry) < devices


def name_gpus() -> list[str]:
    """Return the names of this machine's GPUs, such as "NVIDIA H100 80GB HBM3"; none without a GPU.

    Some containers hide /proc/driver/nvidia. There, nvidia-smi knows the names.
    """
    names = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        models = re.findall(r"Model:(.+)", path.read_text())
        names += [model.strip() for model in models]
    return names or query_gpus("name")


def driver_version() -> str | None:
    """Return the version of NVIDIA's driver; None without one."""
    path = Path("/sys/module/nvidia/version")
    if path.exists():
        return path.read_text().strip()
    versions = query_gpus("driver_version")
    return versions[0] if versions else None


def query_gpus(field: str) -> list[str]:
    """Return what nvidia-smi says of each GPU of this machine; nothing without a GPU, or if it cannot be asked."""
    has_gpus = any(Path("/dev").glob("nvidia[0-9]*"))
    return ask_nvidia_smi(field) if has_gpus else []


@cache
def ask_nvidia_smi(field: str) -> list[str]:
    """Return a line per GPU; [] if nvidia-smi is missing, fails or hangs. It can take seconds, so it is asked once."""
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=QUERY_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
