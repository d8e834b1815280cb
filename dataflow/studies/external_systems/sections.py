"""Say how other systems are shown beside Ray's and PyTorch's transports."""

from dataclasses import replace

from dataflow.report.sections import Table, draw_dots, title_of
from dataflow.report.sentences import describe_fastest
from dataflow.report.tables import MAIN_COLUMNS, READERS

SHOWN = [column for column in MAIN_COLUMNS if column.header not in ("status", "GB/s", "p95 ms")]
PEERS = Table(
    "peers",
    columns=lambda group: [SHOWN[0], READERS, *SHOWN[1:]],
    sentence=lambda group: describe_fastest(group.results),
    chart=lambda group: draw_dots(
        group, group.done[0].table.replace("-", "_"), f"Time per iteration: {title_of(group.done[0])}"
    ),
)
SECTIONS = {name: replace(PEERS, name=name) for name in ("peers", "agentic", "shared-memory")}
