"""Say how other systems are shown beside Ray's and PyTorch's transports."""

from dataflow.report.sections import Table, draw_dots, title_of
from dataflow.report.sentences import describe_fastest
from dataflow.report.tables import MAIN_COLUMNS, READERS

SHOWN = [column for column in MAIN_COLUMNS if column.header not in ("status", "GB/s", "p95 ms")]
COLUMNS = [SHOWN[0], READERS, *SHOWN[1:]]


def make_peers_table(name: str) -> Table:
    return Table(
        name,
        columns=lambda group: COLUMNS,
        sentence=lambda group: describe_fastest(group.results),
        chart=lambda group: draw_dots(group, name.replace("-", "_"), f"Time per iteration: {title_of(group.done[0])}"),
    )


SECTIONS = {name: make_peers_table(name) for name in ("peers", "agentic", "shared-memory")}
