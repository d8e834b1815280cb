"""Write sections as Markdown, also between the marks of README.md and docs/."""

import re
from collections.abc import Sequence
from pathlib import Path

from dataflow.errors import RecordError
from dataflow.report.tables import Section, TextTable

MARK = re.compile(r"<!-- (?:end of )?([\w-]+)(?:: written by make publish)? -->")


def render_table(table: TextTable) -> str:
    rule = ["---" if index in table.text_columns else "---:" for index in range(len(table.headers))]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in table.cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in (table.headers, rule, *cells))


def render(built: Sequence[Section]) -> str:
    """Return the sections without their charts, whose files the pages show."""
    parts = []
    for section in built:
        title = f"**{section.title}.** " if section.title else ""
        table = render_table(section.table) if section.table else ""
        parts += [(title + section.sentence).strip(), table, "  \n".join(section.notes)]
    return "\n\n".join(filter(None, parts))


def rewrite_pages(folder: Path, built: Sequence[Section]) -> None:
    """Put the sections between the marks of their name, in README.md and docs/ of a folder. Others stay as they are."""
    texts = {s.name: render([other for other in built if other.name == s.name]) for s in built}
    for page in [*folder.glob("README.md"), *sorted(folder.glob("docs/*.md"))]:
        text = page.read_text(encoding="utf-8")
        for name in set(MARK.findall(text)):
            begin, end = f"<!-- {name}: written by make publish -->", f"<!-- end of {name} -->"
            if (text.count(begin), text.count(end)) != (1, 1):
                raise RecordError(f"{page}: write each of these marks once: {begin} and {end}")
            before, rest = text.split(begin)
            after = rest.split(end)[1]
            if name in texts:
                text = f"{before}{begin}\n{texts[name]}\n{end}{after}"
        page.write_text(text, encoding="utf-8")
