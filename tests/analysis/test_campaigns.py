# SPDX-License-Identifier: Apache-2.0
"""Test how campaigns are combined: ratios within them, intervals between them, and what a new one confirms."""

import re
import sys
from statistics import geometric_mean
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from made_records import make_record, make_run, rows_of, write_campaign, write_record

from common.record_files import ARCHIVE
from dataflow.analysis.campaigns import Factor, combine, leave_one_out, load_campaigns, predict
from dataflow.commands import compare
from dataflow.errors import RecordError, UsageError
from dataflow.records import files, machine
from dataflow.report.campaign_tables import campaign_sections
from dataflow.report.machine_columns import times_of
from dataflow.report.provenance import describe_clock_code, describe_commits
from dataflow.report.tables import format_significant, short_label

VERSIONS = {"ray": "2.60.0", "torch": "2.13.0"}
RATIOS = {
    "2026-11-24-aaaa": 8.0,
    "2026-11-25-bbbb": 8.4,
    "2026-11-26-cccc": 7.8,
    "2026-11-27-dddd": 8.2,
}


def write_campaigns(folder, ratios=RATIOS, code="new", view=False, **changes):
    """Write a campaign per ratio: how many times as fast a graph is as queues. Each machine has another speed."""
    for name, ratio in ratios.items():
        queues = "abcdef".index(name[-1]) + 1.0
        times = [
            ("store driver-queue", {}, queues),
            ("graph shm", {}, queues / ratio, {"readers_own_a_copy": not view}),
        ]
        write_campaign(
            folder / name,
            *times,
            environment={"clock_code": code, "boot": name[-4:], "versions": VERSIONS},
            **changes,
        )
    return folder


@pytest.mark.parametrize("campaigns_per_boot", [(1, 1, 1, 1), (1, 2, 2), (2, 5, 1)], ids=str)
def test_the_interval_contains_the_ratio_of_another_boot_in_19_of_20_cases(campaigns_per_boot):
    generator = np.random.default_rng(0)
    cases = 2000
    inside = 0
    for _ in range(cases):
        *known, new_boot = np.exp(generator.normal(2, 0.2, size=len(campaigns_per_boot) + 1))
        ratios, boots = {}, {}
        for boot, (ratio, count) in enumerate(zip(known, campaigns_per_boot, strict=True)):
            for number in range(count):  # campaigns of one boot are nearly equal
                name = f"{boot}-{number}"
                ratios[name] = float(ratio * np.exp(generator.normal(0, 0.02)))
                boots[name] = str(boot)
        low, high = Factor(ratios, boots).interval
        inside += low <= new_boot <= high
    assert 0.935 < inside / cases < 0.965


def test_two_campaigns_of_one_boot_count_once():
    boots = {"a": "1", "b": "2", "c": "2", "d": "3"}
    factor = Factor({"a": 2.0, "b": 4.0, "c": 9.0, "d": 3.0}, boots)
    assert factor.by_boot == pytest.approx({"1": 2.0, "2": 6.0, "3": 3.0})
    assert factor.mean == pytest.approx(36 ** (1 / 3))
    assert factor.interval == pytest.approx(predict([2.0, 6.0, 3.0]))
    two_boots = {"b": 4.0, "c": 9.0, "d": 3.0}
    assert Factor(two_boots, boots).interval is None  # three campaigns


def test_all_campaigns_of_a_boot_are_left_out_together(tmp_path):
    ratios = {f"{day}-{boot}": 8.0 for day, boot in zip("123456", "abcdee", strict=True)}
    ratios |= {"5-e": 20.0, "6-e": 20.0}
    for name, ratio in ratios.items():
        environment = {"clock_code": "new", "boot": name[-1], "versions": VERSIONS}
        times = [("store driver-queue", {}, 1.0), ("graph shm", {}, 1.01 ** int(name[0]) / ratio)]
        write_campaign(tmp_path / name, *times, environment=environment)
    is_inside = leave_one_out(combine(load_campaigns(tmp_path)))
    wrong_boots = [boot for boot, of_boot in is_inside.items() if not all(of_boot.values())]
    assert (len(is_inside), wrong_boots) == (5, ["e"])


def test_the_repeatability_is_that_of_the_campaign_that_varied_most(tmp_path):
    for name, noise in (("1-a", 1.01), ("2-b", 1.5), ("3-c", 1.01)):
        environment = {"clock_code": "new", "boot": name, "versions": VERSIONS}
        for file, runtime, transport, seconds in (
            ("0.json", "store", "driver-queue", 2.0),
            ("1.json", "graph", "shm", 0.2),
        ):
            runs = [[seconds], [seconds * noise], [seconds / noise]]
            fields = {"suite": "campaign", "table": "headline", "environment": environment}
            record = make_record(transport, *runs, runtime=runtime, **fields)
            write_record(tmp_path / name / file, record)
    _, graph = combine(load_campaigns(tmp_path))
    assert graph.repeatability > 2


