# SPDX-License-Identifier: Apache-2.0
"""Say how many processes run a model, and which of them get a message."""

from collections.abc import Mapping
from dataclasses import dataclass

MAX_PROCESSES = 64  # per model


@dataclass(frozen=True)
class ModelLayout:
    """The processes of a model: a number of replicas, each with as many ranks.

    Whole messages go to the replicas in turn, and the turns go on across episodes (executor.py, `_get_model`). Every
    rank of a replica gets the message. The last rank answers.
    """

    replicas: int = 1
    ranks: int = 1  # tensor times pipeline parallel

    @property
    def processes(self) -> int:
        return self.replicas * self.ranks

    def replica_of(self, number: int) -> int:
        """Return the replica that gets the message with this number. The first message has number 1."""
        return (number - 1) % self.replicas

    def answers(self, rank: int) -> bool:
        return rank == self.ranks - 1


def process_name(model: str, replica: int, rank: int) -> str:
    """Return the name of a process. The first one of a model has the name of the model."""
    if replica == rank == 0:
        return model
    return f"{model}.{replica}.{rank}"


def parse_counts(flag: str, text: str | None) -> dict[str, int]:
    """Return the numbers of `policy=2,reference=3` by name; raise ValueError with one line if it cannot be read."""
    if text is None:
        return {}
    counts: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        if not name or not number:
            raise ValueError(f"{flag} '{text}': give MODEL=N, such as policy=2,reference=3")
        is_number = number.isascii() and number.isdecimal()
        if not is_number or not 1 <= int(number) <= MAX_PROCESSES:
            raise ValueError(f"{flag} {part}: give a whole number from 1 to {MAX_PROCESSES}")
        if name in counts:
            raise ValueError(f"{flag} {text}: give each model once, such as policy=2,reference=3")
        counts[name] = int(number)
    return counts


def without_ones(text: str | None) -> str | None:
    """Return `policy=2` for `policy=2,reference=1`: the numbers that change a layout, by name; None if none does."""
    counts = parse_counts("", text)
    words = [f"{name}={counts[name]}" for name in sorted(counts) if counts[name] != 1]
    return ",".join(words) or None


def make_layouts(
    replicas: Mapping[str, int], ranks: Mapping[str, int], models: tuple[str, ...]
) -> dict[str, ModelLayout]:
    """Return the layout of each model. A model that is not named has one process."""
    return {name: ModelLayout(replicas.get(name, 1), ranks.get(name, 1)) for name in models}
