"""Parse the flags of every script, and explain them for --help."""

import argparse
import dataclasses
import importlib
import shlex
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, NoReturn

import msgspec

from common.errors import UsageError
from common.flows import catalogue
from common.flows.catalogue import flag_name
from common.flows.message import ITEM_BYTES
from common.plan.options import FLAGS, PRESETS, Options
from common.transports.catalogue import RUNTIMES, TRANSPORTS, Transport, transports_of
from common.units import format_bytes

SWEEPABLE = {flag_name(field.name)[2:]: field for field in FLAGS
             if field.name in ("payload", "batch_size", "fields", "in_flight", "actors")}  # fmt: skip
POINTS = "FIRST:LAST:FACTORx, FIRST:LAST:+STEP or VALUE,VALUE,..."
MAX_POINTS = 64
POINT_SECONDS = 1.0  # of timed iterations per value of a sweep, without --duration or --iterations
Flag = dataclasses.Field[Any]  # made by common.plan.options.flag


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, with the flag that the user may have meant."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{' '.join(message.split()).removeprefix('argument ')} (--help lists the flags)")

    def parse_all(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        """Return the values of the flags; raise UsageError for an unknown flag."""
        values, unknown = self.parse_known_args(argv)
        if unknown:
            self.error(f"unknown flag {unknown[0]}{did_you_mean(unknown[0], self._option_string_actions)}")
        return values


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """Return a hint to append to an error if one of the names is similar."""
    similar = get_close_matches(text, list(names), 1)
    return f": did you mean {similar[0]}?" if similar else ""


def transport_flags() -> dict[Flag, Transport]:
    """Return the flags that only one transport has, with the transport."""
    owners = [transport for transport in TRANSPORTS.values() if transport.options]
    return {field: transport for transport in owners for field in dataclasses.fields(options_class(transport))}


def options_class(transport: Transport) -> Any:
    module, _, name = transport.options.rpartition(".")
    return getattr(importlib.import_module(module), name)


def parse_options(description: str, runtime_name: str, argv: Sequence[str] | None = None) -> list[Options]:
    """Return one Options, or one per value of --sweep; raise UsageError for a flag that cannot be used."""
    parser = make_parser(description, runtime_name)
    given = vars(parser.parse_all(argv))
    if "list" in given:
        print(given["list"]())
        parser.exit()
    if "preset" in given:  # flags that are given as well override it
        given = vars(parser.parse_all(preset_flags(given["preset"], given.get("scale", 1.0)))) | given
    elif "scale" in given:
        raise UsageError("--scale is the scale of a --preset: give a preset, or the sizes themselves")
    if given.keys() >= {"iterations", "duration"}:
        raise UsageError("--iterations and --duration: leave one of them out")
    name = given.setdefault("transport", RUNTIMES[runtime_name].default_transport)
    transport, transport_options = TRANSPORTS.get(f"{runtime_name} {name}"), {}
    for field, owner in transport_flags().items():
        if field.name in given:
            if owner != transport:
                raise UsageError(f"{flag_name(field.name)} is a flag of --transport {owner.name}: leave it out")
            transport_options[field.name] = given.pop(field.name)
    if transport and transport.options:
        given["chatlearn"] = options_class(transport)(**transport_options)
    return expand_sweep(given) if "sweep" in given else [Options(**given)]


def make_parser(description: str, runtime_name: str) -> OneLineParser:
    """Return the parser of a script. Its result has only the flags that are given."""
    transports = transports_of(runtime_name)
    lines = [f"    --transport {name:15}  {transport.summary}" for name, transport in transports.items()]
    default = RUNTIMES[runtime_name].default_transport or "nccl if every actor can have a GPU, otherwise shm"
    parser = OneLineParser(
        description="\n".join([description, *lines, f"    default: {default}"]), usage="%(prog)s [flags]",
        allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, argument_default=argparse.SUPPRESS,
    )  # fmt: skip
    owners, groups = transport_flags(), {}
    for field in (*FLAGS, *owners):
        is_hidden = field in owners and owners[field].runtime.name != runtime_name
        settings = {"help": argparse.SUPPRESS if is_hidden else describe_flag(field), **field.metadata["argparse"]}
        if field.metadata["parse"]:
            settings["type"] = value_parser(field)
        else:
            settings["action"] = "store_true"
        if field.name == "transport":
            settings["choices"] = list(transports)
        title = field.metadata["group"]
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        groups[title].add_argument(flag_name(field.name), **settings)
    for name, describe in (("flows", catalogue.describe_flows), ("presets", describe_presets)):
        groups["output"].add_argument(f"--list-{name}", action="store_const", dest="list", const=describe,
                                      help=f"print all {name} with their messages, and exit")  # fmt: skip
    return parser


def value_parser(field: Flag) -> Callable[[str], Any]:
    """Return the function that reads the text of a flag and checks its bounds."""
    parse, bounds = field.metadata["parse"], field.metadata["bounds"]

    def parse_value(text: str) -> Any:
        try:
            if parse in (int, float):
                return msgspec.convert(text, Annotated[parse, bounds], strict=False)
            value = parse(text)
            return msgspec.convert(value, Annotated[type(value), bounds]) if bounds else value
        except (ValueError, msgspec.ValidationError) as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not possible: {error}") from None

    return parse_value


def describe_flag(field: Flag) -> str:
    """Return the help of a flag with its default."""
    text, default = field.metadata["help"] or argparse.SUPPRESS, field.default
    return text if default in (None, False) else f"{text} (default: {default})"


def describe_flags() -> dict[str, str]:
    """Return the help of every flag, those of one transport included."""
    flags = [field for field in (*FLAGS, *transport_flags()) if field.metadata["help"]]
    return {flag_name(field.name): describe_flag(field).replace("%%", "%") for field in flags}


def preset_flags(name: str, scale: float) -> list[str]:
    """Return the flags of a preset with `scale` times its batch size, at least one sample."""
    preset = PRESETS[name]
    samples = max(1, round(preset["samples"] * scale))
    if "flags" in preset:
        return [flag.format(samples=samples) for flag in preset["flags"]]
    fields = []
    for text in preset["fields"]:
        field, dtype, items = text.split()
        fields.append(f"{field} {dtype} {samples * int(items) * ITEM_BYTES[dtype]}B")
    return ["--flow", f"{preset['edge']}: {', '.join(fields)}"]


def describe_presets() -> str:
    """Return each preset with its bytes, source, flags and messages, as text."""
    lines = []
    for name, preset in PRESETS.items():
        (options,) = parse_options("", "store", ["--preset", name])
        flow = catalogue.build_flow(options.flow, options.sizes, options.message)
        samples, size = preset["samples"], format_bytes(flow.bytes_per_iteration)
        lines.append(f"{name}: {samples} samples, {size} per iteration; {preset['source']}")
        lines += [f"    {shlex.join(preset_flags(name, 1))}", *catalogue.describe_messages(flow)]
    return "\n".join(lines)


def expand_sweep(given: dict[str, Any]) -> list[Options]:
    """Return the options at each value of --sweep, the smallest first; raise UsageError if it cannot be read."""
    text = given["sweep"]
    name, _, points = text.partition("=")
    if name not in SWEEPABLE:
        raise UsageError(f"--sweep {text}: give NAME={POINTS}, NAME one of {', '.join(SWEEPABLE)}")
    field = SWEEPABLE[name]
    if field.name in given:
        raise UsageError(f"--sweep {text} and --{name}: leave one of them out")
    if not given.keys() & {"iterations", "duration"}:
        given["duration"] = POINT_SECONDS
    try:
        values = sorted(set(parse_points(points, value_parser(field))))
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise UsageError(f"--sweep {text}: {error}: give {POINTS}") from None
    if not 2 <= len(values) <= MAX_POINTS:
        raise UsageError(f"--sweep {text}: give 2 to {MAX_POINTS} values")
    return [Options(**{**given, field.name: value}) for value in values]


def parse_points(text: str, parse: Callable[[str], int]) -> list[int]:
    """Return the values of FIRST:LAST:FACTORx, FIRST:LAST:+STEP or VALUE,VALUE,...; raise ValueError for others."""
    if ":" not in text:
        return [parse(part) for part in text.split(",")]
    first, last, step = text.split(":")
    values, value = [parse(first)], float(parse(first))
    while len(values) <= MAX_POINTS:
        value = value * float(step[:-1]) if step.endswith("x") else value + parse(step.removeprefix("+"))
        if not value <= parse(last) * (1 + 1e-9):  # a factor of 1.1 may end just above LAST
            break
        values.append(round(value))
    return values
