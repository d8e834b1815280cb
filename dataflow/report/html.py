"""Write sections as one HTML file that loads nothing else. page.js makes its tables sortable and filterable."""

import html
import re
from collections.abc import Sequence
from pathlib import Path

from dataflow.report.charts import to_svg
from dataflow.report.tables import Section, TextTable

HERE = Path(__file__).parent


def render(built: Sequence[Section]) -> str:
    body = []
    for section in built:
        body += [f"<section><h2>{escape(section.title)}</h2>", f"<p>{escape(section.sentence)}</p>"]
        if section.chart:
            body.append(to_svg(section.chart.draw()))
        if section.table:
            body.append(render_table(section.table))
        body += [f'<p class="note">{escape(note)}</p>' for note in section.notes]
        body.append("</section>")
    style, code = (HERE / "page.css").read_text("utf-8"), (HERE / "page.js").read_text("utf-8")
    head = f'<meta charset="utf-8"><title>Times of transports</title><style>{style}</style>'
    script = f"<script>{code}</script>"
    return "\n".join([f'<!doctype html><html lang="en"><head>{head}</head><body>', *body, script, "</body></html>"])


def escape(text: str) -> str:
    """Return text as HTML; text in backquotes is code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def render_table(table: TextTable) -> str:
    """Return the table. Cells of text have a class."""
    kinds = [' class="text"' if index in table.text_columns else "" for index in range(len(table.headers))]
    lines = []
    for tag, row in [("th", table.headers), *(("td", row) for row in table.cells)]:
        cells = [f"<{tag}{kind}>{escape(cell)}</{tag}>" for cell, kind in zip(row, kinds, strict=True)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead>{lines[0]}</thead><tbody>{''.join(lines[1:])}</tbody></table>"
