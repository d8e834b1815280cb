"""Parse and format numbers of bytes and seconds."""

import re
from collections.abc import Mapping
from fractions import Fraction

BINARY = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | BINARY  # a number alone is bytes
SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
MAX_BYTES, MAX_SECONDS = 10**18, 86_400


def parse_bytes(text: str) -> int:
    """Return the bytes of `1024`, `12MB` or `1.5 GiB`; raise ValueError if it is not a whole number of bytes."""
    count = _parse(text, BYTES, "B", MAX_BYTES, "a number of bytes: give 12000000, 12MB or 12MiB")
    if count.denominator > 1:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(count)


def parse_seconds(text: str) -> float:
    """Return the seconds of `10`, `10s`, `500ms` or `2min`, at most a day; raise ValueError for others."""
    return float(_parse(text, SECONDS, "s", MAX_SECONDS, "a number of seconds: give 10 or 10s"))


def format_bytes(count: float) -> str:
    """Return four significant digits and a binary unit, always the same one for the same number."""
    unit = max((unit for unit in BINARY if BINARY[unit] <= count), key=BINARY.__getitem__, default="B")
    return f"{count / BINARY[unit]:,.4g} {unit}"


def _parse(text: str, units: Mapping[str, float], default_unit: str, largest: int, expected: str) -> Fraction:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if not match:
        raise ValueError(f"{text!r} is not {expected}")
    factors = {name.lower(): factor for name, factor in units.items()}
    unit = match[2] or default_unit
    if unit.lower() not in factors:
        raise ValueError(f"{text!r}: unknown unit {unit}: use one of {', '.join(units)}")
    count = Fraction(match[1]) * Fraction(factors[unit.lower()])
    if count > largest:
        raise ValueError(f"{text[:40]!r} is too large: give {largest} {default_unit} or less")
    return count
