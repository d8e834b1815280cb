"""A page in one file: its sections, tables that can be sorted and filtered, and the library that draws its charts."""

import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from common.text.tables import Column
from common.units import BYTES

HERE = Path(__file__).parent
KINDS = ("number", "words")  # of columns


def words(text: str) -> str:
    """Text of a record or of the suite as HTML; `what stands so` is code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def sort_value(cell: str) -> float | None:
    """The number that a cell begins with, in bytes where it has a unit of them; below it where it says <.

    None where it begins with no number: "-", "mapped".
    """
    found = re.match(r"(<?)(\d[\d,]*(?:\.\d+)?)\s*([A-Za-z]*)", cell)
    if not found:
        return None
    value = float(found[2].replace(",", "")) * BYTES.get(found[3], 1)
    return value * 0.999 if found[1] else value


def table(rows: Sequence[Any], columns: Sequence[Column], filterable: bool = False) -> str:
    """Sorted by a click on a header; numbers by their value, and what has none last."""
    left = [column.words or column is columns[0] for column in columns]
    heads = "".join(
        f'<th aria-sort="none" class="{KINDS[is_left]}"><button>{words(column.header)}</button></th>'
        for column, is_left in zip(columns, left, strict=True)
    )
    lines = [
        "<tr>" + "".join(_cell(column.cell(row), *how) for column, *how in zip(columns, left, strict=True)) + "</tr>"
        for row in rows
    ]
    body = "\n".join(lines)
    field = '<p><input type="search" placeholder="filter: words that a row must have"> <output></output></p>'
    return (
        f'<div class="data">{field * filterable}<div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div></div>"
    )


def _cell(text: str, is_left: bool) -> str:
    value = None if is_left else sort_value(text)
    attribute = "" if value is None else f' data-value="{value!r}"'
    return f'<td class="{KINDS[is_left]}"{attribute}>{words(text)}</td>'


def page(title: str, introduction: str, sections: Mapping[str, str]) -> str:
    """The whole file: nothing in it is loaded from elsewhere."""
    names = {heading: re.sub(r"\W+", "-", heading.lower()) for heading in sections}
    links = " ".join(f'<a href="#{name}">{words(heading)}</a>' for heading, name in names.items())
    body = "\n".join(
        f'<section id="{names[heading]}"><h2>{words(heading)}</h2>\n{content}</section>'
        for heading, content in sections.items()
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{words(title)}</title>
<link rel="icon" href="data:,">
<style>{(HERE / "page.css").read_text()}</style>
<script>{get_plotlyjs()}</script>
</head>
<body>
<h1>{words(title)}</h1>
{introduction}
<nav>{links}</nav>
{body}
<script>{(HERE / "page.js").read_text()}</script>
</body>
</html>
"""
