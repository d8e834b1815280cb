"""The report's machines: what all records have in common, and what each has of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

from common.analysis.results import Result
from common.pages.html_page import table, words
from common.text.tables import Column, three_digits


@dataclass(frozen=True)
class Place:
    """A node of a record, and what was found there."""

    result: Result
    started_at: str
    node: str
    environment: dict[str, Any]

    def says(self, key: str) -> str:
        value = self.environment.get(key)
        if isinstance(value, dict):
            value = [f"{name} {version}" for name, version in value.items()]
        if isinstance(value, list):
            return ", ".join(map(str, value)) or "none"
        if isinstance(value, float):
            return three_digits(value)
        return "unknown" if value is None else str(value)


def places(groups: Sequence[Sequence[Result]]) -> list[Place]:
    """Of every record."""
    return [
        Place(result, record.runs[0].started_at, node, environment)
        for group in groups
        for result in group
        for record in result.records
        for node, environment in record.environments.items()
    ]


def environments(groups: Sequence[Sequence[Result]]) -> str:
    """What every record has in common, and a line a record and node for the rest."""
    found = places(groups)
    keys = list(dict.fromkeys(key for place in found for key in place.environment))
    apart = [key for key in keys if len({place.says(key) for place in found}) > 1]
    common = "".join(f"<li>{words(f'{key}: {found[0].says(key)}')}</li>" for key in keys if key not in apart)
    columns = [
        Column("row", lambda place: place.result.name),
        Column("flow", lambda place: place.result.flow_name, words=True),
        Column("node", lambda place: place.node),
        Column("first run", lambda place: place.started_at[:16].replace("T", " "), words=True),
        *[Column(key, methodcaller("says", key), words=True) for key in apart],
    ]
    return f"<p>The same in all records:</p><ul>{common}</ul>{table(found, columns, filterable=True)}"
