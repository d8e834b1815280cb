"""Test that every command of the suite in README.md and docs/ can be parsed."""

import re
import shlex
from pathlib import Path

import pytest
from conftest import ROOT

from dataflow.commands import answer, compare, report, run
from dataflow.measure.supervisor import split_configuration
from dataflow.plan.command_line import make_options

PARSERS = {"answer": answer.parse_command, "compare": compare.parse_arguments, "report": report.parse_command}
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
COMMAND = re.compile(r"python3? -m dataflow (\w+)((?: (?!#)[^`\n\\]*\\\n)*(?: (?!#)[^`\n]*)?)")


def commands_of(page: Path) -> list[tuple[str, list[str]]]:
    """Return the verb and the words of each command, without those that only show the form of a command."""
    commands = []
    for verb, text in COMMAND.findall(page.read_text()):
        if "[" not in text and "..." not in text:
            text = text.replace("\\\n", " ").replace('"${configurations[@]}"', "'store refs'").replace("$run", "1")
            words = shlex.split(text.replace("$FLOW", "a -> b: 8MB").replace("$more", ""), comments=True)
            commands.append((verb, words))
    return commands


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_can_be_parsed(page, monkeypatch, no_gpu):
    monkeypatch.setattr(run, "check_arguments", lambda _: None)  # of files that the reader has
    monkeypatch.setattr(report, "find_newest", lambda _: [Path("record.json")])
    for verb, words in commands_of(page):
        if verb == "run":
            arguments, given = run.parse_arguments(words)
            assert arguments.configurations or arguments.suite, words
            for text in arguments.configurations:
                _, transport, flags = split_configuration(text)
                make_options(transport, given | flags)
        elif verb in PARSERS:
            PARSERS[verb](words)
        else:
            assert verb in ("list", "nodes"), words