def test_ratios_are_within_a_campaign_so_the_speed_of_the_machine_does_not_count(tmp_path):
    baseline, graph = combine(load_campaigns(write_campaigns(tmp_path)))
    assert baseline.newest.name == "store driver-queue" and {*baseline.factor.ratios.values()} == {
        1.0
    }
    assert graph.factor.ratios == pytest.approx(RATIOS)
    low, high = graph.factor.interval
    assert low < 7.8 and 8.4 < high < 9.5
    assert 1.02 < graph.repeatability < 1.06  # of three runs that differ by 2 %


def test_the_results_of_a_table_share_their_memcpy_time(tmp_path):
    fast, slow = (
        {"memcpy_before_seconds": [seconds], "memcpy_after_seconds": []} for seconds in (0.02, 0.04)
    )
    write_campaign(
        tmp_path / "1-a", ("store driver-queue", {}, 2.0, fast), ("graph shm", {}, 0.2, slow)
    )
    baseline, graph = combine(load_campaigns(tmp_path))
    assert baseline.newest.memcpy_seconds == graph.newest.memcpy_seconds == pytest.approx(0.03)


def test_the_baseline_of_a_table_has_only_the_flags_that_all_share(tmp_path):
    shared = {"check_every": 50}
    times = [
        ("store ref-queue", shared, 1.0),
        ("store refs", shared | {"retain_memory": True}, 2.0),
    ]
    write_campaign(tmp_path / "1-a", *times, ("store refs", shared, 4.0), table="microbenchmarks")
    rows = combine(load_campaigns(tmp_path))
    assert {short_label(row.newest): row.factor.mean for row in rows} == pytest.approx(
        {"store refs": 1, "store refs --retain-memory": 2, "store ref-queue": 4}
    )


def test_of_each_boot_only_its_newest_code_counts_and_the_note_names_the_codes(tmp_path):
    write_campaigns(tmp_path, {"2026-11-20-aaaa": 2.0, "2026-11-21-bbbb": 3.0}, code="old")
    rows = combine(load_campaigns(write_campaigns(tmp_path, {"2026-11-25-bbbb": 8.0})))
    graph = rows[1]
    assert graph.factor.ratios == pytest.approx({"2026-11-20-aaaa": 2.0, "2026-11-25-bbbb": 8.0})
    note = campaign_sections(rows)[0].notes[-1]
    assert (
        "Versions of the code inside the clock (hashes are in the records): one on aaaa; one on bbbb. "
        in note
    )


def test_boots_that_share_a_part_of_the_code_have_one_version_of_it():
    def measured(code, boot):
        return {"clock_code": code, "boot": boot}

    both = [measured("x", "aaaa1"), measured("x", "bbbb1"), measured("y", "aaaa1")]
    assert describe_clock_code(both) == ""
    third = measured("z", "cccc1")
    assert describe_clock_code([*both, third]).endswith(
        "records): one on aaaa, bbbb; one on cccc. "
    )
    joined_later = [measured("x", "aaaa1"), measured("z", "bbbb1")]
    joined_later += [measured("y", "aaaa1"), measured("y", "cccc1")]
    assert describe_clock_code(joined_later).endswith("records): one on aaaa, cccc; one on bbbb. ")


def test_many_commits_are_counted_unless_one_had_changes():
    clean = [{"git_commit": letter * 40} for letter in "abcd"]
    assert describe_commits(clean).startswith("4 commits (their hashes are in the records)")
    assert describe_commits(clean[:3]).startswith("commit aaaaaaaaaa, bbbbbbbbbb, cccccccccc")
    changed = [*clean[:3], clean[3] | {"git_dirty": True}]
    assert "dddddddddd with changes that are not committed" in describe_commits(changed)


def test_results_of_other_versions_are_left_out(tmp_path):
    other = {"clock_code": "new", "boot": "aaaa", "versions": VERSIONS | {"ray": "2.44.0"}}
    times = [("store driver-queue", {}, 2.0), ("graph shm", {}, 1.0)]
    write_campaign(tmp_path / "2026-11-20-aaaa", *times, environment=other)
    _, graph = combine(load_campaigns(write_campaigns(tmp_path, {"2026-11-25-bbbb": 8.0})))
    assert graph.factor.ratios == pytest.approx({"2026-11-25-bbbb": 8.0})


def test_results_of_unknown_code_are_left_out(tmp_path):
    assert combine(load_campaigns(write_campaigns(tmp_path, code=None))) == []


