# SPDX-License-Identifier: Apache-2.0
"""Test which records answer a question for a workload, and the command that measures what no record has."""

import re
import shlex

import pytest
from conftest import ROOT
from made_records import make_record, make_run, write_record

from dataflow.commands import answer, list, run
from dataflow.errors import UsageError
from dataflow.records.machine import describe_environment

HERE = describe_environment()


@pytest.fixture
def ask(tmp_path, capsys):
    """Return a function that writes records and returns what the script prints for these flags."""

    def ask(records, *flags, code=0):
        folder = tmp_path / "records"
        for index, record in enumerate(records):
            write_record(folder / f"{index}.json", record)
        assert answer.main([*flags, "--records", str(folder)]) == code
        return capsys.readouterr().out

    return ask


def measured(transport, *times, runtime="store", is_view=False, **changes):
    """Return a record of this machine with a run of one iteration for each time."""
    runs = [
        make_run([seconds], readers_own_a_copy=not is_view, group_seconds=[seconds])
        for seconds in times
    ]
    return make_record(transport, *runs, runtime=runtime, **{"environment": HERE} | changes)


def ranked_names(text):
    """Return the configurations of the table, the slowest first."""
    return [
        re.split("  +", line)[0] for line in text.splitlines() if re.search("  (copy|view) ", line)
    ]


def test_copies_views_and_producers_that_write_in_place_are_ranked_apart(ask):
    text = ask([
        measured("refs", 0.30, 0.31, 0.32),
        measured("mapped", 0.05, 0.05, 0.051, runtime="graph", flags={"copy_out": True}),
        measured("mapped", 0.31, 0.3, 0.32, runtime="graph", flags={"copy_in": True, "copy_out": True}),
        measured("zero-copy", 0.04, 0.04, 0.041, runtime="graph", is_view=True),
        measured("mapped", 0.001, 0.001, 0.0011, runtime="graph", is_view=True),
    ])  # fmt: skip
    assert re.findall("If (readers.*?), ([^,]*?) (?:takes|is the fastest)", text) == [
        ("readers own a copy", "store refs"),
        ("readers own a copy and the producer writes in place", "graph mapped --copy-out"),
        ("readers get a view", "graph mapped"),
    ]
    assert text.startswith("online DPO, 448 MiB per iteration. If readers own a copy, ")
    assert "these runs do not tell it apart from graph mapped --copy-in --copy-out" in text
    assert re.search(r"^store refs +copy +\S+ +310 +290 to 340 ", text, re.MULTILINE)


def test_only_ok_records_of_exactly_this_flow_these_sizes_and_these_flags_answer(ask):
    others = (
        {"traced": True}, {"device": "cuda"}, {"flags": {"inject": "policy:1:delay=1s"}}, {"iteration_bytes": 10**6},
        {"layout": {"placement": "spread"}}, {"flags": {"in_flight": 2}}, {"flow": "chain", "actors": 3},
    )  # fmt: skip
    runs = [make_run([0.002], pair="x"), make_run([0.003], status="failed")]
    records = [measured("bytes", 0.001, **other) for other in others]
    records += [make_record("bytes", run, environment=HERE) for run in runs]
    records += [measured("memcpy", 0.001, runtime="torch"), measured("refs", 0.3)]
    assert ranked_names(ask(records)) == ["store refs"]
    assert ranked_names(ask(records, "--in-flight", "2")) == ["store bytes --in-flight 2"]
    assert ranked_names(ask(records, "--iteration-bytes", "1MB")) == ["store bytes"]
    assert (
        "store bytes"
        not in ask(records, "--iteration-bytes", "2MB", code=1).partition("To measure")[0]
    )


