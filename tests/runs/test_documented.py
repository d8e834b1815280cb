# SPDX-License-Identifier: Apache-2.0
"""Run what the pages show: commands of README.md, examples, and the additions of CONTRIBUTING.md to a copy."""

import ast
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from textwrap import dedent

import pytest
from conftest import ROOT, copy_project

from common.record_files import ARCHIVE

EXAMPLES = sorted(
    path.stem
    for path in (ROOT / "examples").glob("*.py")
    if path.stem not in ("actors", "put_records", "rdt_hang")
)
QUICK = "shared_memory_ring"  # whose change is many times as fast
LONGER = ("make campaign", "make test", "make gpu")  # than this test, which they would call again
ATTEMPTS = 3  # because other processes may disturb the ones that are a little faster
LINE = r"(\S.*?) +([\d.]+) ms per step, +([\d,]+) page faults\n"
PAGE = (ROOT / "docs" / "in-your-code.md").read_text()


def documented(text):
    """Return the code block of CONTRIBUTING.md that has this text."""
    blocks = re.findall(
        r"(?:^ {4,}.*\n|^\n)+", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE
    )
    (block,) = [block for block in blocks if text in block]
    return dedent(block).strip() + "\n\n"


TRANSPORT_ENTRY, _, VARIANT_ENTRY = documented('summary = "every message is cloned"').partition(
    "[[variants]]"
)


def define(tree, name):
    """Return the statement of a module that defines or sets a name."""
    for node in tree.body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names = [getattr(target, "id", None) for target in targets]
        if name in (*names, getattr(node, "name", None)):
            return node
    raise AssertionError(f"nothing defines {name}")


# Each of these returns a function of the syntax tree of a module: the line before which something is added.
def before(name):
    return lambda tree: define(tree, name).lineno


def at_the_end_of(name):
    """The last line of a table, which closes it."""
    return lambda tree: define(tree, name).end_lineno


def before_the_methods_of(name):
    def find(tree):
        (first, *_) = [
            node for node in define(tree, name).body if isinstance(node, ast.FunctionDef)
        ]
        return min([first, *first.decorator_list], key=lambda node: node.lineno).lineno

    return find


def before_the_field(name):
    """The statement that sets a field of the record."""

    def find(tree):
        (line,) = {
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and node.attr == name
            and isinstance(node.ctx, ast.Store)
        }
        return line

    return find


# file of dataflow/, where in it (None: at its end), the addition
ADDITIONS = [
    ("catalogue/transports.toml", None, TRANSPORT_ENTRY),
    ("catalogue/variants.toml", None, f"[[variants]]{VARIANT_ENTRY}"),
    ("catalogue/suites.toml", None,
     '[[judges]]\ntable = "judges"\nconfigurations = ["torch clone", "torch memcpy"]\n'
     'flags = "--flow two-judges --samples 3 --iterations 4 --colour"\n'),
    ("transports/processes.py", before("TRANSPORTS"), documented("def by_clone")),
    ("transports/processes.py", at_the_end_of("TRANSPORTS"), '    "clone": by_clone,\n'),
    ("flows/catalogue.py", before("FLOWS"), documented("def two_judges").replace("message_bytes", "samples")),
    ("flows/catalogue.py", at_the_end_of("FLOWS"), '    "two-judges": two_judges,\n'),
    ("plan/options.py", before_the_methods_of("Options"),
     '    samples: int | None = _size("samples of the judges", int, _COUNT)\n'
     '    colour: bool = _transport(False, "paint the messages", configuration=True)\n'),
    ("records/schema.py", before_the_methods_of("Run"), "    birds: int = 0  # how many came\n"),
    ("measure/counters.py", before_the_field("stored_bytes"), "        run.birds = 7\n"),
    ("report/suite_tables.py", before("SECTIONS"), documented("JUDGES = Table")),
    ("report/suite_tables.py", at_the_end_of("SECTIONS"), '    "judges": JUDGES,\n'),
    ("report/tables.py", at_the_end_of("MAIN_COLUMNS"),
     '    Column("birds", lambda result: str(result.runs[0].birds)),\n'),
]  # fmt: skip


def add(path, find_line, addition):
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    place = len(lines) if find_line is None else find_line(ast.parse(text)) - 1
    lines.insert(place, addition)
    path.write_text("".join(lines))


@pytest.mark.slow
def test_the_documented_edits_add_a_transport_flow_flag_suite_field_column_and_chart(tmp_path):
    copy_project(tmp_path)
    for name, find_line, addition in ADDITIONS:
        add(tmp_path / "dataflow" / name, find_line, addition)

    def run(*words):
        command = [sys.executable, "-m", "dataflow", "run", *words]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, check=False, text=True, timeout=200
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    printed = run("--suite", "judges", "--output", "out", "--allow-disturbed")
    lines = gzip.decompress((tmp_path / "out" / ARCHIVE).read_bytes()).splitlines()
    record, _ = map(json.loads, lines)
    assert (record["suite"], record["arguments"]["colour"]) == ("judges", True)
    assert record["workload"]["sizes"]["samples"] == 3
    assert record["runs"][0]["birds"] == 7
    assert record["runs"][0]["data_paths"]["verdict -> driver"] == "clone"
    assert "birds" in printed and "torch clone --colour" in printed
    assert (tmp_path / "out" / "judges.svg").exists()
    assert re.search("torch clone +1 x 20 ", run("--suite", "benchmark", "--dry-run"))


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name == QUICK else pytest.mark.long)
                                  for name in EXAMPLES])  # fmt: skip
def test_an_example_is_faster_after_its_change_than_before(cluster, name):
    environment = os.environ | {"RAY_ADDRESS": cluster[1], "RAY_AUTH_MODE": "disabled"}
    command = [sys.executable, "-m", f"examples.{name}"]
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            check=False,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        printed = re.fullmatch(LINE * 2, done.stdout)
        assert printed, done.stdout
        before, before_ms, _, after, after_ms, _ = printed.groups()
        assert f"| `{before}`, `{after}` |" in PAGE
        if float(after_ms) < float(before_ms):
            return
    raise AssertionError(done.stdout)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_the_commands_of_the_readme_run_as_they_are_written(tmp_path):
    project = tmp_path / "project"
    shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(".*", "run-*", "*.svg"))
    (project / ".venv").symlink_to(sys.prefix)
    os.utime(project / "requirements.txt", (0, 0))  # so that make does not install it again
    text = (ROOT / "README.md").read_text().replace("\\\n", "")
    commands = [
        line.split("#")[0]
        for line in re.findall(r"^ *((?:\.venv/bin/python|make) .+)", text, re.MULTILINE)
    ]
    printed = ""
    for command in [line for line in commands if not line.startswith(LONGER)]:
        done = subprocess.run(
            command,
            shell=True,
            cwd=project,
            capture_output=True,
            check=False,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        if "simulate_chat_learn" in command:
            assert re.search("^Execution time: .* seconds$", done.stdout, re.MULTILINE)
        if "plot_results.py" in command or command == "make demo":
            chart = done.stdout.strip().rpartition("\n")[2]
            assert (project / chart).name == "benchmark_result.svg"
            assert (project / chart).exists()
        printed += done.stdout
    assert re.search("store refs --retain-memory .* times as .* store refs ", printed)
