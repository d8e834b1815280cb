"""The flags that every script has: each is one field, with its bounds, its help, and where it may be used."""

import argparse
import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from common.errors import UsageError
from common.flow.catalogue import FLOWS, sizes_of
from common.plan.faults import Fault
from common.record.rows import DEFAULTS, Row, transports

RESULTS = Path(__file__).resolve().parents[2] / "results"
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MINIMUM_STORE_BYTES = 75 * 2**20  # Ray refuses less
RAYS = "--zero-copy, --address, --placement and --object-store-bytes are Ray's: leave them out"


def flag(
    default: Any, help: str, kind: Any = None, *, row: bool = False, refuse: Callable[..., str | None] | None = None,
    **argparse_options: Any,
) -> Any:  # fmt: skip
    """A field of Options that is a flag.

    Args:
        kind: parses its text; None: a switch, or one of `choices`.
        row: given, it makes another row of a transport.
        refuse: (row, options) -> why it cannot be used there, in one line; asked only where it is given.
    """
    metadata = {"help": help, "kind": kind, "row": row, "refuse": refuse, "argparse": argparse_options}
    return dataclasses.field(default=default, metadata=metadata)


def at_least(smallest: int, largest: int = 10**15) -> Callable[[str], int]:
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


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 < value <= 86400:
        raise argparse.ArgumentTypeError(f"{text} is out of range: give more than 0 and at most 86400 seconds")
    return value


def size(help: str, smallest: int = 1, largest: int = 10**15) -> Any:
    """A field that is a size of some flows; each has its own default."""
    return flag(None, help, at_least(smallest, largest), size=True)


def _only_tensors_of_the_store(row: Row, _: Any) -> str | None:
    if row.runtime == "torch":
        return RAYS
    if row.runtime != "store":
        return "--zero-copy is the object store's: in the compiled graph give --transport zero-copy"
    return "--zero-copy maps tensors, not bytes: leave it out, or give --transport refs" * (row.transport == "bytes")


def _only_views(row: Row, options: "Options") -> str | None:
    if not (row.views or options.zero_copy):
        return f"--copy-out is for mapped transports: {row.transport} hands out copies already"
    return None


def _only_ray(row: Row, _: Any) -> str | None:
    return RAYS if row.runtime == "torch" else None


def _only_several_machines(row: Row, options: "Options") -> str | None:
    if row.needs.one_machine:
        return f"{row.transport} is one machine's memory: leave --address out"
    if options.object_store_bytes:
        return "--object-store-bytes: the store of --address has its size already: leave it out"
    return _only_ray(row, options)


def _depth(row: Row, options: "Options") -> str | None:
    if options.in_flight > (row.depth or options.in_flight):
        return f"--in-flight {options.in_flight}: {row.transport} holds {row.depth} trip under way: give {row.depth}"
    return None


def _one_clock(_: Row, options: "Options") -> str | None:
    if options.address or options.placement == "spread":
        return "--trace needs one clock: leave --address and --placement spread out"
    if options.in_flight > 1:
        return "--trace tells one trip's time apart: leave --in-flight out"
    return "--trace is the file of --output: give another name" * (options.trace == options.output)


def _switched_on(*_: Any) -> str | None:
    try:
        off = "[never]" in HUGE_PAGES.read_text()
    except OSError:
        off = True
    return f"--huge-pages: this machine has them switched off: write madvise into {HUGE_PAGES}" if off else None


def _cores(_: Row, options: "Options") -> str | None:
    cores = len(os.sched_getaffinity(0))
    if options.threads > cores:
        return f"--threads {options.threads}: there are {cores} cores: give {cores} or fewer"
    return None


