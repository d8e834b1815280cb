# SPDX-License-Identifier: Apache-2.0
"""Write the table of the messages that took most work."""

from dataclasses import dataclass

from raymeter.advice import Profile
from raymeter.profile.groups import Group
from raymeter.report.words import name_route, name_way, relative, say_count, wrap_words
from raymeter.units import format_bytes

MIN_LISTED_SHARE = 0.01  # of a step; smaller messages are not listed
MIN_ROUTE_WIDTH = 20  # of the last column
TITLE = "The messages with most work, in all processes together:"


@dataclass(frozen=True)
class Row:
    """The cells of a message."""

    milliseconds: str
    count: str
    size: str
    way: str
    route: str
    line: str = ""

    def numbers(self, widths: list[int]) -> str:
        """Return the cells before the route, each as wide as its column."""
        padded = [
            self.milliseconds.rjust(widths[0]),
            self.count.rjust(widths[1]),
            self.size.rjust(widths[2]),
            self.way.rjust(widths[3]),
        ]
        return "  ".join(padded)


HEADER = Row("ms/step", "per step", "size", "sent as", "message")


def list_messages(profile: Profile, count: int, width: int) -> list[str]:
    """Return the lines of the table of the large messages, at most `count` of them, in the order of the profile.

    If none of them takes MIN_LISTED_SHARE of the steps, the only line says so.
    """
    steps = profile.steps
    smallest = MIN_LISTED_SHARE * steps.seconds * steps.count
    groups = [group for group in profile.groups if group.seconds() >= smallest]
    if not groups:
        return ["No large message takes 1 % of a step."]
    rows = [HEADER]
    for group in groups[:count]:
        rows.append(make_row(group, steps.count))
    widths = [
        max(len(row.milliseconds) for row in rows),
        max(len(row.count) for row in rows),
        max(len(row.size) for row in rows),
        max(len(row.way) for row in rows),
    ]
    lines = [TITLE]
    for row in rows:
        lines += write_row(row, widths, width)
    return lines


def make_row(group: Group, steps: int) -> Row:
    """Return the row of messages of one kind."""
    milliseconds = 1e3 * group.seconds() / steps
    return Row(
        milliseconds=f"{milliseconds:,.1f}",
        count=say_count(group.count / steps, group.reads / steps),
        size=format_bytes(group.bytes),
        way=name_way(group),
        route=name_route(group),
        line=relative(group.line),
    )


def write_row(row: Row, widths: list[int], width: int) -> list[str]:
    """Return the lines of a row. The line of the code is below the names if there is no room beside them."""
    numbers = row.numbers(widths)
    column = len(numbers) + 2
    text = f"{row.route}  {row.line}".rstrip()
    if column + len(text) <= width:
        return [f"{numbers}  {text}"]
    parts = [*wrap_words(row.route, max(MIN_ROUTE_WIDTH, width - column)), row.line]
    lines = [numbers]
    if column + len(parts[0]) <= width:
        lines = [f"{numbers}  {parts.pop(0)}"]
    for part in parts:
        indent = max(0, min(column, width - len(part)))
        lines.append(" " * indent + part)
    return lines
