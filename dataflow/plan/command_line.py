"""Parse the flags of every script, and explain them for --help."""

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import msgspec

from dataflow.catalogue.catalogue import transports_of
from dataflow.errors import UsageError, did_you_mean
from dataflow.flows import catalogue
from dataflow.flows.catalogue import flag_name
from dataflow.flows.message import ITEM_BYTES
from dataflow.plan.options import FLAGS, PRESETS, PRESETS_TEXT, Options

SWEPT_FLAGS = ("batch-size", "actors", "payload", "fields", "in-flight")
POINTS = "FIRST:LAST:FACTORx, FIRST:LAST:+STEP or VALUE,VALUE,..."
MAX_POINTS = 64
LISTS = {"--list-flows": catalogue.describe_flows, "--list-presets": lambda: PRESETS_TEXT}
POINT_SECONDS = 1.0  # of timed iterations per value of a sweep, without --duration or --iterations
POINT_WARMUP = 3  # untimed iterations per value
Flag = dataclasses.Field[Any]  # made by dataflow.plan.options.flag


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, with the flag that the user may have meant."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{' '.join(message.split()).removeprefix('argument ')} (--help lists the flags)")

    def parse_all(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        values, unknown = self.parse_known_args(argv)
        if unknown:
            self.error(f"unknown flag {unknown[0]}{did_you_mean(unknown[0], self._option_string_actions)}")
        return values


def parse_options(description: str | None, runtime_name: str, argv: Sequence[str] | None = None) -> list[Options]:
    """Return one Options, or one per value of --sweep; raise UsageError for a flag that cannot be used."""
    parser = make_parser(description, runtime_name)
    given = vars(parser.parse_all(argv))
    if "text" in given:
        print(given["text"]())
        parser.exit()
    if "preset" in given:  # flags that are given as well override it
        given = vars(parser.parse_all(preset_flags(given["preset"], given.get("scale", 1.0)))) | given
    elif "scale" in given:
        raise UsageError("--scale is the scale of a --preset: give a preset, or the sizes themselves")
    if given.keys() >= {"iterations", "duration"}:
        raise UsageError("--iterations and --duration: leave one of them out")
    if given.keys() >= {"place", "placement"}:
        raise UsageError("--place and --placement: leave one of them out")
    return expand_sweep(given) if "sweep" in given else [Options(**given)]


def make_parser(description: str | None, runtime_name: str) -> OneLineParser:
    """Return the parser of a script. Its result has only the flags that are given.

    There is no description if Python removes docstrings (PYTHONOPTIMIZE=2).
    """
    transports = transports_of(runtime_name)
    lines = [f"    --transport {name:15}  {transport.summary}" for name, transport in transports.items()]
    parser = OneLineParser(
        description="\n".join([description or "", *lines]), usage="%(prog)s [flags]",
        allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, argument_default=argparse.SUPPRESS,
    )  # fmt: skip
    titles = dict.fromkeys(field.metadata["group"] for field in FLAGS)
    groups = {title: parser.add_argument_group(title) for title in titles}
    for field in FLAGS:
        if field.metadata["group"] not in groups:
            continue
        settings = {"help": describe_flag(field), **field.metadata["argparse"]}
        if field.metadata["parse"]:
            settings["type"] = value_parser(field)
        else:
            settings["action"] = "store_true"
        if field.name == "transport":
            settings["choices"] = list(transports)
        groups[field.metadata["group"]].add_argument(flag_name(field.name), **settings)
    add_lists(groups["output"])
    return parser


def add_lists(parser: Any) -> None:
    """Add the flags whose value is a function that returns a text to print."""
    for name, describe in LISTS.items():
        text = f"print all {name.removeprefix('--list-')}, and exit"
        parser.add_argument(name, action="store_const", dest="text", const=describe, help=text)


def value_parser(field: Flag) -> Callable[[str], Any]:
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
    text, default = field.metadata["help"] or argparse.SUPPRESS, field.default
    return text if default in (None, False) else f"{text} (default: {default})"


def describe_flags() -> dict[str, str]:
    return {flag_name(flag.name): describe_flag(flag).replace("%%", "%") for flag in FLAGS if flag.metadata["help"]}


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


def expand_sweep(given: dict[str, Any]) -> list[Options]:
    """Return the options at each value of --sweep, the smallest first; raise UsageError if it cannot be read."""
    text = given["sweep"]
    name, _, points = text.partition("=")
    if name not in SWEPT_FLAGS:
        raise UsageError(f"--sweep {text}: give NAME={POINTS}, NAME one of {', '.join(SWEPT_FLAGS)}")
    field = next(field for field in FLAGS if flag_name(field.name) == f"--{name}")
    if field.name in given:
        raise UsageError(f"--sweep {text} and --{name}: leave one of them out")
    if not given.keys() & {"iterations", "duration"}:
        given["duration"] = POINT_SECONDS
        given.setdefault("warmup", POINT_WARMUP)
    try:
        values = sorted(set(parse_points(points, value_parser(field))))
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise UsageError(f"--sweep {text}: {error}: give {POINTS}") from None
    if not 2 <= len(values) <= MAX_POINTS:
        raise UsageError(f"--sweep {text}: give 2 to {MAX_POINTS} values")
    return [Options(**{**given, field.name: value}) for value in values]


def parse_points(text: str, parse: Callable[[str], int]) -> list[int]:
    if ":" not in text:
        return [parse(part) for part in text.split(",")]
    if text.count(":") != 2:
        raise ValueError("not FIRST:LAST:STEP")
    first, last, step = text.split(":")
    values: list[int] = []
    value = float(parse(first))
    while value <= parse(last) * (1 + 1e-9) and len(values) <= MAX_POINTS:  # a factor of 1.1 may end just above LAST
        values.append(parse(str(round(value))))  # within the same bounds as a value that is given
        value = value * float(step[:-1]) if step.endswith("x") else value + parse(step.removeprefix("+"))
    return values
