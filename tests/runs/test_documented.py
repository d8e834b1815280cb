"""Run what the pages show: commands of README.md, examples, and the additions of CONTRIBUTING.md to a copy."""

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
    if path.stem not in ("actors", "put_gigabytes")
)
QUICK = "shared_memory_ring"  # whose change is many times as fast
LONGER = ("make campaign", "make test", "make gpu")  # than this test, which they would call again
ATTEMPTS = 3  # because other processes may disturb the ones that are a little faster


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
# file, the text that the addition comes before, the addition
EDITS = [
    ("catalogue/transports.toml", '[[transports]]\nruntime = "graph"\nname = "pickle"', TRANSPORT_ENTRY),
    ("catalogue/variants.toml", '[[variants]]\ntransport = "torch memcpy"', f"[[variants]]{VARIANT_ENTRY}"),
    ("transports/processes.py", "\nTRANSPORTS = {\n", documented("def by_clone")),
    ("transports/processes.py", '    "multiprocessing": by_multiprocessing,\n', '    "clone": by_clone,\n'),
    ("flows/catalogue.py", "FLOWS: dict[str,", documented("def two_judges").replace("message_bytes", "samples")),
    ("flows/catalogue.py", '    "online-dpo": online_dpo,\n', '    "two-judges": two_judges,\n'),
    ("plan/options.py", "    huge_pages: bool =",
     '    samples: int | None = _size("samples of the judges", int, _COUNT)\n'
     '    colour: bool = _transport(False, "paint the messages", configuration=True)\n'),
    ("catalogue/suites.toml", "[[quick]]",
     '[[judges]]\ntable = "judges"\nconfigurations = ["torch clone", "torch memcpy"]\n'
     'flags = "--flow two-judges --samples 3 --iterations 4 --colour"\n\n'),
    ("records/schema.py", "    spilled_bytes: Count = 0", "    birds: int = 0  # how many came\n"),
    ("measure/counters.py", "        run.stored_bytes =", "        run.birds = 7\n"),
    ("report/suite_tables.py", "SECTIONS = {", documented("JUDGES = Table")),
    ("report/suite_tables.py", '    "paired": CONFIGURATIONS,', '    "judges": JUDGES,\n'),
    ("report/tables.py", '    Column("runs",', '    Column("birds", lambda result: str(result.runs[0].birds)),\n'),
]  # fmt: skip


def test_the_documented_edits_add_a_transport_flow_flag_suite_field_column_and_chart(tmp_path):
    copy_project(
        tmp_path, *((f"dataflow/{name}", text, addition + text) for name, text, addition in EDITS)
    )

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


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == QUICK else pytest.mark.long)
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
        before, after = re.fullmatch(
            r"before: (\d+\.\d) ms, after: (\d+\.\d) ms\n", done.stdout
        ).groups()
        if float(after) < float(before):
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
    for command in [
        "make demo",
        *(command for command in commands if not command.startswith(LONGER)),
    ]:
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
        printed += done.stdout
    assert (
        len(re.findall("Execution time: .* seconds", printed)) == 4
    )  # of each script, with 20 and 100 iterations
    assert re.search("store refs --retain-memory .* times as .* store refs ", printed)
    assert len([*project.glob("results/**/benchmark_result.svg")]) == 2