def test_a_view_is_not_divided_by_a_copy(tmp_path):
    rows = rows_of(
        campaign_sections(combine(load_campaigns(write_campaigns(tmp_path, view=True))))[0]
    )
    assert [row["times as fast as store driver-queue, by machine"] for row in rows] == ["1", "-"]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_each_machine_has_a_column_of_times_and_a_factor_of_its_own(tmp_path, count):
    ratios = dict([*RATIOS.items()][:count])
    rows = combine(load_campaigns(write_campaigns(tmp_path, ratios)))
    _, graph = rows
    section, *_ = campaign_sections(rows)
    row = rows_of(section)[1]
    for number, (name, ratio) in enumerate(ratios.items()):
        times = times_of(graph)[name[-4:]]
        assert times.mean == pytest.approx((number + 1) / ratio, rel=0.01)
        assert row[f"{name[-4:]}: mean ms (p50, p95)"] == str(times)
    factors = [format_significant(ratio) for ratio in ratios.values()]
    assert row["times as fast as store driver-queue, by machine"] == ", ".join(factors)
    boots = "one boot" if count == 1 else f"{count} boots"
    assert row["campaigns"] == f"{count} ({boots})"
    assert (
        f"Campaigns: {count} (" in section.notes[-1]
        and f"boots: {count}, kernels: 1." in section.notes[-1]
    )


def test_notes_have_the_commits_in_the_order_of_the_campaigns_and_the_runs_that_do_not_count(
    tmp_path,
):
    code = {"clock_code": "a", "versions": {"ray": "2.60.0", "torch": "2.13.0"}}
    for name, commit in (("1-a", "fff"), ("2-b", "bbb")):
        fields = {
            "suite": "campaign",
            "table": "headline",
            "environment": code | {"git_commit": commit},
        }
        runs = [make_run([1.0]), make_run([1.0], settled=False), make_run([1.0], steal_cores=1.0)]
        write_record(tmp_path / name / "0.json", make_record("driver-queue", *runs, **fields))
    section, *_ = campaign_sections(combine(load_campaigns(tmp_path)))
    assert section.notes[-1].endswith(
        "Runs per configuration and campaign: 1. Left out, because they were disturbed: 2 of 6 runs. "
        "Left out, because their times had not settled: 2 of 6 runs. Measured with commit fff, bbb."
    )


def test_each_boot_is_compared_with_what_the_others_predict(tmp_path):
    ratios = RATIOS | {"2026-11-28-eeee": 20.0}
    predictions = leave_one_out(combine(load_campaigns(write_campaigns(tmp_path, ratios))))
    assert [boot for boot, is_inside in predictions.items() if not all(is_inside.values())] == [
        "eeee"
    ]
    check = campaign_sections(combine(load_campaigns(tmp_path)))[-1]
    assert (
        check.sentence == "80 % of 5 ratios lie in the interval of the other boots (4 boots each)."
    )
    assert rows_of(check)[-1]["outside (its table)"] == "graph shm (headline)"


@pytest.mark.parametrize(("ratio", "place"), [(8.1, "inside"), (12.0, "outside")])
def test_compare_says_whether_another_campaign_confirms_what_is_published(
    tmp_path, capsys, ratio, place
):
    published = write_campaigns(tmp_path / "campaigns")
    mine = write_campaigns(tmp_path / "mine", {"2026-12-01-ffff": ratio}) / "2026-12-01-ffff"
    assert compare.main([str(published), str(mine)]) == 0
    assert re.search(f"^graph shm .* {place}$", capsys.readouterr().out, re.MULTILINE)


def test_flows_that_begin_equally_do_not_look_alike():
    workloads = [
        ("generation_on_the_first_node_of_the_cluster -> trainer: 1MB", 10**6),
        ("a -> trainer: tokens int64 1MB, x int32 1MB", 2 * 10**6),
        ("a -> trainer: tokens int64 1MB, y int32 1MB", 2 * 10**6),
        ("chain", 10**6),
    ]
    results = [
        SimpleNamespace(workload=SimpleNamespace(flow=flow, bytes_per_iteration=nbytes))
        for flow, nbytes in workloads
    ]
    assert [*compare.label_flows(results).values()] == [
        "generation_on_the_first_nod..., 976.6 KiB",
        "a -> trainer: tokens int64 1MB, x int32 1MB, 1.907 MiB",
        "a -> trainer: tokens int64 1MB, y int32 1MB, 1.907 MiB",
        "chain, 976.6 KiB",
    ]


def write_one_by_one(folder, ratios):
    """Write campaigns, of which two can have one boot, with other times in each."""
    for seconds, (name, ratio) in enumerate(ratios.items(), start=1):
        environment = {"clock_code": "new", "boot": name[-4:], "versions": VERSIONS}
        times = [("store driver-queue", {}, seconds), ("graph shm", {}, seconds / ratio)]
        write_campaign(folder / name, *times, environment=environment)
    return folder


