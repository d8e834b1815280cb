# SPDX-License-Identifier: Apache-2.0
"""Properties of numbers with units: what is written is read, and anything else is one error in one line."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from made_inputs import spaces

from dataflow.units import (
    BINARY,
    BYTES,
    MAX_SECONDS,
    SECONDS,
    format_bytes,
    parse_bytes,
    parse_seconds,
)

LARGEST = 10**15  # bytes of any flag
counts = st.integers(0, LARGEST)
texts = st.text(max_size=30) | st.text("0123456789. -+,eEinfa_kKmMgGtTiIbBsh\n²١", max_size=30)


@st.composite
def any_case(draw, text):
    return "".join(draw(st.sampled_from([letter.lower(), letter.upper()])) for letter in text)


@st.composite
def written(draw, units):
    """Return a number with a unit as text, and its exact value."""
    unit = draw(st.sampled_from(sorted(units)))
    number = str(draw(st.integers(0, 10**18 - 1)))
    decimals = draw(st.none() | st.text("0123456789", min_size=1, max_size=9))
    if decimals is not None:
        number += f".{decimals}"
    shown = draw(any_case(unit))
    text = f"{draw(spaces)}{number}{draw(spaces)}{shown}{draw(spaces)}"
    return text, Fraction(number) * units[unit]


@given(written(BYTES))
def test_bytes_are_read_exactly_or_are_no_whole_number(made):
    text, value = made
    if value.denominator == 1:
        assert parse_bytes(text) == value
    else:
        with pytest.raises(ValueError, match="is not a whole number of bytes"):
            parse_bytes(text)


@given(written(SECONDS))
@example(("86400", Fraction(86_400)))
@example(("86400.5 s", Fraction("86400.5")))
def test_seconds_are_read_up_to_a_day(made):
    text, value = made
    if value <= MAX_SECONDS:
        assert parse_seconds(text) == float(value)
    else:
        with pytest.raises(ValueError, match="is too large: give 86400 s or less"):
            parse_seconds(text)


def read_formatted(text):
    """Return the number of bytes of a formatted text, which has commas between thousands."""
    number, unit = text.replace(",", "").split()
    return Fraction(number) * BINARY[unit]


@given(counts)
@example(0)
@example(1023)
@example(2**20 - 1)
def test_formatted_bytes_have_four_digits_and_the_largest_unit_that_fits(count):
    text = format_bytes(count)
    shown = read_formatted(text)
    assert abs(shown - count) * 2000 <= count
    fitting = [factor for factor in BINARY.values() if factor <= count]
    assert BINARY[text.split()[1]] == max(fitting, default=1)


@given(st.integers(1, 999), st.sampled_from(sorted(BINARY)))
def test_formatted_bytes_can_be_read_again(count, unit):
    exact = count * BINARY[unit]
    assert format_bytes(exact) == f"{count} {unit}"
    assert parse_bytes(format_bytes(exact)) == exact


@given(counts, counts)
def test_a_larger_count_is_not_shown_as_a_smaller_one(one, other):
    low, high = sorted((one, other))
    assert read_formatted(format_bytes(low)) <= read_formatted(format_bytes(high))


@pytest.mark.parametrize("parse", [parse_bytes, parse_seconds])
@given(text=texts)
@example(text="9" * 5000)
@example(text="1" + " " * 5000 + "\n" * 5000 + "B")
@example(text="1\u2028B")
def test_any_text_is_a_number_or_one_error_in_one_line(parse, text):
    try:
        assert parse(text) >= 0
    except ValueError as error:
        message = str(error)
        assert message and len(message.splitlines()) == 1
        assert len(message) < 300
