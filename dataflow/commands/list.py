"""Show the configurations of the suite as a table: what each one needs, and whether this machine can measure it.

python3 -m dataflow list
python3 -m dataflow list --flow grpo --device cuda     for another flow, device or size
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dataflow.catalogue.catalogue import VARIANTS, Variant, readers_get_views
from dataflow.errors import UsageError
from dataflow.plan.command_line import OneLineParser, parse_with_options, plan_configuration


def explain_skip(variant: Variant, given: Mapping[str, Any]) -> str | None:
    """Return why this machine cannot measure a configuration with these flags; None if it can."""
    try:
        reason = plan_configuration(variant.name, given)[0][1]
    except UsageError as error:
        return str(error).removeprefix(f"{variant.transport.label}: ")
    return str(reason) if reason else None


def main(argv: Sequence[str]) -> int:
    _, given = parse_with_options(OneLineParser(__doc__, "python3 -m dataflow list [flags]"), argv)
    from dataflow.report.render import print_table  # imports numpy, for which a wrong flag should not wait
    from dataflow.report.tables import Column, make_table

    reasons = {variant.name: explain_skip(variant, given) for variant in VARIANTS}
    if len({*reasons.values()}) == 1 and (reason := reasons[VARIANTS[0].name]):  # a wrong flag
        raise UsageError(reason)
    columns = [
        Column("configuration", lambda v: v.name),
        Column("readers get", lambda v: f"a {'view' if readers_get_views(v.transport, v.flags) else 'copy'}", 0, True),
        Column("nodes", lambda v: "several" if v.transport.can_cross_nodes else "one", is_text=True),
        Column("on this machine", lambda v: reasons[v.name] or "runs", is_text=True),
        Column("description", lambda v: v.explanation or v.transport.summary, 1, is_text=True),
    ]
    print_table(make_table(VARIANTS, columns))
    return 0
