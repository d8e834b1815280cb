"""The flags that every script has, and everything that can be refused before Ray starts."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from common.flow import flow as flows
from common.flow.demo_sizes import Sizes
from common.flow.flow import FLOWS, MICROBENCHMARKS, Flow

RESULTS = Path(__file__).resolve().parents[2] / "results"
SIZES = (
    ("batch_size", 1, "prompts a message"),
    ("prompt_seq_len", 1, "tokens a prompt"),
    ("max_new_tokens", 0, "tokens a response"),
    ("num_samples", 1, "responses a prompt"),
)
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
LARGEST_ROLES = 64  # each is a process


MINIMUM_STORE_BYTES = 75 * 2**20  # Ray refuses less


class UsageError(Exception):
    """A request that cannot be carried out here; the message is one line and says what to do."""


class Waived(UsageError):
    """A need that this machine does not meet: recorded as a waived row."""


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (--help lists the flags)")


def _at_least(smallest: int, largest: int = 10**15):
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < smallest:
            raise argparse.ArgumentTypeError(f"{value} is too small: give {smallest} or more")
        if value > largest:
            raise argparse.ArgumentTypeError(f"a count this large cannot be meant: give {largest} or less")
        return value

    return parse


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is out of range: give more than 0 and at most 86400 seconds")
    return value


def parse_arguments(
    description: str, transports: Sequence[str], default: str | None, argv: Sequence[str] | None = None
) -> argparse.Namespace:
    """The flags of a script; `transports` are the values of --transport, `default` None for automatic.

    Raises:
        UsageError: a flag is unknown or its value out of range.
    """
    parser = _OneLineParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    names = [*FLOWS, *MICROBENCHMARKS]
    add("--flow", choices=names, default="online-dpo", help="who sends what to whom (default: %(default)s)")
    add("--transport", choices=transports, default=default, help=f"how the bytes travel (default: {default or 'auto'})")
    add("--zero-copy", action="store_true", help="object store: readers map tensors instead of copying them")
    add("--copy-out", action="store_true", help="mapped transports: readers copy what they see into their own memory")
    add("--huge-pages", action="store_true", help="torch takes its memory in pages of 2 MiB (THP_MEM_ALLOC_ENABLE=1)")
    add("--reuse-buffers", action="store_true", help="graph, shm: readers copy into memory that they used before")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where the tensors live (default: auto)")
    for flag, smallest, what in SIZES:
        default_size = getattr(Sizes, flag)
        add("--" + flag.replace("_", "-"), type=_at_least(smallest), help=f"{what} (default: {default_size})")
    add("--payload-bytes", type=_at_least(1), help="microbenchmark flows: each message (default: 1024)")
    add("--roles", type=_at_least(1, LARGEST_ROLES), help="microbenchmark flows: how many actors (default: 1, 4 or 4)")
    add("--iterations", type=_at_least(1), default=100, help="timed trips (default: %(default)s)")
    add("--episode", type=_at_least(1), default=1, help="trips in a row, without a check of every byte between them; "
        "the last one's are checked, of the others the stamps (default: %(default)s)")  # fmt: skip
    add("--warmup", type=_at_least(0), default=3, help="untimed trips after the first one (default: %(default)s)")
    add("--timeout", type=_seconds, default=120.0, help="seconds until a trip is given up (default: %(default)s)")
    add("--threads", type=_at_least(1), default=1, help="torch threads a role (default: %(default)s)")
    add("--address", help="an existing Ray cluster, as ip:port (default: a private one on this machine)")
    add("--placement", choices=("pack", "spread"), help="roles on the driver's node, or turn by turn on two (a private "
        "cluster gets a second raylet on this machine) or more (default: pack, with --address spread)")  # fmt: skip
    add("--object-store-bytes", type=_at_least(MINIMUM_STORE_BYTES), help="default: Ray's, 30%% of free memory")
    add("--trace", type=Path, metavar="FILE", help="write where the time goes, as a Chrome trace (costs time itself)")
    add("--output", type=Path, metavar="FILE", help="the record (default: a fresh file in results/)")
    arguments = parser.parse_args(argv)
    for flag, _, _ in SIZES if arguments.flow in FLOWS else ():
        if getattr(arguments, flag) is None:
            setattr(arguments, flag, getattr(Sizes, flag))
    cores = len(os.sched_getaffinity(0))
    if arguments.threads > cores:
        parser.error(f"argument --threads: {arguments.threads} threads on {cores} cores: give {cores} or fewer")
    if arguments.address and arguments.object_store_bytes:
        parser.error("argument --object-store-bytes: the store of --address has its size already: leave it out")
    if arguments.placement is None:
        arguments.placement = "spread" if arguments.address else "pack"
    if arguments.trace and arguments.placement == "spread":
        parser.error("argument --trace: it needs one clock: leave --placement spread out")
    if arguments.huge_pages and "[never]" in _huge_pages():
        parser.error("argument --huge-pages: this machine has them switched off: write madvise into " + str(HUGE_PAGES))
    if arguments.trace and arguments.trace == arguments.output:
        parser.error("argument --trace: it is the file of --output: give another name")
    if arguments.trace and arguments.address:
        parser.error("argument --trace: the clocks of several machines do not agree: leave --address out")
    return arguments


def _huge_pages() -> str:
    try:
        return HUGE_PAGES.read_text()
    except OSError:
        return "[never]"


def build_flow(arguments: argparse.Namespace) -> Flow:
    """The flow of --flow at the sizes asked for.

    Raises:
        UsageError: the sizes do not make a flow.
    """
    try:
        return flows.build_flow(vars(arguments))
    except ValueError as error:
        raise UsageError(str(error)) from None
