# SPDX-License-Identifier: Apache-2.0
"""Parse and format numbers of bytes and seconds."""

import re
from collections.abc import Mapping
from fractions import Fraction

MIB = 2**20  # bytes
GB = 1e9  # bytes
MILLISECOND = 1e-3  # seconds
MICROSECOND = 1e-6  # seconds
BINARY = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
# Bytes of a unit; a number alone is bytes.
BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
} | BINARY
SECONDS: dict[str, Fraction | int] = {
    "s": 1,
    "ms": Fraction(1, 1000),
    "m": 60,
    "min": 60,
    "h": 3600,
}
MAX_SECONDS = 86_400


def parse_bytes(text: str) -> int:
    """Return the bytes of `1024`, `12MB` or `1.5 GiB`; raise ValueError if it is not a whole number of bytes."""
    count = _parse(text, BYTES)
    if count.denominator > 1:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(count)


def parse_seconds(text: str) -> float:
    """Return the seconds of `10`, `10s`, `500ms` or `2min`, at most a day; raise ValueError for others."""
    count = _parse(text, SECONDS)
    if count > MAX_SECONDS:
        raise ValueError(f"{text!r} is too large: give {MAX_SECONDS} s or less")
    return float(count)


def format_bytes(count: float) -> str:
    """Return four significant digits and a binary unit, always the same one for the same number."""
    unit = max(
        (unit for unit in BINARY if BINARY[unit] <= count), key=BINARY.__getitem__, default="B"
    )
    return f"{count / BINARY[unit]:,.4g} {unit}"


def _parse(text: str, units: Mapping[str, Fraction | int]) -> Fraction:
    """Return a number with one of the units, whose case does not matter, or with the first one if it has none."""
    factors = {"": 1} | {name.lower(): factor for name, factor in units.items()}
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)\s*([a-z]*)", text.strip().lower())
    if not match or match[2] not in factors:
        raise ValueError(
            f"{text[:40]!r} is not a number with at most 18 digits and a unit ({', '.join(units)})"
        )
    return Fraction(match[1]) * factors[match[2]]
