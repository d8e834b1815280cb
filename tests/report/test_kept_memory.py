# SPDX-License-Identifier: Apache-2.0
"""Test what tables say of runs that keep memory or change sizes, and of iterations without a pause between them."""

import pytest
from made_records import make_record, make_run, rows_of, write_campaign

from dataflow.analysis.campaigns import combine, load_campaigns
from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import NOT_SETTLED, Result, group_results
from dataflow.report.campaign_tables import campaign_sections
from dataflow.report.provenance import describe_left_out
from dataflow.report.sections import sections
from dataflow.report.sentences import compare_with_first, describe_pair

KEPT = {"retain_memory": True}
SETTLED = "settled after (iterations)"
CHANGING = {"changing_sizes": 0.5}


def warmed_up(seconds, iterations, settled=True):
    return make_run([seconds] * 3, warmup_iterations=iterations, settled=settled)


def test_a_run_with_kept_memory_that_did_not_settle_counts_and_is_marked():
    runs = [warmed_up(1.0, 30), warmed_up(1.0, 44), warmed_up(3.0, 200, settled=False)]
    kept = Result([make_record("refs", *runs, flags=KEPT)])
    assert (kept.status, len(kept.run_seconds)) == ("ok", 3)
    (section,) = sections([kept])
    (row,) = rows_of(section)
    assert row[SETTLED] == "30 to 44, not settled after 200 (1 of 3 runs)"
    note = "Counted with kept memory, although they had not settled: 1 of 3 runs."
    assert note in " ".join(section.notes)
    others = Result([make_record("refs", *runs)])
    assert len(others.run_seconds) == 2  # without kept memory, it is left out
    assert "Left out, because their times had not settled: 1 of 3" in describe_left_out([others])
    assert rows_of(sections([others])[0])[0][SETTLED] == "30 to 44"


def test_a_configuration_that_never_settles_has_a_time_only_if_it_keeps_memory():
    run = warmed_up(1.0, 200, settled=False)
    kept = Result([make_record("refs", run, flags=KEPT)])
    (row,) = rows_of(sections([kept])[0])
    assert (row["status"], row[SETTLED]) == ("ok", "not settled after 200")
    assert Result([make_record("refs", run)]).status == NOT_SETTLED


def test_a_warm_up_of_a_fixed_number_says_nothing():
    (section,) = sections([Result([make_record("refs", [1.0], flags=KEPT)])])
    assert SETTLED not in section.table.headers


def test_the_table_of_kept_memory_has_both_warm_ups():
    records = [
        make_record("refs", warmed_up(1.0, 10), table="retained-memory"),
        make_record("refs", warmed_up(0.5, 200, False), flags=KEPT, table="retained-memory"),
    ]
    (section,) = sections(group_results(records))
    (row,) = rows_of(section)
    assert row[SETTLED] == "10 → not settled after 200"


def write_boot(folder, boot, *times, **changes):
    environment = {
        "clock_code": "a",
        "boot": boot,
        "versions": {"ray": "2.60.0", "torch": "2.13.0"},
    }
    write_campaign(folder, *times, environment=environment, **changes)


def campaign_table(folder, name):
    built = campaign_sections(combine(load_campaigns(folder)))
    (section,) = [section for section in built if section.name == f"campaign-{name}"]
    return section


def test_a_table_of_campaigns_has_the_warm_ups_of_all_campaigns(tmp_path):
    for boot, iterations in (("a", 21), ("b", 57)):
        settled = {"settled": True, "warmup_iterations": iterations}
        times = [
            ("store refs", {}, 2.0, settled),
            ("store refs", KEPT, 0.5, settled | {"settled": boot == "a"}),
        ]
        write_boot(tmp_path / boot, boot, *times)
    rows = {row["configuration"]: row for row in rows_of(campaign_table(tmp_path, "headline"))}
    assert rows["store refs --retain-memory"][SETTLED] == "21, not settled after 57 (3 of 6 runs)"
    assert rows["store refs"][SETTLED] == "21 to 57"


