"""Read the flags of the two scripts. A wrong one is rejected at once, because neither Ray nor torch is imported."""

import argparse
import importlib.util
import os
import secrets
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from common.sizes import MODELS, check_memory, message_bytes

RESULTS = Path(__file__).resolve().parents[1] / "results"
SCRIPTS = {
    "store": "simulate_chat_learn_data_flow.py",
    "graph": "ray_cg_simulate_chat_learn_data_flow.py",
}
TRANSPORTS = {"store": ("driver-queue", "ref-queue", "refs"), "graph": ("shm", "nccl", "pickle")}
PRIVATE_CLUSTER = {  # variables that Ray reads when it is imported, and that its processes inherit
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # listen on 127.0.0.1 only
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # otherwise, Ray writes a token into the home folder
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "0",  # readers get copies, and not views of the object store
    "RAY_enable_worker_prestart": "0",
    "RAY_worker_niceness": "0",  # Ray's default is 15
    "no_proxy": "127.0.0.1,localhost",  # gRPC would send Ray's messages to a proxy
}


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message.removeprefix('argument ')} (--help lists the flags)\n")


def require_packages(*names: str) -> None:
    """End this process with one line if a package is not installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise SystemExit(
                f"error: {name} is not installed: run pip install -r requirements.txt, or make demo"
            )


def parse_flags(runtime: str, description: str | None) -> argparse.Namespace:
    """Return the flags of the script of this runtime, or end this process with one line. Prepare Ray's environment."""
    require_packages("ray", "torch", "numpy", "msgspec", "psutil", "tqdm", "xxhash")
    parser = OneLineParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
        help="of the models' tensors (default: cuda with a GPU per model)",
    )
    add(
        "--address",
        help="ip:port of a Ray cluster to join (default: start a private one on 127.0.0.1)",
    )
    add("--output", type=Path, help="file of the record (default: a new one in results/)")
    flags = parser.parse_args(namespace=argparse.Namespace(runtime=runtime))
    try:
        complete(flags)
    except ValueError as error:
        parser.error(str(error))
    if not flags.address:
        os.environ |= PRIVATE_CLUSTER
    elif Path("~/.ray/auth_token").expanduser().exists():
        os.environ.setdefault(
            "RAY_AUTH_MODE", "token"
        )  # as clusters that were started with `ray start`
    return flags


def complete(flags: argparse.Namespace) -> None:
    """Set the flags that were not given, and `sizes`, the bytes of each message. Raise ValueError for a wrong flag."""
    for name, lowest in (
        ("iterations", 1),
        ("warmup", 0),
        ("batch_size", 1),
        ("prompt_seq_len", 1),
    ):
        if getattr(flags, name) < lowest:
            raise ValueError(
                f"--{name.replace('_', '-')} {getattr(flags, name)}: give {lowest} or more"
            )
    gpus = (
        len(MODELS) if flags.address and flags.device == "cuda" else count_gpus()
    )  # models may be on other machines
    flags.device = flags.device or ("cuda" if gpus >= len(MODELS) else "cpu")
    can_use_nccl = flags.device == "cuda" and gpus >= len(MODELS)
    if flags.transport is None:
        flags.transport = (
            "nccl" if can_use_nccl and flags.runtime == "graph" else TRANSPORTS[flags.runtime][0]
        )
    if flags.transport not in TRANSPORTS[flags.runtime]:
        scripts = [
            SCRIPTS[runtime] for runtime in SCRIPTS if flags.transport in TRANSPORTS[runtime]
        ]
        advice = (
            f"belongs to {scripts[0]}"
            if scripts
            else f"is unknown: use {', '.join(TRANSPORTS[flags.runtime])}"
        )
        raise ValueError(f"--transport {flags.transport} {advice}")
    if flags.transport == "nccl" and not can_use_nccl:
        raise ValueError(
            f"--transport nccl needs a GPU per model, and found {gpus} of {len(MODELS)}: use shm"
        )
    if flags.device == "cuda" and not gpus:
        raise ValueError("--device cuda: no GPU found. Use --device cpu")
    flags.gpus_per_model = min(1, gpus / len(MODELS)) if flags.device == "cuda" else 0
    flags.sizes = message_bytes(flags.batch_size, flags.prompt_seq_len)
    check_memory(flags.sizes, flags.batch_size)
    flags.output = (
        flags.output
        or RESULTS / f"{flags.runtime}-{flags.transport}-{datetime.now(UTC):%FT%H%M%S.%f}.json"
    )
    try:
        if (
            flags.address and flags.address != "auto"
        ):  # if nothing listens there, Ray would wait for minutes
            socket.create_connection(
                flags.address.rpartition(":")[::2], timeout=3
            ).close()  # host and port
        flags.output.parent.mkdir(parents=True, exist_ok=True)
        flags.output.open("x").close()
    except OSError as error:
        name = f"--output {flags.output}" if error.filename else f"--address {flags.address}"
        raise ValueError(f"{name}: {error.strerror or error}: give another one") from None


def count_gpus() -> int:
    """Return the GPUs that this process may use, without importing torch."""
    devices, visible = (
        len([*Path("/dev").glob("nvidia[0-9]*")]),
        os.environ.get("CUDA_VISIBLE_DEVICES"),
    )
    return (
        devices
        if visible is None
        else min(devices, sum(bool(index.strip()) for index in visible.split(",")))
    )
