"""Which way NCCL's bytes really take, from NCCL's own log, and several of its ranks on one GPU."""

import os
import re
from pathlib import Path


def configure(folder: Path, rank: int, one_gpu: bool) -> None:
    """Let NCCL write into the folder how it connects its ranks; before this process's first communicator."""
    import torch

    os.environ["NCCL_DEBUG"] = "INFO"
    os.environ["NCCL_DEBUG_FILE"] = f"{folder}/nccl.%h.%p.log"  # NCCL puts host and process in
    if one_gpu:
        os.environ.update(several_ranks_on_one_gpu(torch.cuda.nccl.version(), rank))


def several_ranks_on_one_gpu(version: tuple[int, ...], rank: int) -> dict[str, str]:
    """Settings for one of several ranks on one GPU.

    NCCL refuses two ranks on one GPU ("Duplicate GPU detected"). From 2.30 it has a switch; before, a
    host name of its own for every rank gets past the check, but then the bytes travel over sockets, and
    the log says so.
    """
    if version >= (2, 30):
        return {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4", "NCCL_NVLS_ENABLE": "0"}
    return {"NCCL_HOSTID": f"rank-{rank}", "NCCL_SOCKET_IFNAME": "lo"}


def read_log(folder: Path) -> list[str]:
    """The ways that the logs in a folder name, as in "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"; sorted."""
    text = "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob("nccl.*.log")))
    return sorted(set(re.findall(r" via ([A-Z][\w/]*)", text)))
