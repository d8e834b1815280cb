# SPDX-License-Identifier: Apache-2.0
"""Write the names, places and numbers of a profile as its readers know them."""

import os
import re
import textwrap
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from raymeter.findings import Prediction
from raymeter.profile.groups import Group
from raymeter.profile.steps import Steps
from raymeter.units import significant

DRIVER = "driver"
INSTALLED = f"{os.sep}site-packages{os.sep}"
MAX_READERS = 3  # that are listed
WAYS = {"put": "ray.put", "rdt": "RDT"}  # others are called as they are
QUEUE_ACTOR = "_QueueActor."  # of ray.util.queue.Queue
COMPILED_METHOD = ".__ray_call__"  # runs the methods of an actor in a compiled graph


def relative(line: str) -> str:
    """Return "file:line" from the current folder, or the end of the path if the file is far from it."""
    file, _, number = line.rpartition(":")
    if not file:
        return line
    return f"{relative_file(file, os.getcwd())}:{number}"


@lru_cache(maxsize=1_000)
def relative_file(file: str, folder: str) -> str:
    """Return the path of a file from a folder, or its last three parts; of an installed package, that in it."""
    _, installed, in_package = file.rpartition(INSTALLED)
    if installed:
        return in_package
    short = os.path.relpath(file, folder)
    if short.startswith(os.pardir + os.sep + os.pardir):
        return str(Path(*Path(file).parts[-3:]))
    return short


def name_place(name: str) -> str:
    """Return the name of a task or method as its author knows it, or "driver"."""
    name = name.replace(QUEUE_ACTOR, "Queue.")
    return name.removesuffix(COMPILED_METHOD) or DRIVER


def name_route(group: Group) -> str:
    """Return who sends and who reads a message, such as "driver -> Rollout.set_weights"."""
    readers = sorted({name_place(reader) for reader in group.readers})
    return f"{name_place(group.sender)} -> {list_names(readers) or 'no recorded reader'}"


def list_names(names: Sequence[str]) -> str:
    """Return at most three names, and how many others there are."""
    text = ", ".join(names[:MAX_READERS])
    others = len(names) - MAX_READERS
    return f"{text} and {others} more" if others > 0 else text


def name_way(group: Group) -> str:
    """Return how a message is sent."""
    return WAYS.get(group.how, group.how)


def say_count(count: float, reads: float) -> str:
    """Return how many messages a step sends, or "3 reads" of those that it only reads, as they were put before it."""
    if count or not reads:
        return significant(count, 2)
    text = significant(reads, 2)
    return "1 read" if text == "1" else f"{text} reads"


def name_step(steps: Steps) -> str:
    """Return what a step is, such as "a pass of the loop at train.py:28"."""
    if steps.is_whole_program:
        return "the whole program, in which no loop of steps was found"
    return steps.name.replace(steps.line, relative(steps.line))


def kind_of(prediction: Prediction) -> str:
    """Return how sure a saving is."""
    if prediction.is_measured:
        return "measured"
    if prediction.is_least:
        return "at least"
    return "upper limit" if prediction.is_upper_limit else "predicted"


def percent(share: float) -> str:
    """Return a share such as "71 %"."""
    return f"{significant(100 * share, 2)} %"


def wrap_words(text: str, width: int) -> list[str]:
    """Return the lines of a text. No word is cut, so that each path can be copied."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def wrap_list(texts: Sequence[str], width: int) -> list[str]:
    """Return the lines of these texts. Later lines of a text are indented as what follows its number."""
    lines: list[str] = []
    for text in texts:
        start = re.match(r" *(\d+\. )?", text)
        indent = " " * len(start[0]) if start else ""
        lines += textwrap.wrap(
            text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return lines
