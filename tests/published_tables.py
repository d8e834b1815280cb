# SPDX-License-Identifier: Apache-2.0
"""Read the tables that make publish has written into the pages."""

import re
from collections.abc import Iterator

GENERATED = r"<!-- ([\w-]+): written by make publish -->\n(.*?)<!-- end of \1 -->"
Rows = list[list[str]]  # the headers, the rule below them, and the cells


def tables_of_page(text: str) -> Iterator[tuple[str, str, Rows]]:
    """Yield the name, the title, and the rows with the headers, of each table that is written by make publish."""
    for name, body in re.findall(GENERATED, text, re.DOTALL):
        title = ""
        rows: Rows = []
        for line in [*body.splitlines(), ""]:
            if found := re.match(r"\*\*(.*?)\.\*\*", line):
                title = found[1]
            if line.startswith("| "):
                rows.append(line.strip("| ").split(" | "))
            elif rows:
                yield name, title, rows
                rows = []
