"""Read --sweep: one Options per value of a flag."""

import argparse
from collections.abc import Callable
from typing import Any

from dataflow.errors import UsageError
from dataflow.flows.catalogue import flag_name
from dataflow.plan.options import FLAGS, Options

SWEPT_FLAGS = ("batch-size", "actors", "iteration-bytes", "fields", "in-flight")
POINTS = "FIRST:LAST:FACTORx, FIRST:LAST:+STEP or VALUE,VALUE,..."
MAX_POINTS = 64
POINT_SECONDS = 1.0  # of timed iterations per value of a sweep, without --duration or --iterations
POINT_WARMUP = 3  # untimed iterations per value


def expand_sweep(given: dict[str, Any], value_parser: Callable[[Any], Callable[[str], Any]]) -> list[Options]:
    """Return the options at each value of --sweep, the smallest first; raise UsageError if it cannot be read."""
    text = given["sweep"]
    name, _, points = text.partition("=")
    if name not in SWEPT_FLAGS:
        raise UsageError(f"--sweep {text}: give NAME={POINTS}, NAME one of {', '.join(SWEPT_FLAGS)}")
    field = next(field for field in FLAGS if flag_name(field.name) == f"--{name}")
    if field.name in given:
        raise UsageError(f"--sweep {text} and --{name}: leave one of them out")
    if not given.keys() & {"iterations", "duration"}:
        given = {"warmup": POINT_WARMUP, **given, "duration": POINT_SECONDS}
    try:
        values = sorted(set(parse_points(points, value_parser(field))))
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise UsageError(f"--sweep {text}: {error}: give {POINTS}") from None
    if not 2 <= len(values) <= MAX_POINTS:
        raise UsageError(f"--sweep {text}: give 2 to {MAX_POINTS} values")
    return [Options(**{**given, field.name: value}) for value in values]


def parse_points(text: str, parse: Callable[[str], int]) -> list[int]:
    if ":" not in text:
        return [parse(part) for part in text.split(",")]
    if text.count(":") != 2:
        raise ValueError("not FIRST:LAST:STEP")
    first, last, step = text.split(":")
    values: list[int] = []
    value = float(parse(first))
    while value <= parse(last) * (1 + 1e-9) and len(values) <= MAX_POINTS:  # a factor of 1.1 may end just above LAST
        values.append(parse(str(round(value))))  # within the same bounds as a value that is given
        value = value * float(step[:-1]) if step.endswith("x") else value + parse(step.removeprefix("+"))
    return values
