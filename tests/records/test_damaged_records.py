# SPDX-License-Identifier: Apache-2.0
"""Property tests of damaged records: a file is read as it was written, or gives an error of one line."""

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from made_records import make_record, make_run, write_record

from common import record_files
from common.record_files import ARCHIVE
from dataflow.errors import RecordError
from dataflow.records import files
from dataflow.records.schema import Run

# The same examples in each call, and no folder of examples is left behind.
repeatable = settings(derandomize=True, database=None, deadline=None, max_examples=200)
NAMES = ("record.json", "record.json.gz", ARCHIVE, "records.jsonl")
TIMES = st.lists(st.floats(1e-9, 1e6), min_size=1, max_size=4)
REASONS = st.text(max_size=30)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=5,
)


def compress(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


def read(content: bytes, name: str = ARCHIVE):
    """Return the records of a file with this content, or the text of the error, which has one line."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            return files.load_file(path)
        except RecordError as error:
            assert len(str(error).splitlines()) == 1
            assert str(path) in str(error) and str(error).endswith(": leave it out")
            return str(error)


@st.composite
def lists_of_records(draw):
    """Return records whose times and reasons are any."""
    records = []
    for place in range(draw(st.integers(1, 3))):
        runs = [make_run(seconds, order=place) for seconds in draw(st.lists(TIMES, max_size=2))]
        runs.append(Run(reason=draw(REASONS), order=9))
        records.append(make_record("refs", *runs, batch_size=1 + place))
    return records


MADE = [make_record("refs", [0.1, 0.2], [0.3]), make_record("shm", [0.4], runtime="graph")]
TEXT = b"".join(msgspec.json.encode(record) + b"\n" for record in MADE)
CONTENT = compress(TEXT)


@repeatable
@given(lists_of_records())
def test_records_are_read_from_an_archive_as_they_were_written(records):
    with TemporaryDirectory() as folder:
        for place, record in enumerate(records):
            write_record(Path(folder) / f"{place}.json", record)
        path = files.archive(Path(folder))
        assert record_files.find_files(Path(folder)) == [path]
        assert files.load_file(path) == records


@repeatable
@given(st.binary(max_size=200), st.sampled_from(NAMES), st.booleans())
def test_bytes_that_are_no_record_are_one_line(content, name, is_compressed):
    assert isinstance(read(compress(content) if is_compressed else content, name), str)


@repeatable
@given(st.data())
def test_an_archive_with_changed_bytes_gives_its_records_or_an_error(data):
    """Only bytes that say nothing about the records, such as the time of the file, change nothing."""
    content = bytearray(CONTENT)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    found = read(bytes(content))
    assert found == MADE or isinstance(found, str)


@repeatable
@given(st.integers(0, len(CONTENT) - 1))
def test_an_archive_that_is_cut_off_is_an_error(length):
    assert isinstance(read(CONTENT[:length]), str)


@repeatable
@given(st.integers(0, len(TEXT) - 1))
def test_lines_that_are_cut_off_are_an_error_or_end_after_a_record(length):
    found = read(compress(TEXT[:length]))
    ends_after_a_record = TEXT[:length].endswith(b"\n")
    assert found == (MADE[:1] if ends_after_a_record else found)
    assert isinstance(found, str) != ends_after_a_record


def places_in(value, path=()):
    """Yield the path to each value in a JSON value."""
    items = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield (*path, key)
        yield from places_in(inner, (*path, key))


@repeatable
@given(st.data(), ANYTHING)
def test_a_line_with_any_changed_value_is_a_record_or_an_error(data, value):
    record = json.loads(TEXT.splitlines()[1])
    *folders, last = data.draw(st.sampled_from([*places_in(record)]))
    parent = record
    for key in folders:
        parent = parent[key]
    parent[last] = value
    found = read(compress(TEXT.splitlines(keepends=True)[0] + json.dumps(record).encode() + b"\n"))
    if isinstance(found, str):
        assert found.startswith("line 2 of ")
    else:
        assert found[0] == MADE[0]


@repeatable
@given(st.text("ab\n\r\v\x85\u2028 ", min_size=1, max_size=9), st.booleans())
def test_an_error_that_quotes_several_lines_has_one_line(text, is_name):
    record = json.loads(TEXT.splitlines()[0])
    if is_name:
        record["runs"][0][text] = 1
    else:
        record["runs"][0]["status"] = text
    assert read(compress(json.dumps(record).encode() + b"\n")).startswith("line 1 of ")