@pytest.mark.parametrize(("known", "has_interval"), [("abcdd", True), ("abdd", False)])
def test_compare_leaves_out_all_campaigns_of_the_boot_that_is_compared(
    tmp_path, capsys, known, has_interval
):
    ratios = {f"2026-12-0{day}-{boot * 4}": 8.0 + day for day, boot in enumerate(known)}
    folder = write_one_by_one(tmp_path, ratios)
    first, twin = [name for name in ratios if name.endswith("dddd")]
    assert compare.main([str(folder), str(folder / first)]) == 0
    shown = capsys.readouterr().out
    assert ("(3 boots)" in shown) == has_interval
    assert ("unknown: OLD has too few boots" in shown) != has_interval
    # The mean of the other boots, without the twin.
    others = geometric_mean([ratio for name, ratio in ratios.items() if "dddd" not in name])
    assert re.search(rf"^graph shm +store driver-queue +{others:.2g} ", shown, re.MULTILINE)
    assert f"Left out of OLD, because NEW is of their boot: {first}, {twin}\n" in shown


def test_compare_rejects_campaigns_of_the_same_boot_only(tmp_path):
    folder = write_one_by_one(tmp_path, {"2026-12-01-aaaa": 8.0, "2026-12-02-aaaa": 8.1})
    with pytest.raises(UsageError, match=r"all campaigns of .* are of NEW's boot"):
        compare.main([str(folder), str(folder / "2026-12-02-aaaa")])


def test_compare_names_the_flow_if_a_configuration_was_measured_with_several(tmp_path, capsys):
    published = write_campaigns(tmp_path / "campaigns")
    mine = tmp_path / "mine"
    mine_of_flow = {"online-dpo": mine / "a", "chain": mine / "b"}
    for number, folder in enumerate(published.iterdir(), start=1):
        times = [("store driver-queue", {}, 2.0 * number), ("store refs", {}, 1.0 * number)]
        environment = {"clock_code": "a", "boot": folder.name, "versions": VERSIONS}
        write_campaign(folder / "chain", *times, flow="chain", environment=environment)
    for number, (flow, folder) in enumerate(mine_of_flow.items(), start=1):
        times = [("store driver-queue", {}, 0.7 * number), ("graph shm", {}, 0.1 * number)]
        write_campaign(folder, *times, flow=flow)
    assert compare.main([str(published), str(mine)]) == 0
    shown = capsys.readouterr().out
    assert re.search("^graph shm +online-dpo, ", shown, re.MULTILINE)
    assert re.search(r"^Not in NEW, .*store refs \(chain, ", shown, re.MULTILINE)


def test_compare_says_if_the_code_inside_the_clock_is_another_one(tmp_path, capsys):
    published = write_campaigns(tmp_path / "campaigns")
    mine = (
        write_campaigns(tmp_path / "campaigns", {"2026-12-01-ffff": 8.1}, code="changed")
        / "2026-12-01-ffff"
    )
    files.archive(mine)
    for new in (mine, mine / ARCHIVE):  # a campaign is not compared with itself
        assert compare.main([str(published), str(new)]) == 0
        shown = capsys.readouterr().out
        assert re.search("^graph shm .* inside, with other code$", shown, re.MULTILINE)


def test_compare_rejects_a_measurement_of_other_configurations(tmp_path):
    published = write_campaigns(tmp_path / "campaigns")
    mine = write_campaigns(tmp_path / "mine", {"2026-12-01-ffff": 8.0}, batch_size=2)
    with pytest.raises(
        UsageError, match="no configuration is on both sides: measure NEW with make campaign"
    ):
        compare.main([str(published), str(mine)])


def test_a_folder_without_campaigns_is_rejected(tmp_path):
    with pytest.raises(RecordError, match="has no campaigns: make campaign"):
        load_campaigns(tmp_path)


def test_the_hash_of_the_code_changes_with_what_is_executed_only(tmp_path, monkeypatch):
    path, module = tmp_path / "made.py", ModuleType("dataflow.transports.made")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def hash_of(text):
        path.write_text(text)
        return machine.hash_clock_code()

    before = hash_of('"""Send."""\ndef send():\n    """Send it."""\n    return 1\n')
    assert hash_of('"""Send a message."""\n\n\ndef send():  # at once\n    return 1\n') == before
    assert hash_of("def send():\n    return 2\n") != before
    path.write_text("def send():\n    return 2\n")
    monkeypatch.delitem(sys.modules, module.__name__)
    assert machine.hash_clock_code() != before
