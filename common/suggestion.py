# SPDX-License-Identifier: Apache-2.0
"""Suggest what a user may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """Return a part of a message with the most similar name, or nothing."""
    similar = get_close_matches(text, list(names), 1)
    return f": did you mean {similar[0]}?" if similar else ""
