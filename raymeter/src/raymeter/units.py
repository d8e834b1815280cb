# SPDX-License-Identifier: Apache-2.0
"""Write bytes and times for people, and read sizes that they give."""

import re

SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def format_bytes(count: float) -> str:
    """Return a number of bytes with at most three digits, such as "76.3 MiB"."""
    for unit in ("GiB", "MiB", "KiB"):
        if count >= SIZES[unit]:
            return f"{significant(count / SIZES[unit])} {unit}"
    return f"{count:.0f} B"


def format_milliseconds(seconds: float) -> str:
    """Return a time such as "96 ms", "1.8 ms" or "2,340 ms"."""
    return f"{significant(1e3 * seconds)} ms"


def significant(value: float, digits: int = 3) -> str:
    """Return a number with so many digits, a larger one as a whole number; no zero ends it after the point."""
    if value >= 10 ** (digits - 1) or value == 0:
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    if "e" in text:
        text = f"{value:.{digits + 3}f}"
    return text


def format_times(count: float) -> str:
    """Return "once", or a number such as "2.5 times"."""
    text = significant(count, 2)
    return "once" if text == "1" else f"{text} times"


def parse_bytes(text: str) -> int:
    """Return the bytes of a text such as "100KiB" or "1mb"; raise ValueError for another text."""
    sizes = {name.lower(): size for name, size in SIZES.items()}
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([kmg]i?b|b)", text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r}: give a size with its unit, such as 100KiB or 2MB")
    return int(float(match[1]) * sizes[match[2]])
