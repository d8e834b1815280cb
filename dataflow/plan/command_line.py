# SPDX-License-Identifier: Apache-2.0
"""Parse the flags of every verb, explain them for --help, and plan configurations. Nothing is measured."""

import argparse
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Any, NoReturn

from dataflow.catalogue.catalogue import CONFIGURATIONS, TRANSPORTS, SuitePart, Transport
from dataflow.errors import UsageError, did_you_mean
from dataflow.flows import catalogue
from dataflow.flows.catalogue import flag_name
from dataflow.flows.message import ITEM_BYTES
from dataflow.flows.parser import ARROW
from dataflow.plan.flag import Flag
from dataflow.plan.options import FLAGS, PRESETS, Options
from dataflow.plan.plan import Plan, resolve_plan
from dataflow.units import format_bytes

COMMON = (
    "flow",
    "message",
    "batch_size",
    "iteration_bytes",
    "device",
    "iterations",
    "warmup",
    "in_flight",
)
MAX_CHOICES = 50  # characters beside a flag
SWEPT_FLAGS = ("batch-size", "actors", "iteration-bytes", "fields", "in-flight")
Planned = tuple[Plan, UsageError | None]  # and why it cannot be measured


class ExampleFormatter(argparse.HelpFormatter):
    """Show texts that are as wide as the terminal: paragraphs are filled, and examples keep their lines.

    An example is an indented line: a command and, after two or more spaces, what it does. If the examples do not fit
    into the terminal, what each one does stands above it.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = []
        for paragraph in text.strip().split("\n\n"):
            lines = paragraph.splitlines()
            if not lines[0].startswith(" "):
                parts.append(fill(" ".join(lines), width))
            elif max(map(len, lines)) <= width:
                parts.append(paragraph)
            else:
                parts.append("\n".join(format_example(line, width) for line in lines))
        return "\n\n".join(parts)

    def _format_usage(self, *arguments: Any) -> str:
        text = super()._format_usage(*arguments).strip()
        indent = " " * len("usage: ")
        return textwrap.fill(text, self._width, subsequent_indent=indent) + "\n\n"

    def _split_lines(self, text: str, width: int) -> list[str]:
        return fill(text, width).splitlines()

    def _metavar_formatter(self, action: argparse.Action, default_metavar: str) -> Any:
        """Show a name in place of many choices, which stand in the help then."""
        if has_many_choices(action):
            return lambda count: ("NAME",) * count
        return super()._metavar_formatter(action, default_metavar)

    def _expand_help(self, action: argparse.Action) -> str:
        text = super()._expand_help(action)
        if has_many_choices(action) and action.choices:
            text += f": one of {', '.join(map(str, action.choices))}"
        return text


def has_many_choices(action: argparse.Action) -> bool:
    """Return whether a flag has more choices than fit beside it, and no other name for its values."""
    choices = ", ".join(map(str, action.choices or []))
    return action.metavar is None and len(choices) > MAX_CHOICES


def fill(text: str, width: int) -> str:
    """Break text between words; a word with a hyphen, such as the name of a suite, stays together."""
    return textwrap.fill(" ".join(text.split()), width, break_on_hyphens=False)


def format_example(line: str, width: int) -> str:
    """Return what a command does as a comment, and the command, which is continued with backslashes if it is long."""
    indent = " " * 4
    command, *explanation = re.split(" {2,}", line.strip())
    shown = [f"{indent}# {text}" for text in explanation]
    shown.append(indent)
    for word in re.findall(r'(?:"[^"]*"|[^\s"]+)+', command):  # text in quotes is not broken
        if len(f"{shown[-1]}{word} \\") > width:
            shown[-1] += "\\"
            shown.append(indent * 2)
        shown[-1] += f"{word} "
    return "\n".join(text.rstrip() for text in shown)


def print_lines(text: str) -> None:
    """Print lines that are broken between words if a terminal is too narrow for them."""
    width = shutil.get_terminal_size().columns
    for line in text.splitlines():
        is_too_long = sys.stdout.isatty() and len(line) > width
        print(textwrap.fill(line, width, subsequent_indent="    ") if is_too_long else line)


class VerbParser(argparse.ArgumentParser):
    """A parser whose errors are one line.

    `--help` shows the flags of the verb itself and the common ones, and `--help GROUP` those of a group of `groups`.
    """

    def __init__(self, description: str | None, usage: str) -> None:
        """Make a parser with --help, which prints when it is parsed, and ends the program."""
        super().__init__(
            description=description,
            usage=usage,
            allow_abbrev=False,
            add_help=False,
            formatter_class=ExampleFormatter,
        )
        self.groups: dict[str, list[argparse.Action]] = {}
        self.add_argument(
            "-h",
            "--help",
            nargs="?",
            const="",
            type=self.show_help,
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )

    def error(self, message: str) -> NoReturn:
        """Raise UsageError with argparse's message, in which the names of Python's types are replaced."""
        text = " ".join(message.split()).removeprefix("argument ")
        text = re.sub("invalid int value: ('.*')", r"\1 is not possible: give a whole number", text)
        raise UsageError(f"{text} (--help lists the flags)")

    def parse_all(self, argv: Sequence[str]) -> argparse.Namespace:
        values, unknown = self.parse_known_intermixed_args(argv)
        if unknown:
            first = unknown[0]
            self.error(f"unknown flag {first}{did_you_mean(first, self._option_string_actions)}")
        return values

    def show_help(self, topic: str) -> NoReturn:
        """Print the help of a group of flags, of all of them, or of none: the most important ones. End the program.

        The topics flows and presets print their values. Raise UsageError for an unknown topic.
        """
        lists = {"flows": catalogue.describe_flows, "presets": describe_presets}
        if topic in lists:
            print_lines(lists[topic]())
            self.exit()
        in_groups = [*chain.from_iterable(self.groups.values())]
        own = [action for action in self._actions if action not in in_groups]
        common = [action for action in in_groups if action.dest in COMMON]
        shown = {"": own + common, **self.groups, "all": own + in_groups}
        if topic not in shown:
            raise UsageError(
                f"--help {topic}: unknown group{did_you_mean(topic, [*shown, *lists])}"
            )
        for action in self._actions:
            action.help = action.help if action in shown[topic] else argparse.SUPPRESS
        if self.groups:
            self.epilog = (
                f"More flags: --help GROUP, with one of {', '.join(self.groups)}, all.\n\n"
                f"Values: --help {' or --help '.join(lists)}."
            )
        self.print_help()
        self.exit()


def add_options(parser: VerbParser) -> None:
    """Add the flags of a configuration. A namespace has only those that are given."""
    for flag in FLAGS:
        text = flag.help or argparse.SUPPRESS
        if flag.default not in (None, False):
            text += f" (default: {flag.default})"
        settings = {"help": text, "default": argparse.SUPPRESS, **flag.argparse}
        action = parser.add_argument(flag_name(flag.name), **settings)
        parser.groups.setdefault(flag.group, []).append(action)


def parse_with_options(
    parser: VerbParser, argv: Sequence[str]
) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Return the flags of a verb, and the flags of configurations that are given."""
    add_options(parser)
    values = vars(parser.parse_all(argv))
    given = {flag.name: values.pop(flag.name) for flag in FLAGS if flag.name in values}
    return argparse.Namespace(**values), given


