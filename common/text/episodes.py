"""ChatLearn's own episodes over every transport: the table, and what the demo's factor becomes."""

from collections.abc import Sequence
from typing import Any

from common.analysis.results import Result
from common.text.tables import Column, harness, markdown_table, milliseconds, provenance, three_digits
from common.units import format_bytes

DEMO_FACTOR = 279.23 / 35.37  # queues over the compiled graph: kevin85421/RayCG-ChatLearn, README.md, commit 0a603161
AS_SHIPPED = "store ref-queue"


def is_episode(result: Result) -> bool:
    """Whether the row moves messages of several samples, by fields or packed, in episodes of ChatLearn's."""
    row = result.record.row
    return row.message != "bare" and "rows" in row.sizes and "episode" in row.flags


def is_flat_episode(result: Result, episodes: Sequence[Result]) -> bool:
    """Whether it moves flat tensors of as many bytes as the messages of these, in episodes of the same length."""
    rounded = 4 * len(result.record.edges)  # each edge to whole numbers
    return result.record.row.message == "bare" and any(
        other.episode == result.episode > 1
        and abs(other.record.bytes_per_trip - result.record.bytes_per_trip) <= rounded
        for other in episodes
    )


def short_name(result: Result) -> str:
    """Without the length of the episode, which all rows share."""
    words = result.name.replace("--message packed", "packed").replace("--as-shipped", "as shipped").split()
    for flag in ("--episode", "--in-flight"):
        if flag in words:
            del words[words.index(flag) : words.index(flag) + 2]
    return " ".join(words)


def groups(results: Sequence[Result]) -> list[list[Result]]:
    """Rows of the same messages in episodes of the same length belong together, the larger episodes first."""
    found: dict[tuple[Any, ...], list[Result]] = {}
    for result in results:
        edges = tuple((edge.source, edge.reader, edge.bytes) for edge in result.record.edges)
        found.setdefault((result.record.row.flow, edges, result.episode), []).append(result)
    return sorted(found.values(), key=lambda group: -group[0].episode)


def described(group: Sequence[Result]) -> str:
    """What the rows of a group have in common."""
    first, rows = group[0], group[0].record.row.sizes["rows"]
    sizes = format_bytes(first.record.bytes_per_trip)
    padding = first.record.row.sizes.get("padding", "")
    how = f", padded as {padding} does" if padding else ""
    return f"{first.flow.title}, episodes of {first.episode} messages of {rows} samples{how}, {sizes} a message"


def baseline(results: Sequence[Result]) -> Result | None:
    """The queue transport as ChatLearn ships it, with the driver at its end."""
    return next((result for result in results if result.status == "ok" and result.record.row.sizes.get("as_shipped")
                 and result.rung.startswith(AS_SHIPPED) and "--sink" not in result.rung), None)  # fmt: skip


def columns(results: Sequence[Result]) -> list[Column]:
    shipped = baseline(results)

    def factor(result: Result) -> str:
        return f"{three_digits(shipped.paced_seconds / result.paced_seconds)}x" if shipped else "-"

    def of_ceiling(result: Result) -> str:
        ceiling = result.ceiling_seconds
        return f"{ceiling / result.paced_seconds:.1%}" if ceiling and result.payload_copied else "-"

    def in_flight(result: Result) -> str:
        return str(result.in_flight)

    return [
        Column("transport", short_name),
        Column("in flight", in_flight),
        Column("s an episode", lambda r: three_digits(r.paced_seconds * r.episode)),
        Column("ms a message", lambda r: milliseconds(r.paced_seconds)),
        Column("samples/s", lambda r: f"{int(r.record.row.sizes['rows']) / r.paced_seconds:,.0f}"),
        Column("stored a message", lambda r: format_bytes(round(r.stored_bytes_per_trip), ("iB",))),
        Column("ends with", lambda r: "bytes" if r.payload_copied else "views", words=True),
        Column("of ceiling", of_ceiling),
        Column("harness", lambda r: harness(r.harness_share)),
        Column("over as shipped", factor),
        Column("runs", lambda r: str(len(r.shown))),
    ]


