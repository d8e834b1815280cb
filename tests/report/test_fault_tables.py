# SPDX-License-Identifier: Apache-2.0
"""Check that the tables of injected faults and hostile uses have the cases of the code, and what they must say."""

import re
import subprocess

import pytest
from conftest import ROOT
from runs import faults


def expected_cases(table):
    """Return the configuration, the exit code and the pattern of the message of each case, by its name."""
    cases = {}
    for case in {"faults": faults.FAULTS, "hostile": faults.HOSTILE}[table]:
        if "--help" not in case.flags:  # its row is not stored
            cases[case.name] = (case.command, case.code, case.expected)
    if table == "faults":
        for name, pattern in faults.NODE_FAULTS.items():
            cases[name] = ("store refs", 1, pattern)
    return cases


@pytest.mark.parametrize("table", faults.TABLES)
def test_a_table_has_each_case_of_the_code_once_and_what_it_must_say(table):
    rows = faults.load_rows(table)
    cases = expected_cases(table)
    assert sorted(row["name"] for row in rows) == sorted(cases)
    for row in rows:
        configuration, code, pattern = cases[row["name"]]
        assert (row["configuration"], row["code"]) == (configuration, code)
        assert re.search(pattern, row["message"]), row
        assert row["left"] == []


def test_names_of_cases_are_unique():
    names = [case.name for case in faults.FAULTS + faults.HOSTILE]
    assert len({*names, *faults.NODE_FAULTS}) == len(names) + len(faults.NODE_FAULTS)


def test_a_row_replaces_that_of_an_earlier_run(monkeypatch, tmp_path):
    monkeypatch.setenv("FAULT_RESULTS", str(tmp_path))
    for name, code in (("one", 1), ("two", 1), ("one", 2)):
        faults.store_result("faults", name, "store refs", "/tmp/t-1/x: no", code, 0.1, [])
    lines = (tmp_path / "faults.jsonl").read_text().splitlines()
    rows = [faults.json.loads(line) for line in lines]
    assert [(row["name"], row["code"], row["message"]) for row in rows] == [
        ("two", 1, "x: no"),
        ("one", 2, "x: no"),
    ]


def test_only_rows_of_cases_that_do_not_exist_are_dropped(tmp_path):
    """make faults replaces rows one by one, so a case that is skipped keeps what an earlier run has found."""
    node_fault = next(iter(faults.NODE_FAULTS))
    kept = [{"name": faults.FAULTS[-1].name, "code": 1}, {"name": node_fault, "code": 1}]
    old = [{"name": "a case that was deleted", "code": 1}]
    path = tmp_path / "faults.jsonl"
    path.write_text("".join(faults.json.dumps(row) + "\n" for row in [*old, *kept]))
    faults.drop_old_rows("faults", tmp_path)
    assert [faults.json.loads(line) for line in path.read_text().splitlines()] == kept


def test_make_faults_removes_no_file_of_results():
    """A run that is interrupted, or on a machine that skips cases, would lose their rows."""
    command = ["make", "--dry-run", "--always-make", "faults"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    lines = [line for line in printed.splitlines() if "results/evidence" in line]
    assert lines
    assert not any(re.search(r"\brm\b", line) for line in lines)
