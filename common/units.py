"""Parse and format numbers of bytes and seconds."""

import re
from fractions import Fraction

# 12MB is 12,000,000 bytes, 12MiB is 12 * 2**20; a number alone is bytes.
BYTES = {"B": 1} | {
    f"{letter}{suffix}": base**power
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, letter in enumerate("KMGT" if base == 1024 else "kMGT", 1)
}
SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_bytes(text: str) -> int:
    """Return the bytes of `1024`, `12MB` or `1.5 GiB`.

    Raises:
        ValueError: the text is not a whole number of bytes.
    """
    number, unit = _split(text, "a number of bytes: give 12000000, 12MB or 12MiB")
    factors = {name.lower(): factor for name, factor in BYTES.items()}
    if unit and unit.lower() not in factors:
        raise ValueError(f"{text!r}: unknown unit {unit}: use one of {', '.join(BYTES)}")
    count = Fraction(number) * factors[unit.lower() or "b"]
    if count.denominator > 1:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(count)


def parse_seconds(text: str) -> float:
    """Return the seconds of `10`, `10s`, `500ms` or `2min`.

    Raises:
        ValueError: the text is not a number of seconds.
    """
    number, unit = _split(text, "a number of seconds: give 10 or 10s")
    if unit and unit not in SECONDS:
        raise ValueError(f"{text!r}: unknown unit {unit}: use one of {', '.join(SECONDS)}")
    return float(number) * SECONDS[unit or "s"]


def format_bytes(count: float, suffixes: tuple[str, ...] = ("iB", "B")) -> str:
    """Return four significant digits and a binary unit, or a decimal unit if that is much shorter."""
    units = [_fitting(count, suffix) for suffix in suffixes]
    shown = [f"{count / BYTES[unit]:,.4g} {unit}" for unit in units]
    return shown[-1] if len(shown[-1].partition(" ")[0]) < len(shown[0].partition(" ")[0]) - 1 else shown[0]


def _fitting(count: float, suffix: str) -> str:
    """Return the largest unit in which the number is at least one."""
    fits = [unit for unit in BYTES if unit[1:] == suffix and BYTES[unit] <= count]
    return fits[-1] if fits else "B"


def _split(text: str, expected: str) -> tuple[str, str]:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if not match:
        raise ValueError(f"{text!r} is not {expected}")
    return match[1], match[2]
