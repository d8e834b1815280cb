"""GPUs as far as they can be known without torch, and what needs torch about them."""

import importlib.util
import os
from importlib import metadata
from pathlib import Path

from common.errors import UsageError, Waived
from common.record.environment import cuda_version


def count() -> int:
    """GPUs that a process may use, without importing torch; 0 where torch is built for CPUs."""
    if cuda_version() is None:
        return 0
    devices = len(list(Path("/dev").glob("nvidia[0-9]*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return devices if visible is None else min(devices, len([index for index in visible.split(",") if index.strip()]))


def resolve(asked: str, host_only: bool, transport: str) -> tuple[str, int]:
    """The device's type, "cpu" or "cuda", and the number of GPUs that may be used.

    Raises:
        UsageError: --device cuda without a GPU that torch can use, or for what moves host memory.
    """
    found = count() if asked != "cpu" else 0
    if asked == "cuda" and host_only and found:
        raise UsageError(f"{transport} moves host memory: give --device cpu, or another --transport")
    if asked == "cuda" and not found:
        raise UsageError("--device cuda, but torch sees no GPU: use --device cpu, or install a CUDA build of torch")
    return ("cuda", found) if found and not host_only else ("cpu", 0)


def need_modules(modules: tuple[str, ...]) -> None:
    """Refuse what is not installed, with Waived: NIXL, and the cupy that Ray's NCCL goes through."""
    major = (cuda_version() or "12").split(".")[0]
    if "cupy" in modules:
        wanted = f"cupy-cuda{major}x"
        try:
            metadata.version(wanted)
        except metadata.PackageNotFoundError:
            raise Waived(
                f"nccl needs {wanted} to match torch's CUDA {cuda_version()}: "
                f"pip uninstall -y cupy-cuda12x cupy-cuda13x && pip install {wanted}"
            ) from None
    if "nixl" in modules:
        wheel = f"nixl-cu{major}"
        if any(importlib.util.find_spec(name) is None for name in ("nixl", wheel.replace("-", "_"))):
            raise Waived(f"nixl is not installed: pip install --no-deps nixl==1.5.1 {wheel}==1.5.1")


def refuse_expandable_segments() -> None:
    """CUDA IPC cannot export memory of torch's expandable segments.

    Raises:
        UsageError: the environment asks for them.
    """
    for variable in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if "expandable_segments:True" in os.environ.get(variable, ""):
            raise UsageError(f"CUDA IPC cannot share expandable segments: take expandable_segments out of {variable}")


def synchronise() -> None:
    """Wait for every GPU that this process has used; nothing on a CPU."""
    import torch

    if torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            torch.cuda.synchronize(index)
