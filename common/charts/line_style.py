"""How lines of transports look: each with a marker and a grey of its own, so that no colour is needed."""

from typing import Any

MARKERS = "osD^vP*Xph<>"
GREYS = ("0.0", "0.45", "0.65")


def line_style(index: int, copied: bool) -> dict[str, Any]:
    """Rows whose readers copy have full lines, those whose readers map dashed ones with hollow markers."""
    shade = GREYS[index % len(GREYS)]
    return {"color": shade, "marker": MARKERS[index % len(MARKERS)], "markerfacecolor": shade if copied else "white",
            "markersize": 6.5, "linestyle": "-" if copied else "--", "linewidth": 1.5}  # fmt: skip


def clear(axes: Any) -> None:
    """A faint grid, and no frame but the axes."""
    axes.grid(which="major", color="0.9", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