def findings(results: Sequence[Result]) -> str:
    """What the demo's factor becomes, in words."""
    shipped, done = baseline(results), [result for result in results if result.status == "ok"]
    if shipped is None:
        return ""

    def best(words: Sequence[str], copied: bool | None = None, without: Sequence[str] = ()) -> str | None:
        named = [(result, short_name(result)) for result in done if copied in (None, result.payload_copied)]
        found = [result for result, name in named if all(word in name for word in words)
                 and not any(word in name for word in without)]  # fmt: skip
        if not found:
            return None
        fastest = min(found, key=lambda result: result.paced_seconds)
        factor = three_digits(shipped.paced_seconds / fastest.paced_seconds)
        return f"{factor} times (`{short_name(fastest)}`)"

    plain, trainer = ("packed", "as shipped", "--", "zero-copy", "mapped"), "--sink"
    lines = [
        ("the same queues with compact messages", best(["store ref-queue"], None, ("packed", "as shipped", "--"))),
        ("the same queues with packed messages", best(["store ref-queue", "packed"], None, ("--",))),
        ("a compiled graph alone, with the messages as they are", best(["graph"], True, plain)),
        ("the fastest that leaves readers bytes of their own", best([], True, ("memcpy", trainer))),
        ("the fastest whose readers map", best([], False, (trainer,))),
    ]
    told = "; ".join(f"{what} {factor}" for what, factor in lines if factor)
    cost, rows = milliseconds(shipped.paced_seconds), shipped.record.row.sizes["rows"]
    return (
        f"The demo promises {DEMO_FACTOR:.1f} times for a compiled graph over queues. ChatLearn's own messages, "
        f"against its queues as shipped ({cost} ms a message of {rows} samples) on this machine: {told}."
    )


def markdown(results: Sequence[Result], flat: Sequence[Result] = ()) -> str:
    """Of each group what it is, the findings and the table; beside packed messages flat ones of as many bytes."""
    parts = []
    for group in groups([result for result in results if result.status == "ok"]):
        group.sort(key=lambda result: result.paced_seconds, reverse=True)
        parts += [f"**{described(group)}.** {findings(group)}", markdown_table(group, columns(group))]
        pairs = beside_flat(group, flat)
        if pairs:
            parts += [
                "Fields packed into one buffer, beside flat tensors of as many bytes:",
                markdown_table(pairs, BESIDE_FLAT),
            ]
    return "\n\n".join([*parts, facts(results)])


BESIDE_FLAT = [
    Column("transport", lambda pair: short_name(pair[1])),
    Column("packed, ms a message", lambda pair: milliseconds(pair[0].paced_seconds)),
    Column("flat, ms a message", lambda pair: milliseconds(pair[1].paced_seconds)),
    Column("packed / flat", lambda pair: f"{pair[0].paced_seconds / pair[1].paced_seconds:.2f}"),
    Column("runs", lambda pair: ", ".join(str(len(result.shown)) for result in pair)),
]


def beside_flat(group: Sequence[Result], flat: Sequence[Result]) -> list[tuple[Result, Result]]:
    """Packed rows, each with the same row of flat tensors."""
    packed = {short_name(result): result for result in group if result.record.row.message == "packed"}
    alike = [result for result in flat if result.status == "ok" and is_flat_episode(result, group)]
    by_name = {f"{short_name(result)} packed": result for result in alike}
    return [(result, by_name[name]) for name, result in packed.items() if name in by_name]


def facts(results: Sequence[Result]) -> str:
    """Machine, day and commit."""
    *machines, day = provenance(results)
    how = "of whole episodes, the rows in turns, the median of the runs"
    return "\n".join([*machines, f"{day.rstrip('.')}; {how}."])