def test_iterations_without_a_pause_are_compared_with_those_of_the_same_campaign(tmp_path):
    together = {"check_every": 10}
    for boot, share in (("a", 1.2), ("b", 1.4)):
        times = [("store driver-queue", {}, 2.0), ("store refs", {}, 1.0)]
        write_boot(tmp_path / boot, boot, *times)
        times = [("store driver-queue", together, 2.0), ("store refs", together, share)]
        write_campaign(tmp_path / "new", *times, table="without-pauses", environment={
            "clock_code": "a", "boot": boot, "versions": {"ray": "2.60.0", "torch": "2.13.0"},
        })  # fmt: skip
        for file in (tmp_path / "new").iterdir():
            file.rename(tmp_path / boot / f"1{file.name}")
    section = campaign_table(tmp_path, "without-pauses")
    assert section.title.endswith("448 MiB per iteration, 10 iterations without a pause")
    assert section.sentence.endswith(
        "Times as long as with a pause after each iteration, by machine: "
        "store driver-queue 1, 1; store refs 1.2, 1.4."
    )
    assert [row["configuration"] for row in rows_of(section)] == [
        "store driver-queue",
        "store refs",
    ]
    headline = campaign_table(tmp_path, "headline")
    assert "pause" not in headline.title + headline.sentence
    assert len(headline.table.cells) == 2


@pytest.mark.parametrize("table", ["configurations", "retained-memory", "changing-sizes"])
def test_times_of_changing_sizes_are_divided_only_by_each_other(table):
    records = [
        make_record("refs", [1.0], [1.0], table=table),
        make_record("refs", [0.5], [0.5], table=table, flags=KEPT),
        make_record("refs", [4.0], [4.0], table=table, **CHANGING),
        make_record("refs", [1.0], [1.0], table=table, flags=KEPT, **CHANGING),
    ]
    plain, changing = sections(group_results(records))
    if table == "retained-memory":
        factors = [
            row["times as fast"] for section in (plain, changing) for row in rows_of(section)
        ]
        assert sorted(factors) == ["2", "4"]
        return
    names = {row["configuration"] for row in rows_of(changing)}
    assert names == {
        "store refs --changing-sizes 0.5",
        "store refs --retain-memory --changing-sizes 0.5",
    }
    header = "times as fast as store refs --changing-sizes 0.5"
    factors = {row[header].split()[0] for row in rows_of(changing)}
    assert factors == {"1", "4"}


def test_a_sentence_does_not_divide_changing_sizes_by_others():
    records = [make_record("refs", [1.0]), make_record("shm", [0.5], runtime="graph", **CHANGING)]
    (sentence,) = compare_with_first([Result([record]) for record in records])
    assert sentence == (
        "graph shm --changing-sizes 0.5 sends other messages than store refs: no factor."
    )


def test_whatever_pairs_changing_sizes_with_others_gives_no_factor():
    records = [make_record("refs", [1.0]), make_record("refs", [0.5], **CHANGING)]
    old, new = [Result([record]) for record in records]
    assert describe_pair(Pair(old, new)).endswith("different work, so there is no factor.")


def test_campaigns_with_changing_sizes_have_a_baseline_of_their_own(tmp_path):
    write_boot(tmp_path / "a", "a", ("store driver-queue", {}, 8.0), ("store refs", {}, 4.0))
    times = [("store refs", {}, 2.0), ("store refs", KEPT, 1.0)]
    write_boot(tmp_path / "new", "a", *times, **CHANGING)
    for file in (tmp_path / "new").iterdir():
        file.rename(tmp_path / "a" / f"1{file.name}")
    (tmp_path / "new").rmdir()
    factors = {row.newest.label: row.factor.mean for row in combine(load_campaigns(tmp_path))}
    assert factors == pytest.approx({
        "store driver-queue": 1, "store refs": 2, "store refs --changing-sizes 0.5": 1,
        "store refs --retain-memory --changing-sizes 0.5": 2,
    })  # fmt: skip


def test_a_run_counts_with_its_mean_whether_sizes_change_or_not():
    times = [1.0, 1.0, 4.0]
    assert Result([make_record("refs", times)]).typical_seconds == 2
    assert Result([make_record("refs", times, **CHANGING)]).typical_seconds == 2
