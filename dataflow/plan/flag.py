"""Make a dataclass field that is a flag, and read flags of several values."""

import dataclasses
from collections.abc import Callable
from typing import Any

from msgspec import Meta

NO_FLAG = ""  # the group of a value that follows from other flags


def flag(
    group: str, default: Any, help: str, parse: Callable[[str], Any] | None = None, bounds: Meta | None = None, *,
    configuration: bool = False, size: bool | str = False, sender_only: bool = False, **argparse_settings: Any,
) -> Any:  # fmt: skip
    """Return a dataclass field that is a flag, or a switch if it has no `parse`. An empty help hides it.

    With `configuration`, the flag makes another configuration, so it is a part of the name. `size` is the name of the
    flow's parameter that the flag sets; True: the name of the flag. With `sender_only`, the size changes what senders
    do, and not what readers get.
    """
    metadata = {"group": group, "help": help, "parse": parse, "bounds": bounds, "configuration": configuration}
    metadata |= {"size": size, "sender_only": sender_only}
    return dataclasses.field(default=default, metadata={**metadata, "argparse": argparse_settings})


def parse_assignments(flag: str, text: str | None, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Return the values of `policy=2,reference=3` by name; raise ValueError if they cannot be read."""
    values: dict[str, Any] = {}
    for part in text.split(",") if text else []:
        name, equals, value = part.partition("=")
        if not equals or name in values:
            raise ValueError(f"{flag} {text}: give NAME=VALUE, several names separated by commas and each of them once")
        try:
            values[name] = parse(value)
        except ValueError as error:
            raise ValueError(f"{flag} {part}: {error}") from None
    return values
