# SPDX-License-Identifier: Apache-2.0
"""Make the charts of one step: what each process did, and the graph with its critical path."""

from raymeter.report.chart import Bar, Chart, Curve
from raymeter.report.critical import WORK, Link
from raymeter.report.lanes import Lanes
from raymeter.report.timeline import CALL_NAMES, Span, Timeline
from raymeter.simulate.graph import Edge, Graph
from raymeter.units import format_milliseconds

MIN_EDGE_SECONDS = 1e-6


def chart_timeline(timeline: Timeline, start: float, end: float) -> Chart:
    """Return what all processes did between two times, with the messages as arrows."""
    part = timeline.between(start, end)
    chart = Chart("Timeline of the step", start, end, [])
    lanes = Lanes(timeline.names)
    bars: dict[Span, Bar] = {}
    for span in part.spans:
        bar = make_bar(span)
        bars[span] = bar
        lanes.add(span.process, bar)
    lanes.fill(chart)
    for arrow in part.arrows:
        source = bars[arrow.source]
        target = bars[arrow.target]
        chart.curves.append(make_curve(source, target, "message"))
    return chart


def make_bar(span: Span) -> Bar:
    return Bar(
        start=span.start,
        end=span.end,
        kind=span.kind,
        label=span.name,
        title=span.describe(),
    )


def make_curve(source: Bar, target: Bar, kind: str) -> Curve:
    """Return a curve from the end of a bar to the start of another one."""
    return Curve(
        source=source,
        target=target,
        start=source.end,
        end=target.start,
        kind=kind,
        title=f"{source.title} -> {target.title}",
    )


def chart_graph(graph: Graph, path: list[Link], names: dict[str, str], chart: Chart) -> Chart:
    """Fill a chart with the work in the graph, what depends on what, and the critical path."""
    drawer = GraphDrawer(graph, names, chart)
    drawer.add_work()
    drawer.add_path(path)
    drawer.lanes.fill(chart)
    drawer.connect_dependencies()
    return chart


class GraphDrawer:
    """Draw the part of a graph that lies in the time of a chart."""

    def __init__(self, graph: Graph, names: dict[str, str], chart: Chart) -> None:
        self.graph = graph
        self.chart = chart
        self.lanes = Lanes(names)
        self.bars: dict[int, Bar] = {}  # by the id of their edge
        self.first: dict[int, Bar] = {}  # the work that begins at a point
        self.last: dict[int, Bar] = {}  # the work that ends at a point
        self.same: dict[tuple[str, int, float, float], Bar] = {}
        self.dependencies: list[tuple[int, int]] = []

    def add_work(self) -> None:
        """Add a bar for each edge with work, and remember the edges without."""
        for number, point in enumerate(self.graph.points):
            if not self.chart.start <= point.time <= self.chart.end:
                continue
            for edge in point.edges:
                if not edge.part:
                    self.dependencies.append((edge.source, number))
                elif edge.end - edge.start > MIN_EDGE_SECONDS:
                    self.add_edge(edge, number)

    def add_edge(self, edge: Edge, target: int) -> None:
        """Add the bar of an edge. The edges of a ray.get of several objects have one bar."""
        key = edge.process, edge.thread, edge.start, edge.end
        bar = self.same.get(key)
        if bar is None:
            bar = make_work_bar(edge)
            self.same[key] = bar
            self.lanes.add(edge.process, bar)
        self.bars[id(edge)] = bar
        self.first[edge.source] = bar
        self.last[target] = bar

    def add_path(self, path: list[Link]) -> None:
        """Mark the bars of the critical path, and connect those in different processes."""
        last: Bar | None = None
        last_process = ""
        for link in path:
            bar = self.find_bar(link)
            bar.is_critical = True
            bar.label = describe_link(link)
            bar.title = f"Critical path: {bar.label}, {format_milliseconds(link.seconds)}"
            if last is not None and last_process != link.process:
                self.chart.curves.append(make_curve(last, bar, "critical"))
            last = bar
            last_process = link.process

    def find_bar(self, link: Link) -> Bar:
        """Return the bar of a link, which is a new one for a wait."""
        bar = self.bars.get(id(link.edge))
        if bar is not None and link.part:
            return bar
        wait = Bar(link.start, link.end, "work wait", "")
        self.lanes.add(link.process, wait)
        return wait

    def connect_dependencies(self) -> None:
        """Add a curve for each edge without work between two bars."""
        for before, after in self.dependencies:
            source = self.last.get(before)
            target = self.first.get(after)
            if source and target:
                self.chart.curves.append(make_curve(source, target, "dependency"))


def make_work_bar(edge: Edge) -> Bar:
    label = WORK[edge.part]
    return Bar(
        start=edge.start,
        end=edge.end,
        kind=f"work {edge.part}",
        label=label,
        title=f"{label}: {format_milliseconds(edge.end - edge.start)}",
    )


def describe_link(link: Link) -> str:
    """Return what a part of the critical path is, such as "sends Trainer.train"."""
    if link.part == "restore":
        return "waits for arguments that are read from disk"
    if link.part == "start":
        return WORK["start"]
    if link.span is None:
        return f"{WORK[link.part]} its own code" if link.part else "waits"
    if link.part in ("deserialise", "store") or link.span.name in CALL_NAMES.values():
        return link.span.name
    return f"{WORK[link.part]} {link.span.name}"
