# SPDX-License-Identifier: Apache-2.0
"""Suggest what a user may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches

# Of difflib: about two thirds of the letters are equal. With its own value, 0.6, explain is similar to replay.
MIN_SIMILARITY = 0.65


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """Return a part of a message with the most similar name, or nothing: a wrong suggestion is worse than none.

    The dashes of flags are no part of what is similar.
    """
    by_word = {name.lstrip("-"): name for name in names}
    similar = get_close_matches(text.lstrip("-"), by_word, 1, MIN_SIMILARITY)
    return f": did you mean {by_word[similar[0]]}?" if similar else ""
