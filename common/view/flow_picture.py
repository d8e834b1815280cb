"""Pictures of a flow, drawn from the flow itself: tasks as boxes, edges as arrows."""

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from common.flow.flow import DRIVER, Edge, Flow

BOX = (1.5, 0.62)  # width and height, in the picture's units; columns are 2.7 apart


def positions(flow: Flow) -> dict[str, tuple[float, float]]:
    """Where each box stands: a column behind its latest source; tasks of one column share its height."""
    column: dict[str, int] = {}
    for task in flow.tasks:
        column[task.name] = 1 + max((column[source] for source in task.reads if source != DRIVER), default=0)
    places = {DRIVER: (0.0, 0.0), "result": (2.7 * (1 + max(column.values())), 0.0)}
    for number in set(column.values()):
        names = [name for name in column if column[name] == number]
        for index, name in enumerate(names):
            places[name] = (2.7 * number, 1.4 * ((len(names) - 1) / 2 - index))
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
    width = places["result"][0]
    figure = Figure(figsize=(0.95 * (width + 2.6), 2.9), dpi=150)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-1.3, width + 1.3)
    axes.set_ylim(-1.1, 1.95)
    axes.axis("off")
    axes.text(-1.1, 1.7, title, fontsize=12, weight="bold", va="center")
    axes.text(-1.1, -0.85, note, fontsize=8.5, color="0.25", va="center")
    titles = {task.name: task.title or task.name for task in flow.tasks} | {DRIVER: "driver", "result": "driver"}
    for name, (x, y) in places.items():
        face = "0.9" if name in (DRIVER, "result") else "white"
        corner = (x - BOX[0] / 2, y - BOX[1] / 2)
        axes.add_patch(FancyBboxPatch(corner, *BOX, boxstyle="round,pad=0.06", facecolor=face, edgecolor="black"))
        axes.text(x, y, titles[name], ha="center", va="center", fontsize=10)
    for edge in flow.edges:
        _arrow(axes, edge, places, labels[str(edge)])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _arrow(axes, edge: Edge, places: dict[str, tuple[float, float]], text: str) -> None:
    """An arrow between two boxes; one that passes over a column bends around it."""
    (x0, y0), (x1, y1) = places[edge.source], places["result" if edge.reader == DRIVER else edge.reader]
    passes_over = x1 - x0 > 3
    half_width, half_height = BOX[0] / 2 + 0.08, BOX[1] / 2 + 0.08
    start, end = ((x0, y0 + half_height), (x1, y1 + half_height)) if passes_over else (
        (x0 + half_width, y0), (x1 - half_width, y1))  # fmt: skip
    bend = "arc3,rad=-0.28" if passes_over else "arc3"
    axes.add_patch(FancyArrowPatch(start, end, connectionstyle=bend, arrowstyle="-|>", mutation_scale=13, color="0.2"))
    height = y0 + half_height + 0.14 * (x1 - x0) + 0.08 if passes_over else (y0 + y1) / 2 + 0.07
    axes.text((x0 + x1) / 2, height, text, ha="center", va="bottom", fontsize=8.5)
