"""Draw a flow from the flow itself: tasks are boxes, messages are arrows."""

import textwrap
from dataclasses import dataclass

from matplotlib.figure import Figure

from common.flows.flow import DRIVER, Flow
from common.report.figures import WIDTH, make_panels, write_title

COLUMN, ROW = 2.2, 1.1  # from one box to the next; a box is about 1 wide and 0.5 high
RESULT = "the driver at the end"  # no task can have this name


@dataclass(frozen=True)
class FlowDiagram:
    """A flow with the driver at both ends. `labels` has the text at the arrow of each edge, by `str(edge)`."""

    file_name: str
    title: str
    flow: Flow
    labels: dict[str, str]
    caption: tuple[str, ...]

    def draw(self) -> Figure:
        """Return the figure."""
        centres = box_centres(self.flow)
        arrows = []
        for edge in self.flow.edges:
            start, end = centres[edge.source], centres[RESULT if edge.reader == DRIVER else edge.reader]
            bend = 0.0  # an arrow bends to pass around a column of boxes: up, or down if it is negative
            if end[0] - start[0] > COLUMN + 0.1:
                bend = (-0.35 if start[1] < 0 else 0.35) * (end[0] - start[0])
            arrows.append((edge, start, end, bend))
        rows, bends = [y for _, y in centres.values()], [bend for *_, bend in arrows]
        bottom, top = min(rows) - 0.7 + min(0, *bends) / 2, max(rows) + 0.5 + max(0, *bends) / 2
        width = max(centres[RESULT][0] + 1.4, 9.0)
        figure, (axes,) = make_panels(self.caption, [WIDTH / width * (top - bottom)])
        axes.set(xlim=(-0.7, width - 0.7), ylim=(bottom, top))
        axes.axis("off")
        titles = {task.name: task.title or task.name for task in self.flow.tasks} | {DRIVER: DRIVER, RESULT: DRIVER}
        boxes = {}
        for name, (x, y) in centres.items():
            style = {"boxstyle": "round,pad=0.6", "facecolor": "0.9" if titles[name] == DRIVER else "white"}
            text = "\n".join(textwrap.wrap(titles[name], 11))
            boxes[x, y] = axes.text(x, y, text, ha="center", va="center", fontsize=8.5, bbox=style).get_bbox_patch()
        for edge, start, end, bend in arrows:
            curve = f"arc3,rad={-bend / (end[0] - start[0])}"
            arrow = {"arrowstyle": "-|>", "color": "0.2", "connectionstyle": curve, "shrinkA": 4, "shrinkB": 4,
                     "patchA": boxes[start], "patchB": boxes[end]}  # fmt: skip
            axes.annotate("", end, start, arrowprops=arrow)
            # Arrows of one column meet at one end. Text is on the other side of an arrow than the bends.
            share = 0.5 if start[1] == end[1] else 0.62 if abs(end[1]) > abs(start[1]) else 0.38
            is_above = bend > 0 or (bend == 0 and start[1] < 0)
            x, y = (first + share * (last - first) for first, last in zip(start, end, strict=True))
            axes.text(x, y + bend / 2 + (0.06 if is_above else -0.06), self.labels[str(edge)], fontsize=8, ha="center",
                      va="bottom" if is_above else "top")  # fmt: skip
        write_title(figure, self.title)
        return figure


def box_centres(flow: Flow) -> dict[str, tuple[float, float]]:
    """Return the centre of each box. A task stands one column behind its last source."""
    columns: dict[str, int] = {}
    for task in flow.tasks:
        columns[task.name] = 1 + max((columns[source] for source in task.reads if source != DRIVER), default=0)
    centres = {DRIVER: (0.0, 0.0), RESULT: (COLUMN * (1 + max(columns.values())), 0.0)}
    for column in set(columns.values()):
        names = [name for name in columns if columns[name] == column]
        for index, name in enumerate(names):
            centres[name] = (COLUMN * column, ROW * ((len(names) - 1) / 2 - index))
    return centres
