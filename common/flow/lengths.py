"""How long the prompts and responses of a message are: all alike, or drawn from a seeded distribution.

389                     every one
lognormal:200:0.6:512   median, sigma of the logarithm, and the longest; what is longer is cut there
uniform:10:512          from one to the other
"""

import math
import random

SEED = 20241019


def draw_lengths(spec: int | str, count: int, what: str) -> tuple[int, ...]:
    """`count` lengths, the same for the same spec wherever they are drawn.

    what: names the draw, so that prompts and responses of one spec differ.

    Raises:
        ValueError: the spec is none of the above, or out of range.
    """
    kind, *numbers = str(spec).split(":")
    generator = random.Random(f"{SEED} {what} {spec}")
    try:
        if not numbers:
            (shortest, longest), draw = (int(kind), int(kind)), None
        elif kind == "lognormal":
            middle, sigma, longest = math.log(float(numbers[0])), float(numbers[1]), int(numbers[2])
            shortest, draw = 1, lambda: round(generator.lognormvariate(middle, sigma))
        elif kind == "uniform":
            shortest, longest = map(int, numbers)
            draw = lambda: generator.randint(shortest, longest)  # noqa: E731
        else:
            raise ValueError
    except (ValueError, IndexError):
        raise ValueError(f"{what} {spec!r}: give 389, lognormal:200:0.6:512 or uniform:10:512, say") from None
    if not 1 <= shortest <= longest <= 2**20:
        raise ValueError(f"{what} {spec!r}: lengths go from 1 to {2**20}, the shortest first")
    return tuple(min(max(draw(), 1), longest) if draw else shortest for _ in range(count))
