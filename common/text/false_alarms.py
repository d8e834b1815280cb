"""What came of pairs of rows that were alike, or delayed: a table and sentences."""

from collections.abc import Sequence

from common.analysis.false_alarms import Judged, planted
from common.text.tables import Column, markdown_table

COLUMNS = [
    Column("row", lambda one: one.row.name),
    Column("runs differ by", lambda one: f"{one.scatter:.1%}"),
    Column("pairs", lambda one: one.way, words=True),
    Column("runs a side", lambda one: str(one.count)),
    Column("planted", planted),
    Column("number", lambda one: str(len(one.pairs))),
    Column("slower", lambda one: str(one.called("slower"))),
    Column("faster", lambda one: str(one.called("faster"))),
    Column("between", lambda one: " to ".join(f"{pick(p.ratio.value for p in one.pairs):.3f}" for pick in (min, max))),
]  # fmt: skip


def summary(found: Sequence[Judged]) -> list[str]:
    """A sentence for each way and number of runs."""
    lines = []
    for way, count in dict.fromkeys((one.way, one.count) for one in found):
        own = [one for one in found if (one.way, one.count) == (way, count)]
        slower, faster = (sum(one.called(verdict) for one in own) for verdict in ("slower", "faster"))
        said = f"{slower} found slower" if own[0].row.injected else f"{slower + faster} called different"
        lines.append(f"Rows {way}: {sum(len(one.pairs) for one in own)} pairs of {count} runs each, {said}.")
    return lines


def markdown(found: Sequence[Judged]) -> str:
    """For docs/."""
    return "\n".join([markdown_table(found, COLUMNS), "", *(f"* {sentence}" for sentence in summary(found))])
