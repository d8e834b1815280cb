# SPDX-License-Identifier: Apache-2.0
"""Make a field of a dataclass that is a flag, and list the flags of one. Those of studies are made with it too."""

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta, ValidationError, convert

KINDS: dict[Any, str] = {int: "a whole number", float: "a number"}  # of values, by their parser


@dataclass(frozen=True)
class Flag:
    """A flag of a configuration, as its field in a dataclass defines it."""

    group: str  # in which --help shows it
    help: str  # "": it is hidden
    argparse: Mapping[str, Any]  # how argparse reads its value
    makes_configuration: bool  # another value is another configuration
    size: bool | Literal["sender"]
    name: str = ""  # of the field
    default: Any = None
    study: str = ""  # that has it; "": the laboratory
    # Of a value that makes another configuration: equal results mean equal configurations.
    normal_form: Callable[[Any], Any] = lambda value: value


def flag(
    group: str,
    default: Any,
    help: str,
    parse: Callable[[str], Any] | None = None,
    bounds: Meta | None = None,
    *,
    configuration: bool = False,
    size: bool | Literal["sender"] = False,
    normal_form: Callable[[Any], Any] = lambda value: value,
    **argparse_settings: Any,
) -> Any:
    """Return a dataclass field that is a flag, or a switch if it has no `parse`. An empty help hides it.

    On the command line, values that `parse` cannot read, or that are out of `bounds`, are errors. With
    `configuration`, the flag makes another configuration, so it is a part of the name, in its `normal_form`: that of a
    value without effect is the default. With `size`, it sets the flow's parameter of its name; with "sender", the size
    changes what senders do, and not what readers get.
    """
    settings = {"type": partial(parse_value, parse, bounds)} if parse else {"action": "store_true"}
    made = Flag(
        group,
        help,
        argparse=settings | argparse_settings,
        makes_configuration=configuration,
        size=size,
        normal_form=normal_form,
    )
    return dataclasses.field(default=default, metadata={"flag": made})


def flags_of(owner: type, study: str = "") -> list[Flag]:
    """Return the flags of a dataclass, in its order. Fields that are not made by `flag` are none."""
    flags = []
    for field in dataclasses.fields(owner):
        if "flag" in field.metadata:
            made = field.metadata["flag"]
            flags.append(
                dataclasses.replace(made, name=field.name, default=field.default, study=study)
            )
    return flags


def require_different_names(flags: Iterable[Flag]) -> None:
    """Raise ValueError if two flags have one name, under which records and the command line know them."""
    owners: dict[str, str] = {}
    for flag in flags:
        owner = f"the study {flag.study}" if flag.study else "the laboratory"
        if flag.name in owners:
            raise ValueError(f"{owners[flag.name]} and {owner} both have a flag {flag.name}")
        owners[flag.name] = owner


def parse_value(parse: Callable[[str], Any], bounds: Meta | None, text: str) -> Any:
    """Return the value of a flag; raise ArgumentTypeError for a text that cannot be read, or a value out of bounds."""
    try:
        value = parse(text)
    except ValueError as error:
        advice = f"give {KINDS[parse]}" if parse in KINDS else str(error)
        raise argparse.ArgumentTypeError(f"{text!r} is not possible: {advice}") from None
    if bounds and not is_within(value, bounds):
        advice = f"give {describe_bounds(bounds)}"
        raise argparse.ArgumentTypeError(f"{text!r} is not possible: {advice}")
    return value


def is_within(value: float, bounds: Meta) -> bool:
    """Return whether a number is within bounds."""
    try:
        convert(value, Annotated[type(value), bounds])
    except ValidationError:
        return False
    return True


def describe_bounds(bounds: Meta) -> str:
    """Return the bounds in words, such as "1 or more"."""
    if bounds.le is None:
        return f"more than {bounds.gt}" if bounds.gt is not None else f"{bounds.ge} or more"
    if bounds.gt is not None:
        return f"more than {bounds.gt} and at most {bounds.le}"
    return f"{bounds.ge} to {bounds.le}"
