"""What a number depends on: machine, versions, commit. Probes never raise; what cannot be known is None.

No host name, no user, no path, and of the environment's variables only those named here: a record is
made to be published.
"""

import importlib.util
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

# Settings that change how bytes move. Values of anything else, tokens among them, stay out.
ALLOWED_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME", "NCCL_DEBUG", "NCCL_HOSTID", "NCCL_IB_DISABLE", "NCCL_MAX_CTAS",
    "NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS", "OMP_WAIT_POLICY",
    "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
    "RAY_CGRAPH_overlap_gpu_communication", "THP_MEM_ALLOC_ENABLE", "UCX_NET_DEVICES", "UCX_TLS",
)  # fmt: skip
DISTRIBUTIONS = ("ray", "torch", "numpy", "cupy-cuda12x", "cupy-cuda13x", "nixl")
# Records that differ in any of these are of unlike machines.
MACHINE_KEYS = ("cpu_model", "logical_cpus", "memory_gib", "gpus", "gpu_driver", "cuda", "nccl", "python", "versions")


def _cpu_model() -> str | None:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.split(":", 1)[1].strip()
    return platform.processor() or None


def _cache_bytes() -> int:
    """Of the first core's largest cache."""
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max(int(size.removesuffix("K")) * 1024 for size in sizes)


def _versions() -> dict[str, str]:
    found = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _run(*command: str) -> str:
    here = Path(__file__).parent
    return subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


def _gpus() -> list[str]:
    torch = sys.modules.get("torch")  # where it is not imported yet, it is not for this
    if torch is None:
        return _run("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _nccl() -> str | None:
    torch = sys.modules.get("torch")
    return ".".join(map(str, torch.cuda.nccl.version())) if torch and torch.cuda.is_available() else None


def cuda_version() -> str | None:
    """The CUDA that the installed torch is built for, as its version.py says; None for CPUs."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = Path(spec.origin).with_name("version.py").read_text()
    found = re.search(r"^cuda\b[^=]*= '([\d.]+)'", text, re.MULTILINE)
    return found[1] if found else None


PROBES: dict[str, Callable[[], Any]] = {
    "cpu_model": _cpu_model,
    "logical_cpus": lambda: len(os.sched_getaffinity(0)),
    "cache_bytes": _cache_bytes,
    "memory_gib": lambda: round(psutil.virtual_memory().total / 2**30),
    "shared_memory_bytes": lambda: psutil.disk_usage("/dev/shm").total,
    "transparent_hugepages": lambda: Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip(),
    "load_average": lambda: os.getloadavg()[0],
    "kernel": platform.release,
    "python": platform.python_version,
    "versions": _versions,
    "gpus": _gpus,
    "gpu_driver": lambda: _run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split("\n")[0],
    "cuda": cuda_version,
    "nccl": _nccl,
    "clock_resolution_seconds": lambda: time.get_clock_info("perf_counter").resolution,
    "git_commit": lambda: _run("git", "rev-parse", "HEAD"),
    "git_dirty": lambda: bool(_run("git", "status", "--porcelain", "--untracked-files=no")),
    "variables": lambda: {name: os.environ[name] for name in ALLOWED_VARIABLES if name in os.environ},
}


def describe_environment() -> dict[str, Any]:
    """The value of every probe, None where one failed."""
    found: dict[str, Any] = {}
    for name, probe in PROBES.items():
        try:
            found[name] = probe()
        except Exception:  # whatever a probe meets on a strange machine, the run goes on
            found[name] = None
    return found


def machine_line(environment: dict[str, Any]) -> str:
    """Machine and versions in one line, for captions and tables."""
    gpus = environment.get("gpus") or []
    versions = environment.get("versions") or {}
    parts = [
        f"{environment.get('logical_cpus')} x {environment.get('cpu_model')}",
        f"{environment.get('memory_gib')} GiB",
        f"{len(gpus)} x {gpus[0]}" if gpus else "no GPU",
        f"Python {environment.get('python')}",
        *(f"{name} {version}" for name, version in versions.items() if gpus or not name.startswith("cupy")),
    ]
    return ", ".join(parts)
