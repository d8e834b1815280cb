# SPDX-License-Identifier: Apache-2.0
"""Change the size of all messages from one iteration to the next, as lengths change in training (--changing-sizes).

In iteration N, every message is multiplied by the same factor. The factors are evenly spaced quantiles of a log-normal
distribution, divided by their mean, in an order that a fixed seed decides. So runs with equal --iterations send equal
sizes, whatever the configuration and the process, and their timed iterations have each size once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from math import exp
from random import Random
from statistics import NormalDist

from dataflow.flows.flow import Flow
from dataflow.flows.message import ACKNOWLEDGEMENT, NUMBER_BYTES, Message

MAX_SIZES = 500  # that a run has; with more iterations, they come again
MIN_ROWS = NUMBER_BYTES  # of a message, so that a tensor of bytes has room for the sequence number
SEED = 0  # of the order of sizes


@dataclass(frozen=True)
class ChangingMessage(Message):
    """A message of one tensor whose number of rows changes. Its field has the mean number."""

    row_counts: tuple[int, ...]

    @cached_property
    def sizes(self) -> tuple[Message, ...]:  # type: ignore[override]
        """Return the message with each number of rows."""
        (field,) = self.fields
        made = []
        for rows in self.row_counts:
            resized = replace(field, shape=(rows, *field.shape[1:]))
            made.append(Message((resized,)))
        return tuple(made)


def change_sizes(flow: Flow, sigma: float, iterations: int) -> Flow:
    """Return the flow with messages whose sizes change; their mean stays. Acknowledgements keep their 8 bytes.

    sigma: of the logarithms of the sizes. Raise ValueError for a message that is no tensor with rows, or that would
    have fewer than MIN_ROWS of them in an iteration.
    """
    factors = draw_factors(sigma, count_sizes(iterations))

    def change(message: Message) -> Message:
        if message == ACKNOWLEDGEMENT:
            return message
        first = message.fields[0]
        has_rows = message.is_flat and first.shape and not first.storage
        if not has_rows:
            raise ValueError(
                f"--changing-sizes: {flow.name} has messages that are no flat tensor: give another --flow, such as "
                "'rollout -> trainer: 64MB'"
            )
        row_counts = multiply_rows(first.shape[0], factors)
        if min(row_counts) < MIN_ROWS:
            raise ValueError(
                f"--changing-sizes {sigma:g}: the smallest message of {flow.name} would have {min(row_counts)} rows, "
                f"and {MIN_ROWS} are needed: give larger messages"
            )
        return ChangingMessage(message.fields, row_counts)

    return flow.with_messages(change)


def count_sizes(iterations: int) -> int:
    """Return how many sizes come in turn: as many as iterations are timed, or an equal part of them."""
    turns = -(-iterations // MAX_SIZES)
    return iterations // turns


def draw_factors(sigma: float, count: int) -> list[float]:
    """Return the factors of the sizes in turn. Their mean is 1."""
    normal = NormalDist()
    quantiles = [normal.inv_cdf((index + 0.5) / count) for index in range(count)]
    sizes = [exp(sigma * quantile) for quantile in quantiles]
    mean = sum(sizes) / count
    generator = Random(SEED)
    # Python promises the same numbers in every version, but not the same shuffling.
    keys = [generator.random() for _ in sizes]
    return [size / mean for _, size in sorted(zip(keys, sizes, strict=True))]


def multiply_rows(rows: int, factors: Sequence[float]) -> tuple[int, ...]:
    """Return the number of rows with each factor. Their mean is exactly `rows`, because remainders are carried on."""
    ends = [round(rows * total) for total in accumulate(factors)]
    return tuple(end - begin for begin, end in pairwise([0, *ends]))
