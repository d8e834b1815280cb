"""Show the configurations of the suite as a table: what each one needs, and whether this machine can measure it.

python3 -m dataflow list
python3 -m dataflow list --flow grpo --device cuda     for another flow, device or size
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dataflow.catalogue.catalogue import VARIANTS, Variant, readers_get_views
from dataflow.errors import UsageError
from dataflow.measure.batch import plan_configuration
from dataflow.plan.command_line import OneLineParser, parse_with_options


def describe_here(variant: Variant, given: Mapping[str, Any]) -> str:
    """Return "runs", or why this machine cannot measure the configuration."""
    try:
        reason = plan_configuration(variant.name, given)[0][1]
    except UsageError as error:
        reason = error
    return "runs" if reason is None else str(reason).removeprefix(f"{variant.transport.label}: ")


def describe_reading(variant: Variant) -> str:
    return "a view" if readers_get_views(variant.transport, variant.flags) else "a copy"


def main(argv: Sequence[str]) -> int:
    parser = OneLineParser(__doc__, "python3 -m dataflow list [flags]")
    _, given = parse_with_options(parser, argv)
    from dataflow.report.console import print_table  # imports numpy, for which a wrong flag should not wait
    from dataflow.report.tables import Column, make_table

    columns = [
        Column("configuration", lambda variant: variant.name),
        Column("readers get", describe_reading, is_text=True),
        Column("nodes", lambda v: "several" if v.transport.can_cross_nodes else "one", is_text=True),
        Column("on this machine", lambda variant: describe_here(variant, given), is_text=True),
        Column("description", lambda v: v.explanation or v.transport.summary, 1, is_text=True),
    ]
    print_table(make_table(VARIANTS, columns))
    return 0
