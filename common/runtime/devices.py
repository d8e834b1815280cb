"""Which device the tensors live on, and what a GPU needs. The smallest part that depends on CUDA."""

import importlib.util
import math
import time
from importlib import metadata

from common.run.options import UsageError, Waived


def resolve_device(asked: str) -> tuple[str, int]:
    """The device's type, "cpu" or "cuda", and the number of GPUs that may be used.

    Raises:
        UsageError: --device cuda without a GPU that torch can use.
    """
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked == "cuda" and not gpus:
        raise UsageError("--device cuda, but torch sees no GPU: use --device cpu, or install a CUDA build of torch")
    return ("cuda", gpus) if gpus and asked != "cpu" else ("cpu", 0)


def gpus_per_role(gpus: int, roles: int) -> float:
    """The `num_gpus` of each role: 1 where there are enough, otherwise an equal fraction that fits.

    Ray never splits a role over GPUs, so with 2 GPUs and 3 roles each takes a half, not two thirds.
    """
    if gpus == 0:
        return 0
    share = math.ceil(roles / gpus)
    return 1 if share == 1 else math.floor(10_000 / share) / 10_000  # Ray counts in ten-thousandths


def need_gpus(transport: str, gpus: int, needed: int) -> None:
    """Refuse a transport that needs more GPUs than there are, with Waived."""
    if gpus < needed:
        raise Waived(f"{transport} needs {needed} GPU{'s' * (needed > 1)} and found {gpus}: use another --transport")


def need_nixl(cuda: str | None) -> None:
    """Refuse NIXL where it is not installed, with Waived; `cuda` is torch's CUDA version."""
    wheel = f"nixl-cu{(cuda or '12').split('.')[0]}"
    if any(importlib.util.find_spec(name) is None for name in ("nixl", wheel.replace("-", "_"))):
        raise Waived(f"nixl is not installed: pip install --no-deps nixl==1.5.1 {wheel}==1.5.1")


def need_nccl(gpus: int, roles: int) -> None:
    """Refuse NCCL where it cannot run.

    Raises:
        Waived: a role would be without a GPU of its own, or cupy (which Ray's NCCL goes through)
            is missing or made for another CUDA than torch.
    """
    need_gpus("nccl", gpus, roles)
    import torch

    wanted = f"cupy-cuda{(torch.version.cuda or '').split('.')[0]}x"
    try:
        metadata.version(wanted)
    except metadata.PackageNotFoundError:
        raise Waived(
            f"nccl needs {wanted} to match torch's CUDA {torch.version.cuda}: "
            f"pip uninstall -y cupy-cuda12x cupy-cuda13x && pip install {wanted}"
        ) from None


def measure_ceiling(edges: list[tuple[int, str, str]], threads: list[int], repeats: int = 10) -> list[list[float]]:
    """Seconds for one warm copy of every edge, one after the other.

    This is what a trip costs if each reader gets bytes of its own and nothing else happens.

    Args:
        edges: of each edge the bytes, the device that they leave and the one that they reach.
        threads: how many CPU threads share each copy; each number is measured for itself.
        repeats: passes that are timed, after two that are not.

    Returns:
        For each number of threads, one sample per pass.
    """
    import torch

    pairs = [
        (
            torch.ones(count, dtype=torch.uint8, device=source),
            torch.zeros(count, dtype=torch.uint8, device=destination),
        )
        for count, source, destination in edges
    ]
    usual_threads = torch.get_num_threads()
    results = []
    for count in threads:
        torch.set_num_threads(count)
        samples = []
        for _ in range(2 + repeats):
            start = time.perf_counter()
            for source_tensor, destination_tensor in pairs:
                destination_tensor.copy_(source_tensor)
            synchronise()
            samples.append(time.perf_counter() - start)
        results.append(samples[2:])
    torch.set_num_threads(usual_threads)
    return results


def synchronise() -> None:
    """Wait for every GPU that this process has used; nothing on a CPU."""
    import torch

    if torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            torch.cuda.synchronize(index)


def role_devices(device: str, gpus: int, roles: list[str]) -> dict[str, str]:
    """Where each role's tensors live, as the driver numbers the GPUs; used for the ceiling alone."""
    if device == "cpu":
        return dict.fromkeys(roles, "cpu")
    return {role: f"cuda:{index % gpus}" for index, role in enumerate(roles)}
