# SPDX-License-Identifier: Apache-2.0
"""Draw the memory of the object store over time for the page."""

from raymeter.profile.reader import Recording
from raymeter.report.store_samples import StoreSample, store_samples
from raymeter.units import format_bytes, significant

WIDTH = 1_000  # of the drawing
HEIGHT = 200
HEADROOM = 1.1  # above the highest value


def draw_memory(recording: Recording) -> str:
    """Return the section about memory; "" if there are fewer than two samples, or nothing was in the store."""
    samples = store_samples(recording)
    highest = max((max(sample.used, sample.spilled) for sample in samples), default=0)
    if len(samples) < 2 or not highest:
        return ""
    scale = Scale(
        start=samples[0].time,
        end=samples[-1].time,
        top=HEADROOM * highest,
    )
    used = scale.line([(sample.time, sample.used) for sample in samples])
    spilled = ""
    if any(sample.spilled for sample in samples):
        line = scale.line([(sample.time, sample.spilled) for sample in samples])
        spilled = f'<path class="spilled" d="M{line}"/>'
    note = describe_samples(samples)
    duration = significant(scale.end - scale.start)
    return (
        "<section><h2>Memory of the object store</h2>"
        f'<p class="note">{note}</p>'
        '<div class="memory">'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        'aria-label="Bytes in the object store over time">'
        f'<path class="used" d="M0 {HEIGHT}L{used}L{WIDTH} {HEIGHT}Z"/>'
        f"{spilled}</svg>"
        f'<span style="left:0;top:0">{format_bytes(scale.top)}</span>'
        '<span style="left:0;bottom:0">0 s</span>'
        f'<span style="right:0;bottom:0">{duration} s</span>'
        "</div></section>"
    )


def describe_samples(samples: list[StoreSample]) -> str:
    """Return the highest use, the size of the store, and what was written to disk."""
    used = max(sample.used for sample in samples)
    capacity = samples[-1].capacity
    spilled = max(sample.spilled for sample in samples)
    text = f"At most {format_bytes(used)} of {format_bytes(capacity)} were used (area)"
    if used > capacity:
        text += ", because objects that do not fit are in files"
    if not spilled:
        return f"{text}; nothing was spilled to disk."
    return f"{text}; {format_bytes(spilled)} were spilled to disk (line)."


class Scale:
    """The positions of times and bytes in the drawing."""

    def __init__(self, start: float, end: float, top: float) -> None:
        self.start = start
        self.end = end
        self.top = top

    def line(self, values: list[tuple[float, int]]) -> str:
        """Return the points of a line as SVG."""
        points = []
        for time, count in values:
            left = WIDTH * (time - self.start) / max(1e-9, self.end - self.start)
            top = HEIGHT * (1 - count / self.top)
            points.append(f"{left:.1f} {top:.1f}")
        return "L".join(points)
