# SPDX-License-Identifier: Apache-2.0
"""Test the table of huge pages for all memory: a row per configuration, a column per setting of the machine."""

import re

from made_records import make_record, make_run, rows_of

from dataflow.analysis.result import group_results
from dataflow.records.schema import ProcessCost
from dataflow.report.sections import sections

MADVISE = "always [madvise] never"
ALWAYS = "[always] madvise never"
KEPT = {"retain_memory": True}


def record_of(mean, private=MADVISE, shared="never", runs=3, **changes):
    """Return a record whose runs have this mean, with these settings of the machine."""
    costs = {"driver": ProcessCost(peak_memory_bytes=2**30, minor_faults=20 * 500)}
    noise = [1.0, 1.02, 1 / 1.02][:runs]
    made = [make_run([factor * mean] * 20, processes=costs) for factor in noise]
    environment = {"transparent_hugepages": private, "shared_memory_hugepages": shared}
    return make_record("refs", *made, table="huge-pages", environment=environment, **changes)


def build(*records):
    (section,) = sections(group_results(records))
    return section


def test_a_configuration_has_a_time_per_setting_and_is_compared_with_itself():
    section = build(
        record_of(0.1, ALWAYS, "always"),
        record_of(0.4),
        record_of(0.2, ALWAYS),
        record_of(0.3, shared="always"),
        record_of(0.1, flags=KEPT),
        record_of(0.05, ALWAYS, flags=KEPT),
    )
    plain, kept = rows_of(section)
    assert [row["configuration"] for row in (plain, kept)] == [
        "store refs",
        "store refs --retain-memory",
    ]
    times = [name for name in plain if name.endswith(": mean ms (p50, p95)")]
    assert [name.partition(":")[0] for name in times] == [
        "on request",
        "private memory",
        "/dev/shm",
        "private memory and /dev/shm",
    ]
    assert [plain[name].split()[0] for name in times] == ["400", "200", "300", "100"]
    assert [kept[name].split()[0] for name in times] == ["100", "50", "-", "-"]
    factors = plain["times as fast, private memory, /dev/shm, private memory and /dev/shm"]
    assert re.findall(r"([\d.]+) \(", factors) == ["2", "1.33", "4"]
    assert plain["page faults per iteration"] == "500, 500, 500, 500"
    assert kept["page faults per iteration"] == "500, 500, -, -"
    assert section.sentence.count("`") == 2  # nothing is said of kept memory
    assert "`store refs` 2 (" in section.sentence


def test_runs_are_counted_by_setting():
    section = build(record_of(0.4), record_of(0.2, ALWAYS))
    assert "Runs per configuration: 3." in section.notes[-1]


def test_settings_that_are_neither_on_request_nor_always_have_columns_of_their_own():
    section = build(
        record_of(0.4), record_of(0.3, shared="within_size"), record_of(0.5, "always [never]")
    )
    (row,) = rows_of(section)
    shown = [name.partition(": mean ms")[0] for name in row if name.endswith("(p50, p95)")]
    assert shown == ["on request", "/dev/shm: within_size", "private memory: never"]


def test_a_record_from_before_the_setting_of_dev_shm_was_stored_is_one_on_request():
    old = record_of(0.4)
    del old.environments["0"]["shared_memory_hugepages"]
    (row,) = rows_of(build(old))
    assert "on request: mean ms (p50, p95)" in row


def test_without_a_time_on_request_there_is_no_factor():
    section = build(record_of(0.2, ALWAYS))
    (row,) = rows_of(section)
    assert row["times as fast, private memory"] == "-"
    assert section.sentence == ""


def test_one_run_is_no_ranking():
    section = build(record_of(0.4, runs=1), record_of(0.2, ALWAYS, runs=1))
    assert section.sentence.endswith("not a ranking.")
