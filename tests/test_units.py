"""Numbers of bytes and seconds, read and written."""

import pytest

from common.units import format_bytes, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("12", 12), ("8B", 8), ("12MB", 12 * 10**6), ("12MiB", 12 * 2**20), ("4GiB", 2**32), ("1.5 kB", 1500),
        ("0.1kb", 100), ("1.1MB", 1_100_000), ("2tib", 2**41), (" 7 ", 7),
    ],
)  # fmt: skip
def test_bytes_are_read_with_a_unit_or_without(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "many", "-1", "1e3", "12XB", "0.3B", "1.0001kB2", "nan", "MB"])
def test_what_is_no_whole_number_of_bytes_is_refused(text):
    with pytest.raises(ValueError, match=r"bytes|unit"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (8, "8 B"), (1000, "1 kB"), (1024, "1 KiB"), (12 * 10**6, "12 MB"), (24_000_024, "24 MB"),
        (448 * 2**20, "448 MiB"), (3 * 2**30, "3 GiB"), (1_234_567, "1.177 MiB"), (5 * 10**12, "5 TB"),
    ],
)  # fmt: skip
def test_bytes_are_written_in_the_unit_that_fits(count, text):
    assert format_bytes(count) == text


def test_one_kind_of_unit_can_be_asked_for():
    assert format_bytes(12 * 10**6, ("iB",)) == "11.44 MiB"


@pytest.mark.parametrize(("text", "seconds"), [("10", 10), ("10s", 10), ("500ms", 0.5), ("2min", 120), ("1.5h", 5400)])
def test_a_time_is_read_with_a_unit_or_without(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["soon", "10 years", "-1s", ""])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match=r"seconds|unit"):
        parse_seconds(text)
