"""Parse and format numbers of bytes and seconds."""

import re
from collections.abc import Mapping
from fractions import Fraction

UNITS = {
    "B": {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
    "iB": {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40},
}
BYTES = UNITS["B"] | UNITS["iB"]  # a number alone is bytes
SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_bytes(text: str) -> int:
    """Return the bytes of `1024`, `12MB` or `1.5 GiB`; raise ValueError if it is not a whole number of bytes."""
    count = _parse(text, BYTES, "B", "a number of bytes: give 12000000, 12MB or 12MiB")
    if count.denominator > 1:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(count)


def parse_seconds(text: str) -> float:
    """Return the seconds of `10`, `10s`, `500ms` or `2min`; raise ValueError for others."""
    return float(_parse(text, SECONDS, "s", "a number of seconds: give 10 or 10s"))


def format_bytes(count: float, suffixes: tuple[str, ...] = ("iB", "B")) -> str:
    """Return four significant digits and a binary unit, or a decimal unit if that is much shorter."""
    texts = []
    for suffix in suffixes:
        unit = max((unit for unit in UNITS[suffix] if BYTES[unit] <= count), key=BYTES.__getitem__, default="B")
        texts.append(f"{count / BYTES[unit]:,.4g} {unit}")
    binary_digits, other_digits = (len(text.split()[0]) for text in (texts[0], texts[-1]))
    return texts[-1] if other_digits < binary_digits - 1 else texts[0]


def _parse(text: str, units: Mapping[str, float], default_unit: str, expected: str) -> Fraction:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if not match:
        raise ValueError(f"{text!r} is not {expected}")
    factors = {name.lower(): factor for name, factor in units.items()}
    unit = match[2] or default_unit
    if unit.lower() not in factors:
        raise ValueError(f"{text!r}: unknown unit {unit}: use one of {', '.join(units)}")
    return Fraction(match[1]) * Fraction(factors[unit.lower()])
