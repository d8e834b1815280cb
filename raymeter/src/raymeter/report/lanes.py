# SPDX-License-Identifier: Apache-2.0
"""Choose which processes and bars a chart shows, if a step has very many."""

from raymeter.report.chart import Bar, Chart, ChartLane

MAX_LANES = 24
MAX_BARS = 2_000  # of a chart: the longest


class Lanes:
    """A lane for each process, of which those with most bars are shown."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names
        self.bars: dict[str, list[Bar]] = {}
        for process in names:
            self.bars[process] = []

    def add(self, process: str, bar: Bar) -> None:
        self.bars.setdefault(process, []).append(bar)

    def fill(self, chart: Chart) -> None:
        """Add the lanes with most bars to a chart, and their longest bars, and count what is left out.

        A bar is left out, too, if its lane has no row in which it has room.
        """
        processes = self.choose_processes()
        chart.lanes_left_out = len(self.bars) - len(processes)
        bars: list[Bar] = []
        for process in processes:
            bars += self.bars[process]
        bars.sort(key=lambda bar: bar.end - bar.start, reverse=True)
        kept = set(bars[:MAX_BARS])
        for process in processes:
            lane = ChartLane(self.names.get(process, process))
            chart.lanes.append(lane)
            for bar in sorted(self.bars[process], key=lambda bar: (bar.start, -bar.end)):
                was_added = bar in kept and lane.add(bar)
                if not was_added:
                    chart.left_out += 1

    def choose_processes(self) -> list[str]:
        """Return the processes with a lane, in their order."""
        by_bars = sorted(self.bars, key=lambda process: len(self.bars[process]), reverse=True)
        chosen = by_bars[:MAX_LANES]
        return [process for process in self.bars if process in chosen]
