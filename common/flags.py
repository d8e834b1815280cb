# SPDX-License-Identifier: Apache-2.0
"""Read the flags of the two scripts. A wrong one is rejected at once, because neither Ray nor torch is imported."""

import argparse
import os
import platform
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from common import SuiteError
from common.gpus import count_gpus, default_device, share_of_gpu
from common.packages import require_packages
from common.ray_settings import COPIES, PRIVATE_CLUSTER, QUIET, TOKEN_MODE
from common.sizes import MODELS, check_memory, message_bytes
from common.suggestion import did_you_mean
from common.temporary import find_temporary_folder

RESULTS = Path(__file__).resolve().parents[1] / "results"
SCRIPTS = {
    "store": "simulate_chat_learn_data_flow.py",
    "graph": "ray_cg_simulate_chat_learn_data_flow.py",
}
LOWEST = {"iterations": 1, "warmup": 0, "batch_size": 1, "prompt_seq_len": 1}
TRANSPORTS = {
    "store": ("driver-queue", "ref-queue", "refs"),
    "graph": ("shm", "nccl", "cuda-ipc", "pickle"),
}
GPU_TRANSPORTS = ("nccl", "cuda-ipc")  # of the graph script


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, with the flag that an unknown one is similar to. No flag is shortened."""

    def __init__(self, description: str | None) -> None:
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(description=description, formatter_class=formatter, allow_abbrev=False)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        values, unknown = self.parse_known_args(args, namespace)
        if unknown:
            first = unknown[0]
            self.error(f"unknown flag {first}{did_you_mean(first, self._option_string_actions)}")
        return values

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message.removeprefix('argument ')} (--help lists the flags)\n")


def parse_flags(runtime: str, description: str | None) -> argparse.Namespace:
    """Return the flags of the script of this runtime, and set the variables that Ray reads when it is imported.

    End this process with one line if a package is missing, or if a flag is wrong or cannot be used here.
    """
    require_packages("ray", "torch", "numpy", "msgspec", "psutil", "tqdm", "xxhash")
    parser = make_parser(runtime, description)
    flags = parser.parse_args(namespace=argparse.Namespace(runtime=runtime))
    try:
        complete(flags)
    except (ValueError, SuiteError) as error:
        parser.error(str(error))
    os.environ |= COPIES | QUIET
    if not flags.address:
        os.environ |= PRIVATE_CLUSTER
    elif Path("~/.ray/auth_token").expanduser().exists():
        # As clusters that were started with `ray start`; a user may have chosen otherwise.
        for name, value in TOKEN_MODE.items():
            os.environ.setdefault(name, value)
    return flags


def make_parser(runtime: str, description: str | None) -> OneLineParser:
    """Return the parser of the script of this runtime. Whether values can be used is checked later, in `complete`."""
    parser = OneLineParser(description)
    add = parser.add_argument
    add("--transport", help=f"one of {', '.join(TRANSPORTS[runtime])}")
    add("--iterations", type=int, default=100, help="timed iterations (default: 100)")
    add(
        "--warmup",
        type=int,
        default=10,
        help="iterations before them, after the very first one (default: 10)",
    )
    add("--batch-size", type=int, default=1024, help="prompts per iteration (default: 1024)")
    add("--prompt-seq-len", type=int, default=4096, help="tokens per prompt (default: 4096)")
    add(
        "--device",
        choices=("cpu", "cuda"),
        help="of all tensors, those of the driver included (default: cuda if there is a GPU)",
    )
    add(
        "--address",
        help="ip:port of a Ray cluster to join (default: start a private one on 127.0.0.1)",
    )
    add("--output", type=Path, help="file of the record (default: a new one in results/)")
    return parser


def complete(flags: argparse.Namespace) -> None:
    """Set the flags that were not given, `sizes` (bytes of each message) and `gpus_per_model`.

    Test whether --address can be connected to, and create the file of --output. Raise ValueError for a wrong flag, or
    if memory or /dev/shm is too small. Raise SuiteError if no folder for temporary files can be written.
    """
    for name, lowest in LOWEST.items():
        value = getattr(flags, name)
        if value < lowest:
            raise ValueError(f"--{name.replace('_', '-')} {value}: give {lowest} or more")
    choose_gpus(flags)
    flags.sizes = message_bytes(flags.batch_size, flags.prompt_seq_len)
    check_memory(flags.sizes, flags.batch_size)
    find_temporary_folder()  # Ray needs it later
    if flags.address and flags.address != "auto":
        check_address(flags.address)
    if not flags.output:
        now = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        flags.output = RESULTS / f"{flags.runtime}-{flags.transport}-{now}.json"
    claim_output(flags.output)


def choose_gpus(flags: argparse.Namespace) -> None:
    """Set the device, the transport, the GPUs that the models use (`gpus`), and those of each model.

    Raise ValueError if there is no GPU for --device cuda, or if the transport cannot be used.
    """
    local_gpus = count_gpus()
    if flags.device == "cuda" and not local_gpus:
        # The driver's tensors need one, even if the models are elsewhere.
        other_flags = "--device cpu"
        if flags.runtime == "graph" and flags.transport in GPU_TRANSPORTS:
            other_flags += " --transport shm"
        raise ValueError(f"--device cuda: no GPU found. Use {other_flags}")
    usable_gpus = local_gpus
    if flags.device == "cuda" and flags.address:
        usable_gpus = max(local_gpus, len(MODELS))  # models may be on other machines
    flags.device = flags.device or default_device(local_gpus)
    choose_transport(flags, usable_gpus)
    flags.gpus = 0
    flags.gpus_per_model = 0
    if flags.device == "cuda":
        flags.gpus = 1 if flags.transport == "cuda-ipc" else usable_gpus
        flags.gpus_per_model = share_of_gpu(len(MODELS), flags.gpus)


def choose_transport(flags: argparse.Namespace, gpus: int) -> None:
    """Set the transport to the fastest possible one if none was given; raise ValueError if it cannot be used.

    It may be unknown or of the other script, or need a device, GPUs, a processor or a private cluster that is not here.
    gpus: those that the models may use. With --address, they are assumed and not counted.
    """
    known = TRANSPORTS[flags.runtime]
    is_on_gpu = flags.device == "cuda" and gpus > 0
    can_use_nccl = is_on_gpu and gpus >= len(MODELS)
    can_use_ipc = is_on_gpu and not flags.address and platform.machine() == "x86_64"
    if flags.transport is None:
        possible = {"nccl": can_use_nccl, "cuda-ipc": can_use_ipc, known[0]: True}
        flags.transport = next(name for name in possible if name in known and possible[name])
    if flags.transport not in known:
        advice = f"is unknown: use {', '.join(known)}"
        for runtime, script in SCRIPTS.items():
            if flags.transport in TRANSPORTS[runtime]:
                advice = f"belongs to {script}"
        raise ValueError(f"--transport {flags.transport} {advice}")
    if flags.transport in GPU_TRANSPORTS and flags.device == "cpu":
        raise ValueError(f"--transport {flags.transport} needs --device cuda: use shm")
    if flags.transport == "nccl" and not can_use_nccl:
        raise ValueError(
            f"--transport nccl needs a GPU per model, and found {gpus} of {len(MODELS)}: use shm"
        )
    if flags.transport == "cuda-ipc" and not can_use_ipc:
        raise ValueError(
            "--transport cuda-ipc needs a GPU of this machine, x86-64 and no --address: use shm"
        )


def check_address(address: str) -> None:
    """Raise ValueError if nothing listens there, because Ray would wait for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, port), timeout=3).close()
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"--address {address}: {reason}: give another one") from None


def claim_output(path: Path) -> None:
    """Create the file of the record; raise ValueError if it exists or cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("x").close()
    except OSError as error:
        raise ValueError(f"--output {path}: {error.strerror}: give another one") from None
