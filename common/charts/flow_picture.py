"""Pictures of a flow, drawn from the flow itself: tasks as boxes, edges as arrows."""

import textwrap
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from common.charts import png
from common.flow.flow import DRIVER, Edge, Flow
from common.units import format_bytes

BOX = (1.5, 0.62)  # width and height, in the picture's units
COLUMN, LINE = 3.0, 1.0  # from one column of boxes to the next, and from one box to the one below
RESULT = "the result's box"  # the driver's second one; no task can be called so


def draw_all(flow: Flow, folder: Path) -> list[Path]:
    """What is simulated; of the demo's flow also how ChatLearn moves it, and how one graph does."""
    queues = {str(edge): "queue" for edge in flow.edges}
    graph = {str(edge): "shared memory" if DRIVER in (edge.source, edge.reader) else "NCCL" for edge in flow.edges}
    sizes = {str(edge): format_bytes(edge.bytes) for edge in flow.edges}
    pictures = [
        ("simulation", sizes, f"What is simulated: {flow.title}, {format_bytes(flow.bytes_per_trip)} a trip",
         "The clock runs from the query in the driver's hand until its result is there. No model computes."),
    ]  # fmt: skip
    if flow.name == "online-dpo":
        pictures += [
            ("chatlearn_data_flow", queues, f"ChatLearn: {flow.title} over queues and the object store",
             "A queue actor for each edge carries references; each reader fetches the payload from the object store."),
            ("chatlearn_with_raycg", graph,
             f"The same flow as one Ray compiled graph, with a GPU for each role: {flow.title}",
             "The driver is never an NCCL rank, so the first and the last edge go through host memory."),
        ]  # fmt: skip
    for name, labels, title, note in pictures:
        draw(flow, folder / f"{name}.png", title, labels, note)
    return [folder / f"{name}.png" for name, *_ in pictures]


def positions(flow: Flow) -> dict[str, tuple[float, float]]:
    """Where each box stands: a column behind its latest source; tasks of one column share its height."""
    column: dict[str, int] = {}
    for task in flow.tasks:
        column[task.name] = 1 + max((column[source] for source in task.reads if source != DRIVER), default=0)
    places = {DRIVER: (0.0, 0.0), RESULT: (COLUMN * (1 + max(column.values())), 0.0)}
    for number in set(column.values()):
        names = [name for name in column if column[name] == number]
        for index, name in enumerate(names):
            places[name] = (COLUMN * number, LINE * ((len(names) - 1) / 2 - index))
    return places


def draw(flow: Flow, path: Path, title: str, labels: dict[str, str], note: str) -> None:
    """Draw the flow into `path`.

    Args:
        flow: what to draw.
        path: the PNG file.
        title: the first line.
        labels: edge (as text) -> what stands at its arrow.
        note: the line below the picture.
    """
    places = positions(flow)
    left, right = -1.3, places[RESULT][0] + 1.3
    half = max(y for _, y in places.values()) + BOX[1] / 2
    above, below = (max((span for edge in flow.edges if (span := _arch(edge, places)) * side > 0), key=abs, default=0)
                    for side in (1, -1))  # fmt: skip
    words = textwrap.wrap(title, int(10.5 * (right - left)))
    top, bottom = half + 0.18 * above + 0.35 + 0.35 * len(words), -half + 0.18 * below - 0.75
    figure = Figure(figsize=(0.95 * (right - left), 0.95 * (top - bottom)), dpi=150)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.axis("off")
    axes.text(left + 0.2, top - 0.15, "\n".join(words), fontsize=12, weight="bold", va="top")
    axes.text(left + 0.2, bottom + 0.25, note, fontsize=8.5, color="0.25", va="center")
    for edge in flow.edges:
        _arrow(axes, edge, places, labels[str(edge)])
    titles = {task.name: task.title or task.name for task in flow.tasks} | {DRIVER: "driver", RESULT: "driver"}
    for name, (x, y) in places.items():
        face = "0.9" if name in (DRIVER, RESULT) else "white"
        corner = (x - BOX[0] / 2, y - BOX[1] / 2)
        axes.add_patch(FancyBboxPatch(corner, *BOX, boxstyle="round,pad=0.06", facecolor=face, edgecolor="black"))
        axes.text(x, y, titles[name], ha="center", va="center", fontsize=10 if len(titles[name]) < 17 else 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    png.save(figure, path)


def _arch(edge: Edge, places: dict[str, tuple[float, float]]) -> float:
    """How far an arrow goes that passes over a column: below, as a negative number, from a lower box; 0 for others."""
    (x0, y0), (x1, _) = places[edge.source], places[_reader(edge)]
    return 0.0 if x1 - x0 < COLUMN + 0.1 else x0 - x1 if y0 < 0 else x1 - x0


def _reader(edge: Edge) -> str:
    return RESULT if edge.reader == DRIVER else edge.reader


def _arrow(axes, edge: Edge, places: dict[str, tuple[float, float]], text: str) -> None:
    """An arrow between two boxes; one that passes over a column bends around it."""
    (x0, y0), (x1, y1) = places[edge.source], places[_reader(edge)]
    half_width, half_height = BOX[0] / 2 + 0.08, BOX[1] / 2 + 0.08
    arch = _arch(edge, places)
    if arch:
        side = 1 if arch > 0 else -1
        start, end, bend = (x0, y0 + side * half_height), (x1, y1 + side * half_height), f"arc3,rad={-0.28 * side}"
        where = ((x0 + x1) / 2, (y0 + y1) / 2 + side * half_height + 0.14 * arch + (0.08 if side > 0 else -0.28))
    else:
        start, end, bend = (x0 + half_width, y0), (x1 - half_width, y1), "arc3"
        # Near the end that is its own: arrows of one column meet at the other.
        share = 0.5 if y0 == y1 else 0.62 if abs(y1) > abs(y0) else 0.38
        where = (start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1]) + 0.06)
    axes.add_patch(FancyArrowPatch(start, end, connectionstyle=bend, arrowstyle="-|>", mutation_scale=13, color="0.2"))
    white = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
    axes.text(*where, text, ha="center", va="bottom", fontsize=8.5, bbox=white)
