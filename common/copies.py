# SPDX-License-Identifier: Apache-2.0
"""Time copies of the messages of an iteration, with which the times of transports are compared."""

import time
from collections.abc import Mapping, Sequence
from itertools import chain

import torch

from common import SuiteError
from common.gpus import gpu_of_actor
from common.sizes import EDGES, MODELS

PASSES = 4
Pair = Sequence[torch.Tensor]  # source and target of a copy


def measure_memcpy(
    sizes: Mapping[str, int], device: str = "cpu", gpus: int = 0, passes: int = PASSES
) -> list[float]:
    """Return the seconds of each pass: one copy per edge, one after the other, into memory that was used before.

    On GPUs, a copy goes from the GPU of the sender to that of the reader. They can be the same one. `gpus`: how many
    the models use. Raise SuiteError if torch finds no GPU for the device cuda.
    """
    pairs = []
    for edge in EDGES:
        source, target = (device_of(name, device, gpus) for name in edge)
        pairs.append(make_pair(sizes[edge[0]], source, target))
    return time_copies(pairs, passes)


def device_of(name: str, device: str, gpus: int) -> str:
    """Return the torch device of the tensors of the driver or a model, as a process names it that sees every GPU.

    Models get GPUs in turn here. If several share one, Ray may place them on other ones.
    Raise SuiteError if torch finds no GPU, for example with a driver that is too old.
    """
    if device == "cpu":
        return device
    local_gpus = torch.cuda.device_count()
    if not local_gpus:
        raise SuiteError("torch finds no GPU: see nvidia-smi, or use --device cpu")
    position = MODELS.index(name) if name in MODELS else 0
    return gpu_of_actor(position, min(gpus, local_gpus))


def measure_host_copies(
    sizes: Mapping[str, int], device: str, gpus: int, passes: int = PASSES
) -> dict[str, list[float]]:
    """Return the seconds of each pass of copies between GPUs and host memory; nothing without GPUs."""
    if device == "cpu":
        return {}
    copies = [(sizes[sender], device_of(sender, device, gpus)) for sender, _ in EDGES]
    return time_host_copies(copies, passes)


def time_host_copies(
    copies: Sequence[tuple[int, str]], passes: int = PASSES
) -> dict[str, list[float]]:
    """Return the seconds of each pass: every message once to the host, or once from it. copies: bytes and GPU of each.

    The keys are "to host, pinned", "from host, pinned", the same two with "pageable", and "to host, new".

    Pinned memory is locked, so a GPU reads and writes it directly. Memory of malloc, of the object store and of
    channels is pageable: NVIDIA's driver copies it through a pinned buffer. New memory is pageable too, and its pages
    come one by one during the copy, as with `tensor.cpu()`.
    """
    largest = max(size for size, _ in copies)
    seconds = {}
    for kind, is_pinned in (("pinned", True), ("pageable", False)):
        host = torch.ones(largest, dtype=torch.uint8, pin_memory=is_pinned)
        to_host = []
        for size, gpu in copies:
            on_gpu = torch.ones(size, dtype=torch.uint8, device=gpu)
            to_host.append((on_gpu, host[:size]))
        from_host = [(target, source) for source, target in to_host]
        seconds[f"to host, {kind}"] = time_copies(to_host, passes)
        seconds[f"from host, {kind}"] = time_copies(from_host, passes)
    sources = [source for source, _ in to_host]
    seconds["to host, new"] = [new_copy_seconds(sources) for _ in range(passes)]
    return seconds


def new_copy_seconds(sources: Sequence[torch.Tensor]) -> float:
    """Return the seconds in which each tensor of a GPU is copied into new host memory, which is freed at once."""
    start = time.perf_counter()
    for source in sources:
        source.cpu()  # waits for the copy
    return round(time.perf_counter() - start, 9)


def time_copies(pairs: Sequence[Pair], passes: int) -> list[float]:
    """Return the seconds of each pass over the pairs, after one that does not count."""
    copy_seconds(pairs)
    return [copy_seconds(pairs) for _ in range(passes)]


def make_pair(size: int, source: str = "cpu", target: str = "cpu") -> Pair:
    """Return tensors with this many bytes on two devices. They are written, so a copy causes no page faults."""
    return (
        torch.ones(size, dtype=torch.uint8, device=source),
        torch.ones(size, dtype=torch.uint8, device=target),
    )


def copy_seconds(pairs: Sequence[Pair]) -> float:
    """Return the seconds in which each source is copied to its target. On GPUs, this waits for the copies."""
    tensors = chain.from_iterable(pairs)
    gpus = {tensor.device for tensor in tensors if tensor.is_cuda}
    for gpu in gpus:
        torch.cuda.synchronize(gpu)
    start = time.perf_counter()
    for source, target in pairs:
        target.copy_(source)
    for gpu in gpus:
        torch.cuda.synchronize(gpu)
    return round(time.perf_counter() - start, 9)
