"""Build the table of the size of one message: from which size on does it help that freed memory stays in a process?"""

from collections.abc import Mapping, Sequence

from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import Result
from dataflow.analysis.statistics import MIN_RUNS
from dataflow.report.sentences import PAIR_COLUMNS, format_factor
from dataflow.report.tables import Column, Section, make_table
from dataflow.units import format_bytes


def build_retained_sizes(done: list[Result], group: list[Result], everything: Sequence[Result]) -> list[Section]:
    """Return a line per size that was measured with and without --retain-memory."""
    by_size: dict[int, dict[bool, Result]] = {}
    for result in sorted(done, key=payload_bytes):
        by_size.setdefault(payload_bytes(result), {})["retain_memory" in result.configuration.flags] = result
    pairs = {size: Pair(both[False], both[True]) for size, both in by_size.items() if len(both) == 2}
    columns = [Column("bytes per iteration", lambda pair: format_bytes(payload_bytes(pair.old))), *PAIR_COLUMNS]
    title = f"{done[0].flow.title}: one message per iteration, {done[0].transport.label}"
    return [Section("retained-memory", title, describe_sizes(pairs), make_table([*pairs.values()], columns))]


def payload_bytes(result: Result) -> int:
    return int(result.workload.sizes["payload"])


def describe_sizes(pairs: Mapping[int, Pair]) -> str:
    """Return the smallest size from which on all are clearly faster with --retain-memory, and the ratio of each."""
    if any(pair.ratio.runs < MIN_RUNS for pair in pairs.values()):
        return f"A clear difference needs {MIN_RUNS} runs or more per configuration."
    clear: list[str] = []
    others = list(pairs)
    while others and pairs[others[-1]].ratio.verdict == "faster":
        size = others.pop()
        clear.insert(0, f"{format_bytes(size)}: {format_factor(pairs[size].ratio, '95 % interval ')}")
    if not clear:
        return "There is no size from which on `--retain-memory` is clearly faster."
    text = f"`--retain-memory` is clearly faster from {format_bytes(size)} per message on. {'; '.join(clear)}."
    return f"{text} At {format_bytes(others[-1])}, it is not clearly faster." if others else text
