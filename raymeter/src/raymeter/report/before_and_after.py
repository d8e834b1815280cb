# SPDX-License-Identifier: Apache-2.0
"""Show why a cause takes time, and a program before and after the change.

The texts are in causes.md beside this module, and nowhere else: docs/profile.md in the repository gets a copy of it.
"""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from raymeter.errors import UserError
from raymeter.findings import name_section

FILE = Path(__file__).parent / "causes.md"
HEADING = "### "
FENCE = re.compile(r"^```(?:python)?$", re.MULTILINE)  # around code
CODE_INDENT = "    "
VERB = "raymeter explain"


@dataclass(frozen=True)
class Block:
    """A paragraph, or some lines of code."""

    text: str
    is_code: bool


@cache
def read_parts() -> Mapping[str, Sequence[Block]]:
    """Return the blocks about each cause, by its name."""
    parts = {}
    for part in FILE.read_text(encoding="utf-8").split(HEADING)[1:]:
        cause, _, text = part.partition("\n")
        parts[cause] = list(split_blocks(text))
    return parts


def split_blocks(text: str) -> Iterator[Block]:
    """Yield the paragraphs and the code of a text in which fences are around code."""
    for number, between in enumerate(FENCE.split(text)):
        if number % 2:  # between an opening fence and its closing one
            yield Block(between.strip("\n"), is_code=True)
            continue
        for paragraph in filter(None, between.strip().split("\n\n")):
            yield Block(" ".join(paragraph.split()), is_code=False)


def find_cause(words: str) -> str:
    """Return the cause whose name these words are, or a part of it; raise UserError if there is not exactly one."""
    wanted = name_section(words)
    names = {name_section(cause): cause for cause in read_parts()}
    if wanted in names:
        return names[wanted]
    found = [name for name in names if wanted in name]
    if len(found) == 1:
        return names[found[0]]
    if found:
        raise UserError(f"{words}: is it {' or '.join(found)}?")
    raise UserError(f"{words}: no such file, and no such cause. {VERB} lists the causes")


def render_cause(cause: str, width: int) -> str:
    """Return the text about a cause of causes.md. Paragraphs are wrapped; lines of code stay as they are."""
    paragraphs = [cause]
    for block in read_parts()[cause]:
        if block.is_code:
            paragraphs.append(textwrap.indent(block.text, CODE_INDENT))
        else:
            paragraphs.append(textwrap.fill(block.text, width, break_on_hyphens=False))
    return "\n\n".join(paragraphs)


def list_causes() -> str:
    """Return how to ask for each cause."""
    lines = [f"  {VERB} {name_section(cause)}" for cause in read_parts()]
    return "\n".join(["Causes that raymeter knows, each with a program before and after:", *lines])
