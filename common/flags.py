"""Read the flags of the two scripts. Wrong ones are rejected at once, because this imports neither Ray nor torch."""

import argparse
import importlib.util
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from common.sizes import MODELS, find_lack, message_bytes

RESULTS = Path(__file__).resolve().parents[1] / "results"
TRANSPORTS = {  # script -> its transports; the first one is the default without a GPU per model
    "simulate_chat_learn_data_flow.py": ("driver-queue", "ref-queue", "refs"),
    "ray_cg_simulate_chat_learn_data_flow.py": ("shm", "nccl", "pickle"),
}
RUNTIMES = dict(zip(TRANSPORTS, ("store", "graph"), strict=True))
TIMEOUT_SECONDS = "300"  # of an iteration


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, with exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message.removeprefix('argument ')} (--help lists the flags)\n")


def require_packages(*names: str) -> None:
    """End this process with one line if a package is not installed."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise SystemExit(f"error: {name} is not installed: run pip install -r requirements.txt, or make demo")


def parse_flags(script_file: str, description: str | None) -> argparse.Namespace:
    """Return the flags of a script, with `runtime` and the `sizes` of the messages; end this process if one is wrong.

    The environment variables that Ray reads when it is imported are set as well.
    """
    require_packages("ray", "torch", "numpy", "msgspec", "psutil", "tqdm", "xxhash")
    script = Path(script_file).name
    parser = OneLineParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--transport", help=f"one of {', '.join(TRANSPORTS[script])}")
    add("--iterations", type=positive, default=100, help="timed iterations (default: 100)")
    add("--warmup", type=int, help="untimed iterations after the first (default: until their time settles)")
    add("--batch-size", type=positive, default=1024, help="prompts per iteration (default: 1024)")
    add("--prompt-seq-len", type=positive, default=4096, help="tokens per prompt (default: 4096)")
    add("--device", choices=("cpu", "cuda"), help="where tensors are (default: cuda if each model can have a GPU)")
    add("--address", help="ip:port of a Ray cluster (default: start a private one on 127.0.0.1)")
    add("--output", type=Path, help="file of the record (default: a new one in results/)")
    flags = parser.parse_args()
    flags.runtime = RUNTIMES[script]
    if problem := _complete(flags, script):
        parser.error(problem)
    set_environment(flags)
    return flags


def positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


positive.__name__ = "number above 0"  # argparse names it in its error: invalid number above 0 value: '0'


def _complete(flags: argparse.Namespace, script: str) -> str | None:
    """Set what is not given; return what is wrong with the flags, or None."""
    gpus = count_gpus()
    device = flags.device or ("cuda" if gpus >= len(MODELS) or flags.transport == "nccl" else "cpu")
    default = "nccl" if flags.runtime == "graph" and gpus >= len(MODELS) and device == "cuda" else TRANSPORTS[script][0]
    flags.device, flags.transport = device, flags.transport or default
    for other, transports in TRANSPORTS.items():
        if flags.transport in transports and other != script:
            return f"--transport {flags.transport} belongs to {other}"
    if flags.transport not in TRANSPORTS[script]:
        return f"--transport {flags.transport} is unknown: use {', '.join(TRANSPORTS[script])}"
    if flags.transport == "nccl" and (flags.device == "cpu" or gpus < len(MODELS)) and not flags.address:
        return f"--transport nccl needs a GPU per model, and {gpus} of {len(MODELS)} were found: use --transport shm"
    if flags.device == "cuda" and not gpus and not flags.address:
        return "--device cuda: no GPU found. Use --device cpu."
    try:
        flags.sizes = message_bytes(flags.batch_size, flags.prompt_seq_len)
    except ValueError as error:
        return str(error)
    name = f"{flags.runtime}-{flags.transport}-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.json"
    flags.output = flags.output or RESULTS / name
    if flags.output.exists():
        return f"--output {flags.output} exists: give another name"
    return find_lack(flags.sizes, flags.batch_size)


def count_gpus() -> int:
    """Return the GPUs that this process may use, without importing torch."""
    devices = len(list(Path("/dev").glob("nvidia[0-9]*")))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return devices if visible is None else min(devices, sum(bool(index.strip()) for index in visible.split(",")))


def set_environment(flags: argparse.Namespace) -> None:
    """Set the variables that Ray reads when it is imported; the actors inherit them."""
    os.environ |= {
        # The channels of a compiled graph have one size. The argument of experimental_compile for it has no effect.
        "RAY_CGRAPH_buffer_size_bytes": str(max(flags.sizes.values()) + 2**20),
        "RAY_CGRAPH_get_timeout": TIMEOUT_SECONDS,
        "RAY_CGRAPH_submit_timeout": TIMEOUT_SECONDS,
        "RAY_CGRAPH_read_iteration_timeout_s": TIMEOUT_SECONDS,  # a read of NCCL that is repeated hangs
        "RAY_CGRAPH_teardown_timeout": "5",
    }
    if not flags.address:
        os.environ |= {
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray listens on 127.0.0.1 only
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),  # otherwise Ray writes a token to the home folder
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_enable_metrics_collection": "0",
            "RAY_enable_worker_prestart": "0",
            "RAY_worker_niceness": "0",  # Ray's default is 15
            "no_proxy": "127.0.0.1,localhost",  # gRPC would ask a proxy for them
        }