def test_records_of_two_starts_of_a_machine_are_not_ranked_together(ask):
    before = {"environment": HERE | {"boot": "before"}}
    records = [
        measured("refs", 0.3),
        measured("bytes", 0.1, **before),
        measured("numpy", 0.2, **before),
    ]
    assert ranked_names(ask(records)) == ["store refs"]
    assert ranked_names(ask(records, "--any-machine")) == ["store numpy", "store bytes"]
    other = [measured("refs", 0.3, environment={"cpu_model": "another", "boot": HERE["boot"]})]
    assert "other machines, or earlier starts of this one, have some: --any-machine" in ask(
        other, code=1
    )


def test_older_times_say_that_another_start_has_newer_ones(ask):
    before = {"environment": HERE | {"boot": "before"}}
    old = [measured("refs", 0.3, **before), measured("bytes", 0.1, **before)]
    new = measured("numpy", 0.2)
    assert "newer" not in ask([*old, new], "--any-machine")
    new.runs[0].started_at = "2026-02-03T00:00:00+00:00"
    text = ask([*old, new], "--any-machine")
    assert ranked_names(text) == ["store refs", "store bytes"]
    assert "has newer times of 1 configuration, of 2026-02-03." in " ".join(text.split())
    assert "newer" not in ask([*old, new])


def test_without_a_record_the_command_that_measures_is_printed(ask, capsys, tmp_path):
    flow = "a, b -> c: x int64 8kB"
    text = ask([measured("refs", 1.0)], "--flow", flow, "--in-flight", "2", code=1)
    _, found, words = text.rpartition("python3 -m dataflow run ")
    assert found
    argv = [*shlex.split(words), "--dry-run", "--output", str(tmp_path / "new")]
    assert run.main(argv) == 0
    lines = capsys.readouterr().out
    assert (
        re.search("^store refs --in-flight 2 +5 x 30 ", lines, re.MULTILINE)
        and "skipped" not in lines
    )
    assert "store driver-queue" not in lines  # it holds one iteration
    with pytest.raises(UsageError, match=r"store driver-queue: .* needs .* TiB of memory"):
        ask([measured("refs", 1.0)], "--iteration-bytes", "1TiB")
    with pytest.raises(UsageError, match="--sweep: leave it out"):
        ask([], "--sweep", "iteration-bytes=1MiB,2MiB")
    with pytest.raises(UsageError, match=r"^unknown flow gpro: did you mean grpo"):
        list.main(["--flow", "gpro"])


def documented_commands():
    """Return the words after "answer" of each command in the docs and in the docstring of the command."""
    texts = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    texts += [(ROOT / "README.md").read_text(), answer.__doc__]
    lines = [line for text in texts for line in re.findall(r"-m dataflow answer (--.*)", text)]
    return sorted({line.partition("#")[0].strip("` ") for line in lines})


@pytest.mark.study
@pytest.mark.parametrize("command", documented_commands())
def test_a_documented_command_has_an_answer(command, capsys):
    assert answer.main(shlex.split(command)) == 0
    assert "readers own a copy, " in capsys.readouterr().out


@pytest.mark.study
def test_without_flags_it_has_an_answer_or_says_how_to_measure(capsys):
    code = answer.main([])
    expected = "readers own a copy, " if code == 0 else "To measure it:"
    assert expected in capsys.readouterr().out


def test_the_default_records_are_those_that_are_published_and_the_newest_own_ones(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(answer, "RESULTS", tmp_path)
    monkeypatch.setattr(answer, "CAMPAIGNS", tmp_path / "campaigns")
    for name in ("published/a.json", "run-1/a.json", "run-2/a.json"):
        write_record(tmp_path / name, make_record("refs", [1.0]))
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "other.json").write_text("[]")
    assert answer.find_records() == [tmp_path / "published", tmp_path / "run-2"]


def test_the_columns_that_are_left_out_are_shown_by_the_flag_that_the_text_names(ask):
    records = [measured("refs", 0.30, 0.31, 0.32), measured("bytes", 0.2, 0.21, 0.22)]
    text = ask(records)
    assert "(--columns all also shows: " in text
    assert "peak GiB" in text.partition("(--columns all")[2]
    everything = ask(records, "--columns", "all")
    assert "peak GiB" in everything and "--columns" not in everything
