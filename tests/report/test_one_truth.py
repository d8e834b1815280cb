# SPDX-License-Identifier: Apache-2.0
"""No two tables of the pages let a reader conclude different factors for one pair of configurations.

Two rows of a table with a column "times as fast" also say how many times as fast one of them is as the other, and so do
their times if their readers get the same. Factors of several machines are a range. Two places agree if their ranges
overlap, apart from what rounding explains.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import pytest
from conftest import ROOT
from published_tables import Rows, tables_of_page

from dataflow.catalogue.catalogue import BASELINE, SIMPLEST
from dataflow.report.pages import SYSTEMS

ROUNDING = 1.1  # of the quotient of two numbers with two digits
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
BY_MACHINE = re.compile(rf"(?:{NUMBER}|-)(?:, (?:{NUMBER}|-))*")
FACTORS = re.compile(r"times as fast as (.*?)(?:, by machine)?")
TIMES = ("ms per iteration", "µs per iteration", "mean ms (p50, p95) per update")
LABELS = ("layout", "configuration", "bytes per message")  # columns that say what a row is
READERS = "readers get"
DEMO = "online DPO, 448 MiB per iteration"
KEPT = " --retain-memory"
# Pairs of which an old record says something else than a newer one, with the reason.
OLD_RECORDS: dict[tuple[str, str, str], str] = {}


@dataclass(frozen=True)
class Place:
    """What one table says of a pair: how many times as fast the first one is, on each machine."""

    page: str
    table: str
    factors: tuple[float, ...]

    def agrees_with(self, other: "Place") -> bool:
        is_above = min(self.factors) > max(other.factors) * ROUNDING
        is_below = max(self.factors) * ROUNDING < min(other.factors)
        return not is_above and not is_below


Factors = list[float | None]  # by machine; None: not measured there
Pair = tuple[str, str, str]  # the messages, and two configurations in alphabetical order
Said = tuple[str, str, str, Factors]  # the messages, and how many times as fast one is as the other


def numbers_of(cell: str) -> Factors:
    """Return the factors of a cell, by machine; [] for a text such as "see campaigns" or "as today"."""
    found = BY_MACHINE.match(cell)
    if not found:
        return []
    texts = found[0].split(", ")
    numbers = [None if text == "-" else float(text.replace(",", "")) for text in texts]
    return [] if set(numbers) == {None} else numbers


def divide(one: str, other: str) -> Factors:
    """Return how many times as fast one row is as another one of its table, on each machine."""
    ours = numbers_of(one)
    theirs = numbers_of(other)
    machines = max(len(ours), len(theirs))
    if len(ours) == 1:  # the baseline is 1 on each machine
        ours = ours * machines
    if len(theirs) == 1:
        theirs = theirs * machines
    quotients: Factors = []
    for mine, its in zip(ours, theirs, strict=False):
        quotients.append(None if mine is None or its is None else mine / its)
    return quotients


def read_factors(name: str, title: str, rows: Rows) -> Iterator[Said]:
    """Yield what a table says of each two of its rows."""
    headers, _, *cells = rows
    for index, header in enumerate(headers):
        is_of_demo = name == "answers" and header == "times as fast"
        if is_of_demo or FACTORS.fullmatch(header):
            messages = DEMO if is_of_demo else title
            for one, other in combinations(cells, 2):
                yield (
                    messages,
                    one[0].strip("`"),
                    other[0].strip("`"),
                    divide(one[index], other[index]),
                )


def label_of(headers: list[str], row: list[str]) -> str:
    """Return what a row is: its configuration, with the layout or the size of messages if rows have several."""
    return " ".join(row[headers.index(label)] for label in LABELS if label in headers)


def read_times(title: str, rows: Rows) -> Iterator[Said]:
    """Yield what the times of a table say of each two rows whose readers get the same."""
    headers, _, *cells = rows
    shown = [header for header in TIMES if header in headers]
    if not shown or READERS not in headers:
        return
    index = headers.index(shown[0])
    readers = headers.index(READERS)
    for one, other in combinations(cells, 2):
        if one[readers] == other[readers]:
            names = label_of(headers, one), label_of(headers, other)
            yield title, *names, divide(other[index], one[index])


def read_demo(rows: Rows) -> Iterator[Said]:
    """Yield what the table of the two scripts says of them here, without and with kept memory."""
    headers, _, *cells = rows
    for row in cells:
        if row[0].startswith("here"):
            flag = KEPT if KEPT.strip() in row[0] else ""
            factors = numbers_of(row[headers.index("times as fast")])
            yield DEMO, f"graph shm{flag}", BASELINE + flag, factors


def read_systems(rows: Rows) -> Iterator[Said]:
    """Yield what the table of known systems says of the configuration that is similar to one, and of the steps."""
    headers, _, *cells = rows
    for step, name in SYSTEMS["steps"].items():
        (index,) = [
            number for number, text in enumerate(headers) if text.partition(" (")[0] == step
        ]
        for row in cells:
            today = row[headers.index("most similar configuration")].strip("`")
            yield DEMO, name, today, numbers_of(row[index])


def read_table(name: str, title: str, rows: Rows) -> Iterator[Said]:
    if name == "demo":
        yield from read_demo(rows)
    elif name == "systems":
        yield from read_systems(rows)
    else:
        yield from read_factors(name, title, rows)
        yield from read_times(title, rows)


def sort_pair(said: Said) -> tuple[Pair, tuple[float, ...]]:
    """Return the pair with its configurations in alphabetical order, and the known factors of the first one."""
    messages, one, other, factors = said
    known = [factor for factor in factors if factor is not None]
    if one <= other:
        return (messages, one, other), tuple(known)
    return (messages, other, one), tuple(1 / factor for factor in known)


def find_places() -> dict[Pair, list[Place]]:
    """Return what the tables of all pages say of each pair."""
    found = defaultdict(list)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for name, title, rows in tables_of_page(page.read_text()):
            for pair, factors in map(sort_pair, read_table(name, title, rows)):
                if factors:
                    found[pair].append(Place(page.name, name, factors))
    return found


def agree(places: list[Place]) -> bool:
    return all(one.agrees_with(other) for one, other in combinations(places, 2))


def find_contradictions() -> dict[Pair, list[Place]]:
    return {pair: places for pair, places in find_places().items() if not agree(places)}


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        ((4.4,), (2.7,), False),
        ((1.6, 1.4, 1.5), (1.5,), True),
        ((5.2, 5.2, 4.7), (5.0, 5.0), True),
        ((5.2, 5.2, 4.7), (6.0,), False),
        ((12.0,), (13.0,), True),
    ],
)
def test_places_agree_if_rounding_explains_their_difference(one, other, are_equal):
    first, second = Place("a.md", "a", one), Place("b.md", "b", other)
    assert first.agrees_with(second) == second.agrees_with(first) == are_equal


def test_a_factor_of_two_rows_of_a_table_is_found_on_each_machine():
    assert divide("8, 6, -", "2, 3, 4") == [4.0, 2.0, None]
    assert divide("8 (7 to 9) with 5.1 instead of 6.5 GiB", "1") == [8.0]
    assert divide("1", "1,000 (900 to 1,100)") == [0.001]
    assert divide("1", "2, 4") == [0.5, 0.25]
    assert divide("see campaigns", "2") == divide("-", "2, 3") == []


@pytest.mark.study
def test_no_two_tables_contradict_each_other():
    found = find_places()
    several = [pair for pair, places in found.items() if len({place.table for place in places}) > 1]
    assert {(DEMO, "graph shm", BASELINE), (DEMO, "graph shm", SIMPLEST)} <= {*several}
    unknown = {
        pair: places for pair, places in find_contradictions().items() if pair not in OLD_RECORDS
    }
    assert unknown == {}


@pytest.mark.study
def test_each_contradiction_that_is_known_is_one():
    assert OLD_RECORDS.keys() <= find_contradictions().keys()