@dataclass(frozen=True, kw_only=True)
class Options:
    """Everything that was asked."""

    # fmt: off
    flow: str = flag("online-dpo", "who sends what to whom (default: %(default)s)", choices=list(FLOWS))
    transport: str | None = flag(None, "how the bytes travel", choices=[])
    message: str = flag("fields", "how messages of several fields travel: each as it is, or in one flat buffer "
        "(default: %(default)s)", choices=["fields", "packed"])
    zero_copy: bool = flag(False, "object store: readers map tensors instead of copying them", row=True,
        refuse=_only_tensors_of_the_store)
    copy_out: bool = flag(False, "mapped transports: readers copy what they see into their own memory", row=True,
        refuse=_only_views)
    huge_pages: bool = flag(False, "torch takes its memory in pages of 2 MiB (THP_MEM_ALLOC_ENABLE=1)", row=True,
        refuse=_switched_on)
    reuse_buffers: bool = flag(False, "graph, shm: readers copy into memory that they used before", row=True,
        refuse=lambda row, _: "--reuse-buffers is for the compiled graph's shm: leave it out"
        * ((row.runtime, row.transport) != ("graph", "shm")))
    device: str = flag("auto", "where the tensors live (default: auto)", choices=["auto", "cpu", "cuda"])
    batch_size: int | None = size("prompts a message")
    prompt_seq_len: int | None = size("tokens a prompt")
    max_new_tokens: int | None = size("tokens a response", 0)
    num_samples: int | None = size("responses a prompt")
    rows: int | None = size("samples a message", largest=100_000)  # some fields have a tensor for each
    prompt_len: int | None = size("tokens of every prompt")
    response_len: int | None = size("tokens of every response")
    payload_bytes: int | None = size("bytes of each message")
    roles: int | None = size("how many actors", largest=64)  # each is a process
    iterations: int = flag(100, "timed trips (default: %(default)s)", at_least(1, 10**7))
    episode: int = flag(0, "trips in a row, without a check of every byte between them; of the last ones, as many as "
        "may be under way, all bytes are checked, of the others the stamps (default: --in-flight)", at_least(1),
        row=True, refuse=lambda _, options: f"--episode {options.episode}: fewer than the {options.in_flight} of "
        "--in-flight" if options.episode < options.in_flight else None)
    in_flight: int = flag(1, "trips under way at a time: handed over and not yet collected (default: %(default)s)",
        at_least(1, 64), row=True, refuse=_depth)
    warmup: int = flag(3, "untimed trips after the first one (default: %(default)s)", at_least(0, 10**6))
    timeout: float = flag(120.0, "seconds until a trip is given up (default: %(default)s)", seconds)
    threads: int = flag(1, "torch threads a role (default: %(default)s)", at_least(1), row=True, refuse=_cores)
    address: str | None = flag(None, "an existing Ray cluster, as ip:port (default: a private one on this machine)",
        str, refuse=_only_several_machines)
    placement: str | None = flag(None, "roles on the driver's node, or turn by turn on two (a private cluster gets a "
        "second raylet on this machine) or more (default: pack, with --address spread)", choices=["pack", "spread"],
        refuse=lambda row, options: _only_ray(row, options) if options.placement == "spread" else None)
    object_store_bytes: int | None = flag(None, "default: Ray's, 30%% of free memory", at_least(MINIMUM_STORE_BYTES),
        refuse=_only_ray)
    trace: Path | None = flag(None, "write where the time goes, as a Chrome trace (costs time itself)", Path,
        metavar="FILE", refuse=_one_clock)
    output: Path | None = flag(None, "the record (default: a fresh file in results/)", Path, metavar="FILE")
    inject: Fault | None = flag(None, argparse.SUPPRESS, Fault.parse)
    # fmt: on

    def __post_init__(self) -> None:
        """The defaults that follow from other flags."""
        object.__setattr__(self, "episode", self.episode or self.in_flight)
        object.__setattr__(self, "placement", self.placement or ("spread" if self.address else "pack"))

    def given(self, field: "dataclasses.Field[Any]") -> bool:
        return getattr(self, field.name) != field.default

    @property
    def sizes(self) -> dict[str, int | None]:
        return {name: getattr(self, name) for name in SIZES}

    @property
    def slots(self) -> int:
        """Payloads of each sender: those under way, the one being made, and the one that a reader still holds.

        Never fewer than three, since transports that alternate between two buffers would show a stale one as fresh.
        """
        return self.in_flight + 2

    @property
    def row_flags(self) -> dict[str, Any]:
        """Those that make another row of a transport, by their names."""
        asked = [field.name for field in FIELDS if field.metadata["row"] and self.given(field)]
        return {name: getattr(self, name) for name in asked if (name, self.episode) != ("episode", self.in_flight)}

    def refuse(self, row: Row) -> None:
        """UsageError for the first flag that cannot be used with this row."""
        for field in FIELDS:
            refuse = field.metadata["refuse"]
            if refuse and self.given(field) and (reason := refuse(row, self)):
                raise UsageError(reason)


FIELDS = dataclasses.fields(Options)
SIZES = tuple(field.name for field in FIELDS if "size" in field.metadata["argparse"])


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{' '.join(message.split())} (--help lists the flags)")


def parse(description: str, runtime: str, argv: Sequence[str] | None = None) -> Options:
    """The flags of a runtime's script; `argv` None: those of the process.

    Raises:
        UsageError: a flag is unknown or its value out of range.
    """
    parser = _OneLineParser(
        description=f"{description}\n{describe_transports(runtime)}", allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    for field in FIELDS:
        metadata, name = field.metadata, "--" + field.name.replace("_", "-")
        given = {"help": metadata["help"], "default": field.default, **metadata["argparse"]}
        if given.pop("size", False):
            of = {flow: sizes_of(flow)[field.name] for flow in FLOWS if field.name in sizes_of(flow)}
            given["help"] += f" ({', '.join(f'{flow}: {usual}' for flow, usual in of.items())})"
        if field.name == "transport":
            given |= {"choices": list(transports(runtime)), "default": DEFAULTS[runtime]}
            given["help"] += f" (default: {DEFAULTS[runtime] or 'auto'})"
        if metadata["kind"]:
            given["type"] = metadata["kind"]
        elif "choices" not in given:
            given["action"] = "store_true"
        parser.add_argument(name, **given)
    return Options(**vars(parser.parse_args(argv)))


def describe_transports(runtime: str) -> str:
    """A line for each value of --transport, from the catalogue."""
    rows = transports(runtime)
    width = max(map(len, rows))
    default = DEFAULTS[runtime]
    return "\n".join(
        f"    --transport {name:{width}}  {row.says}{' (the default)' * (name == default)}"
        for name, row in rows.items()
    )
