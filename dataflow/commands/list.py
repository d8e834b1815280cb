"""Show the configurations of the suite as a table: what each one needs, and whether this machine can measure it.

The column `a run takes about` has the time of all its iterations, without the start, from results/campaigns.

python3 -m dataflow list
python3 -m dataflow list --flow grpo --device cuda     for another flow, device or size
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dataflow.catalogue.catalogue import VARIANTS, Variant, readers_get_views
from dataflow.commands.run import read_durations
from dataflow.errors import UsageError
from dataflow.plan.command_line import OneLineParser, parse_with_options, plan_configuration
from dataflow.plan.plan import Plan


def plan_variant(variant: Variant, given: Mapping[str, Any]) -> tuple[Plan | None, str | None]:
    """Return the plan of a configuration with these flags, and why this machine cannot measure it."""
    try:
        plan, reason = plan_configuration(variant.name, given)[0]
    except UsageError as error:
        return None, str(error).removeprefix(f"{variant.transport.label}: ")
    return plan, str(reason) if reason else None


def main(argv: Sequence[str]) -> int:
    _, given = parse_with_options(OneLineParser(__doc__, "python3 -m dataflow list [flags]"), argv)
    from dataflow.report.render import (
        print_table,
    )  # imports numpy, for which a wrong flag should not wait
    from dataflow.report.tables import Column, make_table

    planned = {variant.name: plan_variant(variant, given) for variant in VARIANTS}
    reasons = {reason for _, reason in planned.values()}
    if len(reasons) == 1 and (reason := reasons.pop()):  # a wrong flag
        raise UsageError(reason)
    format_duration = read_durations()
    columns = [
        Column("configuration", lambda v: v.name),
        Column(
            "readers get",
            lambda v: f"a {'view' if readers_get_views(v.transport, v.flags) else 'copy'}",
            0,
            True,
        ),
        Column(
            "nodes", lambda v: "several" if v.transport.can_cross_nodes else "one", is_text=True
        ),
        Column("a run takes about", lambda v: format_duration(*planned[v.name]), is_optional=True),
        Column("on this machine", lambda v: planned[v.name][1] or "runs", is_text=True),
        Column("description", lambda v: v.explanation or v.transport.summary, 1, is_text=True),
    ]
    print_table(make_table(VARIANTS, columns))
    return 0
