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
    counts: dict[str, int] = {}
    for part in text.split(",") if text else []:
        name, _, number = part.partition("=")
        is_number = number.isascii() and number.isdecimal()
        if not is_number or name in counts:
            raise ValueError(f"{flag} {text}: give each model once, such as policy=2,reference=3")
        counts[name] = int(number)
    return counts


def make_layouts(
    replicas: Mapping[str, int], ranks: Mapping[str, int], models: tuple[str, ...]
) -> dict[str, ModelLayout]:
    """Return the layout of each model. A model that is not named has one process."""
    return {name: ModelLayout(replicas.get(name, 1), ranks.get(name, 1)) for name in models}
