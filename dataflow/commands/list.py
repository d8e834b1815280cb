# SPDX-License-Identifier: Apache-2.0
"""Show the configurations of the suite as a table: what each one needs, and whether this machine can measure it.

    python3 -m dataflow list
    python3 -m dataflow list --flow grpo --device cuda     for another flow, device or size

The column `a run takes about` has the time of all its iterations, without the start, from results/campaigns.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dataflow.catalogue.catalogue import (
    VARIANTS,
    Variant,
    later_messages_overwrite,
    readers_get_views,
)
from dataflow.commands.run import format_iterations, read_durations
from dataflow.errors import UsageError
from dataflow.plan.command_line import VerbParser, parse_with_options, plan_transport
from dataflow.plan.plan import Plan
from dataflow.plan.validate import LIST_SHOWS_ALL

PlannedVariant = tuple[Plan | None, str | None]  # and why this machine cannot measure it


def plan_variant(variant: Variant, given: Mapping[str, Any]) -> PlannedVariant:
    """Return the plan of a configuration with these flags, and why this machine cannot measure it."""
    try:
        plan, reason = plan_transport(variant.transport, {**given, **variant.flags})[0]
    except UsageError as error:
        text = str(error).removeprefix(f"{variant.transport.label}: ")
        return None, text.removesuffix(LIST_SHOWS_ALL)
    return plan, str(reason).removesuffix(LIST_SHOWS_ALL) if reason else None


def describe_reader(variant: Variant) -> str:
    if readers_get_views(variant.transport, variant.flags):
        return "a view"
    is_overwritten = later_messages_overwrite(variant.transport, variant.flags)
    return "a reused buffer" if is_overwritten else "a copy to keep"


def number_reasons(reasons: Sequence[str | None]) -> dict[str, int]:
    """Return a number for each different reason, in the order in which they appear."""
    numbers: dict[str, int] = {}
    for reason in reasons:
        if reason and reason not in numbers:
            numbers[reason] = len(numbers) + 1
    return numbers


def main(argv: Sequence[str]) -> int:
    """Print the table. On a terminal, reasons are below it, because they are too wide for a column.

    Raise UsageError if all configurations cannot run for the same reason: then a flag is wrong.
    """
    _, given = parse_with_options(VerbParser(__doc__, "python3 -m dataflow list [flags]"), argv)
    # These imports take time, and a wrong flag should not wait.
    from dataflow.report.render import print_table, print_text, terminal_width
    from dataflow.report.tables import make_table

    planned = {variant.name: plan_variant(variant, given) for variant in VARIANTS}
    reasons = [reason for _, reason in planned.values()]
    if len(set(reasons)) == 1 and reasons[0]:  # a wrong flag
        raise UsageError(reasons[0])
    numbers = number_reasons(reasons) if terminal_width() else {}
    print_table(make_table(VARIANTS, make_columns(planned, numbers)))
    for reason, number in numbers.items():
        print_text(f"({number}) {reason}")
    return 0


def make_columns(planned: Mapping[str, PlannedVariant], numbers: Mapping[str, int]) -> list[Any]:
    """Return the columns of the table; `numbers` has the numbers of reasons that are printed below it.

    The times are from the published campaigns; raise RecordError if one of their records cannot be read.
    """
    from dataflow.report.tables import Column

    durations = read_durations()

    def format_state(variant: Variant) -> str:
        reason = planned[variant.name][1]
        if reason is None:
            return "runs"
        return f"skipped ({numbers[reason]})" if numbers else reason

    return [
        Column("configuration", lambda variant: variant.name),
        Column("readers get", describe_reader, rank=2, is_text=True),
        Column(
            "nodes",
            lambda variant: "several" if variant.transport.can_cross_nodes else "one",
            rank=3,
            is_text=True,
        ),
        Column(
            "a run takes about",
            lambda variant: format_iterations(durations, *planned[variant.name]),
            rank=1,
            is_optional=True,
        ),
        Column("on this machine", format_state, is_text=True),
        Column(
            "description",
            lambda variant: variant.explanation or variant.transport.summary,
            rank=4,
            is_text=True,
        ),
    ]
