"""--sweep: one row at several sizes, a run each, as `payload=1KiB:1GiB:4x`, `in-flight=1:4:+1` or `fields=1,8,64`."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from common.plan.kinds import at_least, bytes_at_least, did_you_mean

# What can be swept, with its bounds: the options of these names take them from here.
SWEPT: dict[str, Callable[[str], int]] = {
    "payload": bytes_at_least(1),
    "rows": at_least(1, 100_000),
    "fields": at_least(1, 10_000),
    "in_flight": at_least(1, 64),
    "roles": at_least(1, 64),  # each is a process
}
POINTS = "FIRST:LAST:FACTORx, FIRST:LAST:+STEP or VALUE,VALUE,..."
MOST_POINTS = 64
POINT_SECONDS = 1.0  # of timed trips, without --duration or --iterations


@dataclass(frozen=True)
class Sweep:
    """An option and the values that it has, one after the other, the smallest first."""

    name: str
    values: tuple[int, ...]
    text: str

    @staticmethod
    def parse(text: str) -> "Sweep":
        """`NAME=FIRST:LAST:FACTORx`, `NAME=FIRST:LAST:+STEP` or `NAME=VALUE,VALUE,...`."""
        name, _, points = text.partition("=")
        option = name.strip().replace("-", "_")
        if option not in SWEPT or not points:
            known = [name.replace("_", "-") for name in SWEPT]
            hint = did_you_mean(name, known)
            raise argparse.ArgumentTypeError(f"{text!r}: give {', '.join(known)}, each as NAME={POINTS}{hint}")
        values = tuple(sorted(set(_values(points, SWEPT[option]))))
        if len(values) < 2:
            raise argparse.ArgumentTypeError(f"{text!r} is one point: give two or more")
        return Sweep(option, values, text)


def _values(points: str, value: Callable[[str], int]) -> list[int]:
    first, *rest = points.split(":")
    if not rest:
        return [value(part) for part in points.split(",")]
    if len(rest) != 2:
        raise argparse.ArgumentTypeError(f"{points!r}: give {POINTS}")
    lowest, highest, (step, add, factor) = value(first), value(rest[0]), _step(rest[1], value)
    found, at = [], float(lowest)
    while at <= highest * (1 + 1e-9):  # a factor of 1.1 may fall short of its last value by a rounding
        found.append(round(at))
        at = at * factor + add
        if len(found) > MOST_POINTS:
            raise argparse.ArgumentTypeError(f"{points!r} is more than {MOST_POINTS} points: give a larger {step}")
    return found


def _step(text: str, value: Callable[[str], int]) -> tuple[str, int, float]:
    if text.startswith("+"):
        return "step", value(text[1:]), 1.0
    try:
        factor = float(text.removesuffix("x")) if text.endswith("x") else 0.0
    except ValueError:
        factor = 0.0
    if not 1 < factor < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: a step is a factor over 1, as 4x, or a sum, as +2")
    return "factor", 0, factor
