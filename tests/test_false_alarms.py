"""The evidence on comparisons, from made-up runs: how they are paired, and what is counted."""

from pathlib import Path

import numpy as np
import pytest
from made_records import a_record, a_run, written

from common.analysis.false_alarms import PAIRED, SHUFFLES, delays, judged
from common.plan.faults import Fault
from evidence import false_alarms


def runs(count, scatter, factor=1.0, seed=0):
    """Of a trip each, around a second; one a minute."""
    rng = np.random.default_rng(seed)
    return [
        a_run([float(seconds)], started_at=f"2026-01-01T00:{minute:02}:00+00:00", order=minute)
        for minute, seconds in enumerate(factor * np.exp(rng.normal(0, scatter, count)))
    ]


@pytest.fixture
def folder(tmp_path):
    def folder(*records):
        for index, record in enumerate(records):
            written(tmp_path / f"{index}.json", record)
        return tmp_path

    return folder


def delayed(own, milliseconds=50):
    record = a_record("refs", *own)
    record.arguments["inject"] = f"policy:1:delay={milliseconds}ms"
    return record


def times(pair):
    return [{run.started_at for run in side.runs} for side in (pair.old, pair.new)]


def test_pairs_of_one_way_share_no_run_and_old_and_new_take_turns_or_follow_each_other(folder):
    own = runs(43, 0.01)
    turns, after, mixed = judged(folder(a_record("refs", *own[::-1])), [5], 3, 0)
    assert [(one.way, len(one.pairs)) for one in (turns, after, mixed)] == [
        ("in turns", 4), ("one after the other", 4), ("at random", 12),
    ]  # fmt: skip
    for one in (turns, after):
        assert len(set().union(*[side for pair in one.pairs for side in times(pair)])) == 40
    started = [run.started_at for run in own]
    assert times(turns.pairs[1]) == [set(started[10:20:2]), set(started[11:20:2])]
    assert times(after.pairs[1]) == [set(started[10:15]), set(started[15:20])]
    assert all(len(old | new) == 10 for old, new in map(times, mixed.pairs))
    assert len({frozenset(old) for old, _ in map(times, mixed.pairs)}) == 12


def test_rows_that_are_alike_are_hardly_ever_called_different_and_those_that_drift_are(folder, capsys):
    steady = a_record("refs", *runs(60, 0.03))
    drifting = a_record("bytes", *[a_run([1.001 ** (minute**2)], started_at=f"2026-01-01T00:{minute:02}:00+00:00")
                                   for minute in range(20)])  # fmt: skip
    assert false_alarms.main([str(folder(steady, drifting))]) == 0
    printed = capsys.readouterr().out
    assert "Rows in turns: 8 pairs of 5 runs each, 0 called different." in printed
    assert "Rows one after the other: 8 pairs of 5 runs each, 2 called different." in printed
    assert '"store refs" "store refs --inject policy:1:delay=' in printed


def test_a_planted_delay_is_judged_against_the_row_without_it(folder, capsys):
    where = folder(a_record("refs", *runs(20, 0.01)), delayed(runs(20, 0.01, 1.05, seed=1)))
    assert false_alarms.main([str(where), "--markdown"]) == 0
    printed = capsys.readouterr().out
    assert "Rows delayed: 4 pairs of 5 runs each, 4 found slower." in printed
    (line,) = [line for line in printed.splitlines() if "| delayed |" in line]
    cells = line.split(" | ")
    assert cells[0] == "| store refs --inject policy:1:delay=50ms" and 0.005 < float(cells[1].rstrip("%")) / 100 < 0.015
    assert cells[2:8] == ["delayed", "5", "5.0%", "4", "4", "0"] and cells[8].startswith("1.0")


def test_the_delays_that_are_proposed_are_five_percent_of_the_rows(folder):
    found = judged(folder(a_record("refs", *runs(10, 0))), [5], 1, 0)
    (line,) = delays(found)
    assert Fault.parse(line.split("--inject ")[1].rstrip('"')) == Fault("policy", 1, "delay", 0.05)


def test_rows_that_alternated_are_judged_against_the_first_of_them_without_a_delay(folder, capsys):
    drift = np.random.default_rng(0).normal(0, 0.3, 20)
    own = [runs(20, 0.004, np.exp(drift) * slower, seed) for seed, slower in enumerate((1, 1, 1.05))]
    for number, turn in enumerate(zip(*own, strict=True)):
        for run in turn:
            run.alternation = f"turn {number}"
    first, again, slow = own
    assert false_alarms.main([str(folder(a_record("refs", *first), delayed(slow), a_record("refs", *again)))]) == 0
    printed = capsys.readouterr().out
    assert "Rows alternating: 4 pairs of 5 runs each, 0 called different." in printed
    assert "Rows delayed, alternating: 4 pairs of 5 runs each, 4 found slower." in printed
    line = next(line for line in printed.splitlines() if "  delayed, alternating  " in line)
    assert 0.003 < float(line.split("delay=50ms")[1].split("%")[0]) / 100 < 0.01


@pytest.mark.parametrize(
    ("records", "flags", "words"),
    [
        ([a_record("refs", *runs(9, 0.01))], [], "no row with 10 runs"),
        ([delayed(runs(10, 0.01))], [], "measure both in one call"),
        ([a_record("refs", *runs(10, 0.01))], ["--runs", "2"], "--runs"),
    ],
    ids=["too few", "no row to compare with", "pairs of two"],
)
def test_what_cannot_be_judged_is_refused_in_one_line(folder, capsys, records, flags, words):
    assert false_alarms.main([str(folder(*records)), *flags]) == 2
    found = capsys.readouterr()
    assert words in found.err and found.err.count("\n") == 1 and found.out == ""


EVIDENCE = Path(__file__).resolve().parent.parent / "results" / "evidence"


@pytest.mark.skipif(not EVIDENCE.is_dir(), reason="no evidence is committed")
def test_of_the_committed_runs_few_that_are_alike_are_called_different_and_nine_of_ten_delays_found():
    """Where rows alternate; else how many are found is for how far runs differ to say: docs/statistics.md."""
    found = [one for name in ("alike", "alternating") for one in judged(EVIDENCE / name, PAIRED, SHUFFLES, 0)]
    alike = [one for one in found if not one.row.injected]
    pairs = sum(len(one.pairs) for one in alike)
    wrong = sum(one.called("slower") + one.called("faster") for one in alike)
    assert pairs >= 100 and wrong < 0.05 * pairs
    assert sum(one.called("faster") for one in found if one.row.injected) == 0
    (delayed,) = [one for one in found if one.way == "delayed, alternating"]
    assert len(delayed.pairs) >= 10 and delayed.called("slower") >= 0.9 * len(delayed.pairs)