@cache
def option_parser() -> VerbParser:
    parser = VerbParser("The flags of a configuration", "python3 -m dataflow run")
    add_options(parser)
    return parser


def parse_flags(words: Sequence[str]) -> dict[str, Any]:
    """Return the values of the flags of a configuration that are given; raise UsageError for a wrong one."""
    return vars(option_parser().parse_all(words))


def words_of(given: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line that give these values of flags."""
    words = []
    for name, value in given.items():
        words.append(flag_name(name))
        if value is None:  # of --warmup
            words.append("steady")
        elif value is not True:
            words.append(str(value))
    return words


def make_options(transport: Transport, given: Mapping[str, Any]) -> list[Options]:
    """Return one Options, or one per value of --sweep, the smallest first. A preset is replaced by its flags.

    Raise UsageError for a --sweep that cannot be read, or whose flag has a value already. Other values are not checked.
    """
    values = {"transport": transport.name, **given}
    if given.get("flow") in PRESETS:
        name = values.pop("flow")
        flags = preset_flags(name, values.pop("batch_size", None))
        values = {"preset": name, **flags, **values}  # flags that are given override its own
    if "sweep" not in values:
        return [Options.of(values)]
    flag, points = parse_sweep(values["sweep"])
    if flag.name in values:
        raise UsageError(
            f"--sweep {values['sweep']} and {flag_name(flag.name)}: leave one of them out"
        )
    return [Options.of({**values, flag.name: point}) for point in points]


def parse_sweep(text: str) -> tuple[Flag, list[Any]]:
    """Return the flag of a --sweep, and its values, the smallest first; raise UsageError if it cannot be read."""
    name, _, values = text.partition("=")
    if name not in SWEPT_FLAGS:
        raise UsageError(
            f"--sweep {text}: give NAME=VALUE,VALUE,..., NAME one of {', '.join(SWEPT_FLAGS)}"
        )
    by_name = {flag_name(flag.name): flag for flag in FLAGS}
    flag = by_name[f"--{name}"]
    try:
        points = {flag.argparse["type"](value) for value in values.split(",")}
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--sweep {text}: {error}: give VALUE,VALUE,...") from None
    return flag, sorted(points)


def parse_configuration(text: str) -> tuple[Transport, dict[str, Any]]:
    """Return the transport of a configuration, and the values of the flags in its text.

    Raise UsageError if the configuration is unknown, or one of its flags is wrong. Whether they fit is not checked.
    """
    try:
        runtime, transport, *words = shlex.split(text)
    except ValueError:
        advice = "give a runtime and a transport, and close every quote"
        same = labels_of_transport(text.strip())
        if same:
            quoted = [f'"{label}"' for label in same]
            advice = f"did you mean {' or '.join(quoted)}?"
        raise UsageError(f"'{text}': {advice}") from None
    if f"{runtime} {transport}" not in TRANSPORTS:
        same = labels_of_transport(transport)
        meant = f": did you mean {same[0]}?" if same else did_you_mean(text, CONFIGURATIONS)
        raise UsageError(
            f"unknown configuration {text}{meant} (python3 -m dataflow list shows all)"
        )
    return TRANSPORTS[f"{runtime} {transport}"], parse_flags(words)


def labels_of_transport(name: str) -> list[str]:
    """Return the transports of this name with their runtimes, such as "store refs" for refs."""
    return [label for label in TRANSPORTS if label.split()[1] == name]


def plan_configuration(text: str, given: Mapping[str, Any], table: str = "") -> list[Planned]:
    """Return the plan of a user's configuration, such as "graph shm --huge-pages"; with --sweep, one per value.

    `given` are the flags of all configurations. They do not override those in the text.
    """
    transport, own = parse_configuration(text)
    return plan_transport(transport, {**given, **own}, table=table)


@dataclass(frozen=True)
class SuiteMember:
    """A configuration of a suite."""

    name: str  # by which the suite names it
    transport: Transport
    flags: Mapping[str, Any]


def list_members(part: SuitePart) -> Iterator[SuiteMember]:
    """Yield the configurations of a part of a suite. Variants have flags already, so only texts are parsed."""
    for text in part.texts:
        transport, flags = parse_configuration(f"{text} {part.flags}")
        yield SuiteMember(text, transport, flags)
    for variant in part.variants:
        flags = {**variant.flags, "iterations": variant.iterations}
        yield SuiteMember(variant.name, variant.transport, flags)


def plan_transport(
    transport: Transport, values: Mapping[str, Any], suite: str = "", table: str = ""
) -> list[Planned]:
    """Return the plan of these values of flags, and why it is skipped, or None: one pair, or one per value of --sweep.

    A value of a sweep that does not fit is skipped, and stays in the list. Raise UsageError if the smallest one, or
    a plan without a sweep, does not fit, if a value makes no flow, or if --sweep itself is wrong.
    """
    planned: list[Planned] = []
    for options in make_options(transport, values):
        try:
            planned.append(resolve_plan(transport, options, suite, table))
        except UsageError as error:
            try:
                flow = catalogue.build_flow(options.flow, options.sizes, options.message)
                smallest, _ = planned[0]
            except (ValueError, IndexError):
                raise UsageError(f"{transport.label}: {error}") from None
            planned.append((replace(smallest, options=options, requested_flow=flow), error))
    return planned


def describe_flags() -> dict[str, str]:
    """Return what each flag of a configuration does."""
    flags = {}
    for action in option_parser()._actions:
        if action.help != argparse.SUPPRESS:
            name = action.option_strings[0]
            flags[name] = str(action.help).replace("%%", "%")
    return flags


def describe_presets() -> str:
    """Return a table of the presets: the bytes per iteration, the samples, and where the sizes are from."""
    rows = [("preset", "per iteration", "samples", "source")]
    for name, preset in PRESETS.items():
        options = Options.of(preset_flags(name, None))
        flow = catalogue.build_flow(options.flow, options.sizes, options.message)
        per_iteration = format_bytes(flow.bytes_per_iteration)
        rows.append((name, per_iteration, f"{preset['samples']:,}", preset["source"]))
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = [align_cells(row, widths) for row in rows]
    return "\n".join([*lines, "--dry-run shows the messages of a preset."])


def align_cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return a row of a table, with each cell as wide as its column."""
    padded = map(str.ljust, cells, widths)
    return "  ".join(padded).rstrip()


def preset_flags(name: str, samples: int | None) -> dict[str, Any]:
    """Return the values of a preset's flags with this number of samples per message, or its own."""
    preset = PRESETS[name]
    samples = samples or preset["samples"]
    if "fields" in preset:
        texts = [describe_field(text, samples) for text in preset["fields"]]
        return {"flow": f"{preset['edge']}: {', '.join(texts)}"}
    flags = dict(preset["flags"])
    flow = flags.get("flow", Options.flow)
    if ARROW not in flow:
        return flags | {"batch_size": samples}
    return flags | {"flow": flow.format(samples=samples)}


def describe_field(text: str, samples: int) -> str:
    """Return a field of a preset as the text of a flow has it: its bytes in place of its items per sample."""
    name, dtype, items = text.split()
    return f"{name} {dtype} {samples * int(items) * ITEM_BYTES[dtype]}B"
