"""Plan a configuration that is written as on the command line. Nothing is measured."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dataflow.catalogue.catalogue import CONFIGURATIONS, TRANSPORTS
from dataflow.errors import UsageError, did_you_mean
from dataflow.flows.catalogue import build_flow
from dataflow.plan.command_line import make_options, parse_flags
from dataflow.plan.plan import Plan, resolve_plan

Planned = tuple[Plan, UsageError | None]  # and why it cannot be measured


def split_configuration(text: str) -> tuple[str, str, dict[str, Any]]:
    """Return the runtime, the transport and the flags of a configuration; raise UsageError if it is unknown."""
    try:
        runtime, transport, *words = shlex.split(text)
    except ValueError:
        meant = " or ".join(f'"{label}"' for label in TRANSPORTS if label.split()[1] == text.strip())
        advice = f"did you mean {meant}?" if meant else "give a runtime and a transport, and close every quote"
        raise UsageError(f"'{text}': {advice}") from None
    if f"{runtime} {transport}" not in TRANSPORTS:
        same = [label for label in TRANSPORTS if label.split()[1] == transport]
        meant = f": did you mean {same[0]}?" if same else did_you_mean(text, CONFIGURATIONS)
        raise UsageError(f"unknown configuration {text}{meant} (python3 -m dataflow list shows all)")
    return runtime, transport, parse_flags(words)


def plan_configuration(
    text: str, given: Mapping[str, Any], suite: str = "", table: str = "", traced: bool = False
) -> list[Planned]:
    """Return the plan of a configuration, such as "graph shm --huge-pages"; with --sweep, one per value.

    `given` are the flags of all configurations. They override the flags of a suite, but not those that a user writes
    into the text. A value of a sweep that does not fit is skipped, unless it is the smallest one.
    """
    runtime, transport, own = split_configuration(text)
    values = {**own, **given} if suite else {**given, **own}
    if traced:
        values["trace"] = True
    planned: list[Planned] = []
    for options in make_options(transport, values):
        try:
            planned.append(resolve_plan(runtime, options, suite, table))
        except UsageError as error:
            try:
                flow = build_flow(options.flow, options.sizes, options.message)
                smallest, _ = planned[0]
            except (ValueError, IndexError):
                raise UsageError(f"{runtime} {transport}: {error}") from None
            planned.append((replace(smallest, options=options, requested_flow=flow), error))
    return planned
