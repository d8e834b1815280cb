"""Rows whose trips alternate, in real processes."""

import shutil
import subprocess
import sys
from itertools import pairwise

import pytest
from conftest import ROOT

import compare_results
from common.record import files
from common.run.alternate import run_alternately
from common.run.row_plan import plan_of
from common.run.watch import Watch
from common.runtime.workplace import PREFIX

KILOBYTES = ("--payload", "64KiB", "--iterations", "20")


def rows(tmp_path, *texts):
    plans = [plan_of(text, KILOBYTES)[0] for text in texts]
    return [(plan, plan.record(), tmp_path / f"{number}.json") for number, plan in enumerate(plans)]


def measured(tmp_path, *argv, code=0):
    command = [sys.executable, "benchmark.py", *argv, *KILOBYTES, "--output-dir", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_one_trip_of_each_follows_one_of_the_other(tmp_path, monkeypatch):
    trips = []
    collect = Watch._collect_samples

    def also_when(watch):
        name = watch.record.row.transport
        trips.extend((*watch.board.trip(number), name) for number in range(1, 1 + watch.plan.trips))
        collect(watch)

    monkeypatch.setattr(Watch, "_collect_samples", also_when)
    own = rows(tmp_path, "torch memcpy", "torch mapped")
    assert run_alternately(own, 7) == [0, 0]
    (memcpy,), (mapped,) = (record.runs for _, record, _ in own)
    assert memcpy.alternation == mapped.alternation != ""
    assert (memcpy.status, mapped.status, memcpy.order, mapped.order) == ("ok", "ok", 7, 7)
    assert (len(memcpy.seconds), len(mapped.seconds)) == (20, 20)
    trips.sort()
    # The first trip alone, the warm-up at once, then one by one.
    alone = [name for _, _, name in trips[:2] + trips[8:]]
    assert alone == ["memcpy", "mapped"] * 21
    assert all(end <= begin for (_, end, _), (begin, _, _) in pairwise(trips))


def test_where_one_fails_all_do_and_say_so(tmp_path):
    own = rows(tmp_path, "torch mapped --inject policy:9:die", "torch memcpy")
    assert run_alternately(own, 0) == [1, 1]
    (died,), (other,) = (record.runs for _, record, _ in own)
    assert died.status == other.status == "failed"
    assert "policy died" in died.reason and len(died.seconds) < 9
    assert other.reason == "torch mapped --inject policy:9:die, with which it alternates, failed"
    assert [files.load(output).runs for _, _, output in own] == [[died], [other]]


def test_a_planted_delay_fails_the_comparison_and_the_same_again_does_not(tmp_path, capsys):
    slow = "torch memcpy --inject reference:1:delay=5ms"
    said = measured(tmp_path, "--rows", "torch memcpy", "torch memcpy", slow, "--alternate", "--runs", "3")
    old, again, new = sorted((tmp_path / "out").glob("*.json"))
    ids = [[run.alternation for run in files.load(path).runs] for path in (old, again, new)]
    assert ids[0] == ids[1] == ids[2] and len(set(ids[0])) == 3 and all(id.startswith(PREFIX) for id in ids[0])
    (line,) = [line for line in said.splitlines() if line.startswith(f"{slow}: ")]
    assert " times as long as torch memcpy (" in line and line.endswith("slower")
    assert compare_results.main([str(old), str(again), "--fail-above", "100%"]) == 0
    assert compare_results.main([str(old), str(new), "--fail-above", "5%"]) == 1
    assert f"{slow} is slower by" in capsys.readouterr().err


@pytest.fixture
def before(tmp_path):
    """Another checkout of this project, in which models take 5 ms longer."""
    there = tmp_path / "before"
    shutil.copytree(ROOT / "common", there / "common")
    for script in ROOT.glob("*.py"):
        shutil.copy(script, there)
    model = there / "common" / "payload" / "model.py"
    begin = "        number = self.receive(inputs, task)"
    text = model.read_text()
    assert text.count(begin) == 1
    model.write_text(text.replace(begin, f"        time.sleep(0.005)\n{begin}"))
    return there


def test_a_row_alternates_with_what_it_is_in_another_checkout(tmp_path, before):
    said = measured(tmp_path, "--rows", "torch memcpy", "--against", str(before), "--runs", "3")
    assert sorted(path.parent.name for path in (tmp_path / "out").rglob("*.json")) == ["new", "old"]
    lines = [line for line in said.splitlines() if line.endswith("  faster")]
    assert [line.split("  ")[0] for line in lines] == ["torch memcpy"]
    assert "of 3  torch memcpy, before: " in said
