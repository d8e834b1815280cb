"""What a flag's text may be: each parser says in one line what is wrong with it."""

import argparse
from collections.abc import Callable, Iterable
from difflib import get_close_matches

from common.flow.catalogue import build_flow, sizes_of
from common.flow.own_code import load_function
from common.flow.written import ARROW
from common.record.rows import RUNTIMES, transports
from common.units import parse_bytes, parse_seconds

DAY_SECONDS = 86400


def at_least(smallest: int, largest: int = 10**15) -> Callable[[str], int]:
    """A count within bounds."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        return _within(value, smallest, largest)

    return parse


def bytes_at_least(smallest: int) -> Callable[[str], int]:
    """A number of bytes, with a unit or without."""

    def parse(text: str) -> int:
        try:
            return _within(parse_bytes(text), smallest, 10**15)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def seconds(text: str) -> float:
    """A time, with a unit or without; at most a day."""
    try:
        value = parse_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0 < value <= DAY_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is out of range: give more than 0 and at most {DAY_SECONDS} seconds")
    return value


def flow(text: str) -> str:
    """A flow's name, or a flow that is written out."""
    try:
        sizes_of(text)
        if ARROW in text or ".py:" in text:
            build_flow(text, {})
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def function(text: str) -> str:
    """A function in a file of one's own."""
    try:
        load_function(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def fraction(text: str) -> float:
    """More than 0, at most 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no part of a whole: give more than 0 and at most 1")
    return value


def counts(text: str) -> str:
    """`policy=2,reference=3`: a number for some models."""
    for part in text.split(","):
        name, _, number = part.partition("=")
        if not name or not number.isdigit() or not 1 <= int(number) <= 10**6:
            raise argparse.ArgumentTypeError(f"{part!r}: give policy=2,reference=3, say, each at least 1")
    return text


def times(text: str) -> str:
    """`policy=200ms,trainer=1s`: a time for some models."""
    for part in text.split(","):
        name, _, time = part.partition("=")
        if not name or not time:
            raise argparse.ArgumentTypeError(f"{part!r}: give policy=200ms,trainer=50ms, say")
        seconds(time)
    return text


def transport_of(runtime: str) -> Callable[[str], str]:
    """One of a runtime's transports; another runtime's is told where it is."""

    def parse(text: str) -> str:
        known = transports(runtime)
        owners = [script for other, script in RUNTIMES.items() if text in transports(other)]
        if text in known:
            return text
        if owners:
            raise argparse.ArgumentTypeError(f"{text} is not a transport of this script: run {' or '.join(owners)}")
        raise argparse.ArgumentTypeError(f"{text} is none of {', '.join(known)}{did_you_mean(text, known)}")

    return parse


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """A hint to append where something known is spelt alike."""
    near = get_close_matches(text, list(known), 1)
    return f": did you mean {near[0]}?" if near else ""


def _within(value: int, smallest: int, largest: int) -> int:
    if value < smallest:
        raise argparse.ArgumentTypeError(f"{value} is too small: give {smallest} or more")
    if value > largest:
        raise argparse.ArgumentTypeError(f"a count this large cannot be meant: give {largest} or less")
    return value
