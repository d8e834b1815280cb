# SPDX-License-Identifier: Apache-2.0
"""Check that the commands, suites and flows that texts show exist, and that no line is wider than a terminal."""

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from conftest import ROOT
from made_records import make_run

from common.flags import make_parser
from dataflow import __main__ as program
from dataflow.commands import archive, compare, machine, predict, replay, report, run
from dataflow.commands import list as list_command
from dataflow.errors import UsageError
from dataflow.flows.catalogue import FLOWS
from dataflow.measure import supervisor
from dataflow.plan import validate
from dataflow.plan.command_line import describe_flags, plan_configuration
from dataflow.plan.options import PRESETS

COMMAND = re.compile(r"python3? -m dataflow (\w+)(.*)")
PARSERS = {
    "archive": archive.parse_command,
    "compare": compare.parse_arguments,
    "machine": machine.parse_command,
    "predict": predict.parse_command,
    "replay": replay.make_parser().parse_all,
    "report": report.parse_command,
}
OF_NODES = ("--nodes", "--rate", "--command")  # each has a value
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
VERBS_OF_THE_SUITE = (
    "run",
    "list",
    "report",
    "compare",
    "machine",
    "predict",
    "nodes",
    "replay",
    "archive",
)


def find_docstrings(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""


def shown_commands():
    """Return the verb and the words of each command that begins a line of a docstring."""
    commands = []
    for path in [*ROOT.glob("*.py"), *sorted((ROOT / "dataflow").rglob("*.py"))]:
        lines = [line for text in find_docstrings(path) for line in text.splitlines()]
        for line in lines:
            command = re.split(r"(?<=\S) {2,}", line.strip())[0]  # without what it does
            if (match := COMMAND.search(command)) and "..." not in command:
                commands.append((match[1], shlex.split(match[2])))
    return commands


def test_no_text_of_the_suite_names_a_flag_of_the_two_scripts():
    """Scripts have --transport. In the suite, a transport is the second word of a configuration."""
    flag = re.compile(r"--[a-z][a-z-]*")
    of_scripts = set(flag.findall(make_parser("graph", None).format_help()))
    of_scripts -= {*describe_flags(), "--help", "--output"}
    assert of_scripts == {"--transport"}
    files = [*(ROOT / "dataflow").rglob("*.py"), *(ROOT / "dataflow").rglob("*.toml")]
    files.append(ROOT / "common" / "cuda_device.py")  # its errors are shown by both
    for path in files:
        text = path.read_text()
        if path.name == "result.py":  # it shows old records without this flag
            text = text.replace('": use another --transport"', "")
        assert not of_scripts & set(flag.findall(text)), path


@pytest.fixture
def folder_of_a_user(monkeypatch, tmp_path):
    """Work in a folder that has the files of the examples, on a machine with memory and GPUs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dataflow.plan.plan.require_memory", lambda *_: 2**33)
    monkeypatch.setattr(validate, "count_gpus", lambda: 4)
    monkeypatch.setattr(report, "find_newest", lambda _: [Path("mine.json")])
    for name in ("mine.json", "train.py", "batch.pt", "batch.pkl"):
        Path(name).touch()


def test_every_verb_has_an_example():
    assert {verb for verb, words in shown_commands() if words} >= {*program.VERBS}


@pytest.mark.parametrize(("verb", "words"), shown_commands(), ids=str)
def test_a_command_of_a_help_text_can_be_carried_out(folder_of_a_user, capsys, verb, words):
    assert verb in program.VERBS
    if verb == "run" and words:
        assert run.main([*words, "--dry-run"]) == 0
        assert "records: " in capsys.readouterr().out
    elif verb == "list":
        assert list_command.main(words) == 0
    elif verb == "nodes":
        values = {words[words.index(flag) + 1] for flag in OF_NODES if flag in words}
        rest = [word for word in words if word not in values.union(OF_NODES)]
        run.parse_arguments(rest or ["store refs"])
    elif verb in PARSERS and words:
        PARSERS[verb](words)


def test_a_command_that_does_not_exist_is_found(folder_of_a_user):
    with pytest.raises(Exception, match="invalid choice: 'headline'"):
        run.main(["--suite", "headline", "--dry-run"])


@pytest.mark.study
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_flow_that_a_page_names_exists(page):
    text = page.read_text()
    named = set(re.findall(r"--flow ([a-z][a-z0-9-]*)(?![\w./:$-])", text))
    for names in re.findall(r"\bflows? (`[a-z0-9-]+`(?:(?:, | and | or )`[a-z0-9-]+`)*)", text):
        named.update(re.findall("`([^`]+)`", names))
    assert named <= {*FLOWS, *PRESETS}


@pytest.fixture
def terminal(monkeypatch):
    """terminal(columns): standard output is a terminal of this width."""

    def set_width(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    return set_width


def longest_line(text):
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("verb", VERBS_OF_THE_SUITE)
def test_help_is_as_wide_as_the_terminal_and_its_examples_can_be_pasted(
    terminal, capsys, verb, columns
):
    terminal(columns)
    topics = ("", "all", "flows", "presets") if verb == "run" else ("",)
    for topic in topics:
        with pytest.raises(SystemExit):
            import_module(f"dataflow.commands.{verb}").main(["--help", topic])
        text = capsys.readouterr().out
        assert longest_line(text) <= columns
    if verb == "run":
        with pytest.raises(SystemExit):
            run.main(["--help"])
        pasted = capsys.readouterr().out.replace("\\\n", " ")
        shown = [shlex.split(match[2]) for match in COMMAND.finditer(pasted)][1:]  # without usage
        assert shown == [words for shown_verb, words in shown_commands()
                         if shown_verb == "run" and words]  # fmt: skip


@pytest.mark.parametrize("columns", [80, 100])
def test_list_and_the_plan_are_as_wide_as_the_terminal(terminal, no_gpu, capsys, tmp_path, columns):
    terminal(columns)
    list_command.main([])
    shown = capsys.readouterr().out
    assert longest_line(shown) <= columns
    assert "(1) nccl needs 4 GPUs and this machine has 0" in shown
    assert "dataflow list" not in shown
    output = tmp_path / "records"
    run.main(["store refs", "graph nccl", "--dry-run", "--output", str(output)])
    *lines, records = capsys.readouterr().out.splitlines()
    assert records == f"records: {output}"  # a path is not broken
    assert longest_line("\n".join(lines)) <= columns


@pytest.mark.parametrize("columns", [80, 100])
def test_progress_is_broken_between_words(terminal, no_gpu, capsys, columns, tmp_path):
    (item,) = supervisor.make_items(
        plan_configuration("store refs --copy-out --zero-copy", {}), tmp_path
    )
    item.record.runs.append(make_run([1.0], other_cores=1.0, settled=False))
    supervisor.print_progress(item, "  4 of 16", 65.0, 130.0)
    unbroken = " ".join(capsys.readouterr().out.split())
    terminal(columns)
    supervisor.print_progress(item, "  4 of 16", 65.0, 130.0)
    shown = capsys.readouterr().out
    assert longest_line(shown) <= columns
    assert " ".join(shown.split()) == unbroken
    for text in (
        "1,000 ms per iteration",
        "disturbed: other programs used 1.0 cores",
        "0:01:05 so far, about 0:02:10 left",
    ):
        assert text in unbroken


def test_version_is_that_of_the_project(capsys):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert program.main(["--version"]) == 0
    assert capsys.readouterr().out == f"{project['name']} {project['version']}\n"


@pytest.mark.parametrize(("verb", "advice"), [
    ("profile", ": the program raymeter profiles, as in `raymeter train.py` (docs/profile.md)"),
    ("explain", ": give run, list, report, compare, machine, predict, nodes, replay, archive"),
    ("rport", ": did you mean report?"),
])  # fmt: skip
def test_an_unknown_verb_is_one_line_and_a_suggestion_is_similar(verb, advice):
    with pytest.raises(UsageError) as error:
        program.main([verb, "train.py"])
    assert str(error.value) == f"unknown verb {verb}{advice}"


@pytest.mark.parametrize(("target", "is_for_tests"), [
    ("demo", False), ("quick", False), ("run", False), ("campaign", False), ("publish", False),
    ("test", True), ("lint", True), ("unit", True), ("test-raymeter", True),
])  # fmt: skip
def test_make_installs_packages_of_tests_for_tests_only(tmp_path, target, is_for_tests):
    for path in (ROOT / "Makefile", *ROOT.glob("requirements*.txt")):
        (tmp_path / path.name).write_text(path.read_text())
    command = ["make", "--dry-run", target]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, text=True)
    installed = set(re.findall(r"-r (requirements\S*)", done.stdout))
    assert "requirements.txt" in installed
    assert ("requirements-dev.txt" in installed) == is_for_tests


def test_make_rejects_an_old_python_in_one_line_before_anything_is_installed(tmp_path):
    for name in ("Makefile", "requirements.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    old = tmp_path / "python3.10"
    pretend = "import sys; sys.version_info, sys.version = (3, 10, 13), '3.10.13 (main)'"
    old.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{pretend}; exec(sys.argv[1])" "$2"\n')
    old.chmod(0o755)
    command = ["make", "demo", f"PYTHON={old}"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, check=False, text=True, timeout=60
    )
    assert f"error: Python 3.11 or newer is needed: {old} is 3.10.13" in done.stderr
    assert done.returncode != 0 and not (tmp_path / ".venv").exists()
    assert "installing" not in done.stdout
