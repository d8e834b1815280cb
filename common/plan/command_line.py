"""The flags of every script on the command line: parsed, explained, and what --help lists."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from common.errors import UsageError
from common.flow.catalogue import FLOWS, build_flow, describe_flows, describe_messages, sizes_of
from common.plan import kinds
from common.plan.options import FIELDS, SIZES, Options
from common.plan.presets import PRESETS, flags_of
from common.record.rows import DEFAULTS, transports
from common.units import format_bytes


class OneLineParser(argparse.ArgumentParser):
    """A mistake is told in one line; a flag that is unknown, with the one that is meant perhaps."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{' '.join(message.split())} (--help lists the flags)")

    def parse_all(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        found, unknown = self.parse_known_args(argv)
        if unknown:
            hint = kinds.did_you_mean(unknown[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found


class _Listing(argparse.Action):
    """Prints what its `const` gives, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(self.const())
        parser.exit()


def describe_presets() -> str:
    """Each preset with its bytes, source, flags and messages."""
    lines = []
    for name, preset in PRESETS.items():
        found = _parser("", "store").parse_all(flags_of(name, 1))
        flow = build_flow(found.flow, {size: getattr(found, size) for size in SIZES}, found.message)
        lines.append(f"{name}: {preset.rows} rows, {format_bytes(flow.bytes_per_trip)} a trip; {preset.source}")
        lines += [f"    {shlex.join(flags_of(name, 1))}", *describe_messages(flow)]
    return "\n".join(lines)


def parse(description: str, runtime: str, argv: Sequence[str] | None = None) -> Options:
    """The flags of a runtime's script; `argv` None: those of the process.

    Raises:
        UsageError: a flag is unknown or its value out of range.
    """
    found = _parser(description, runtime).parse_all(argv)
    if found.preset:  # what is given beside it counts more
        given = sys.argv[1:] if argv is None else argv
        found = _parser(description, runtime).parse_all([*flags_of(found.preset, found.scale), *given])
    elif found.scale != 1:
        raise UsageError("--scale is of a --preset: give one, or the sizes themselves")
    return Options(**vars(found))


def _parser(description: str, runtime: str) -> OneLineParser:
    parser = OneLineParser(
        description=f"{description}\n{describe_transports(runtime)}", usage="%(prog)s [flags]", allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    for field in FIELDS:
        metadata, names = field.metadata, ["--" + field.name.replace("_", "-")]
        given = {"help": metadata["help"], "default": field.default, **metadata["argparse"]}
        names += [given.pop("also")] if "also" in given else []
        if given.pop("size", False):
            of: dict[Any, list[str]] = {}
            for flow in FLOWS:
                of.setdefault(sizes_of(flow).get(field.name), []).append(flow)
            usual = [f"{', '.join(flows)}: {value}" for value, flows in of.items() if value is not None]
            given["help"] += f" ({'; '.join(usual)})" if usual else ""
        if metadata["kind"]:
            given["type"] = metadata["kind"]
        elif "choices" not in given and "action" not in given:
            given["action"] = "store_true"
        if field.name == "transport":
            given |= {"type": kinds.transport_of(runtime), "default": DEFAULTS[runtime]}
            given["help"] += f", by one of the above (default: {DEFAULTS[runtime] or 'auto'})"
        parser.add_argument(*names, **given)
    for name, listing, what in (
        ("--list-flows", describe_flows, "every flow with its messages, and exit"),
        ("--list-presets", describe_presets, "every preset with its source and messages, and exit"),
    ):
        parser.add_argument(name, action=_Listing, const=listing, nargs=0, default=argparse.SUPPRESS, help=what)
    return parser


def describe_flags() -> dict[str, str]:
    """What --help says of each flag that all scripts share, with its defaults; --transport is each script's own."""
    shown = [action for action in _parser("", "store")._actions if action.dest not in ("help", "transport")]
    return {
        ", ".join(action.option_strings): str(action.help) % vars(action)
        + (f": {', '.join(action.choices)}" if action.choices and action.dest != "preset" else "")
        for action in shown
        if action.help != argparse.SUPPRESS
    }


def describe_transports(runtime: str) -> str:
    """A line for each value of --transport, from the catalogue."""
    rows = transports(runtime)
    width = max(map(len, rows))
    default = DEFAULTS[runtime]
    return "\n".join(
        f"    --transport {name:{width}}  {row.says}{' (the default)' * (name == default)}"
        for name, row in rows.items()
    )
