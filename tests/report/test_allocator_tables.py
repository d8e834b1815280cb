# SPDX-License-Identifier: Apache-2.0
"""Test the tables of sets of allocator variables, and what is said about which of them are needed."""

import pytest
from made_records import make_record, make_run, rows_of

from dataflow.analysis.result import group_results
from dataflow.plan.environment import VARIABLES
from dataflow.records.schema import ProcessCost
from dataflow.report.sections import sections

RETAIN_MEMORY = VARIABLES["retain_memory"]
MMAP, TRIM, PAD, ARENA = RETAIN_MEMORY
SLOW = 0.4  # seconds
FAST = 0.1
GIB = 2**30


def env_of(*names):
    values = [f"{name}={RETAIN_MEMORY[name]}" for name in sorted(names)]
    return {"env": " ".join(values)} if values else {}


def record_of(flags, mean, runs=3, **changes):
    """Return a record whose runs have this mean, but a median of half of it."""
    noise = [1.0, 1.02, 1 / 1.02][:runs]
    costs = {"driver": ProcessCost(peak_memory_bytes=3 * GIB, minor_faults=60 * 500)}
    made = []
    for factor in noise:
        seconds = [factor * mean / 2] * 40 + [factor * mean * 2] * 20
        made.append(make_run(seconds, processes=costs))
    return make_record("refs", *made, flags=flags, table="allocator", **changes)


def records_of(means, **changes):
    """Return records of sets of variables; means: names -> seconds."""
    made = []
    for names, mean in means.items():
        flags = {"retain_memory": True} if len(names) == 4 else env_of(*names)
        made.append(record_of(flags, mean, **changes))
    return made


def build(records):
    (section,) = [one for one in sections(group_results(records)) if one.name == "allocator"]
    return section


ALL = (MMAP, TRIM, PAD, ARENA)
MEANS = {
    (): SLOW,
    (MMAP,): 0.3,
    (TRIM,): 0.35,
    (MMAP, TRIM): 0.109,
    (MMAP, ARENA): 0.105,
    (TRIM, PAD, ARENA): 0.38,
    (MMAP, PAD, ARENA): 0.1,
    (MMAP, TRIM, ARENA): 0.1,
    (MMAP, TRIM, PAD): 0.12,
    ALL: FAST,
}


def test_rows_are_ranked_by_the_mean_and_have_names_without_their_prefix():
    others = [
        record_of({"huge_pages": True}, 0.2),
        record_of({"env": "LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=a:-1,b:-1"}, 0.05),
        record_of({"retain_memory": True, "env": "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"}, 0.07),
    ]
    rows = rows_of(build([*records_of(MEANS), *others]))
    assert len(rows) == len(MEANS) + 3
    first, second, *_, last = rows
    assert first["set in all processes"] == "LD_PRELOAD=libjemalloc.so.2, MALLOC_CONF=a:-1,b:-1"
    assert second["set in all processes"] == (
        "all four (--retain-memory), GLIBC_TUNABLES=glibc.malloc.hugetlb=1"
    )
    assert last == {
        "set in all processes": "nothing",
        "mean ms": "400",
        "p50 ms": "200",
        "p95 ms": "820",
        "times as fast by the mean": "1",
        "page faults per iteration": "500",
        "µs per page fault": "-",
        "memory GiB": "3.0",
        "runs": "3",
    }
    by_set = {row["set in all processes"]: row for row in rows}
    pair = by_set["MMAP_THRESHOLD_, ARENA_MAX"]
    assert pair["mean ms"] == "110"
    assert pair["times as fast by the mean"].startswith("3.81 (")
    assert by_set["--huge-pages"]["times as fast by the mean"].startswith("2 (1.9")
    means = [float(row["mean ms"]) for row in rows]
    assert means == sorted(means)


def test_all_rows_are_on_the_page():
    table = build(records_of(MEANS | {(PAD,): 0.3, (ARENA,): 0.3, (TRIM, ARENA): 0.3})).table
    assert len(table.cells) == 13
    assert table.page_rows is None


def test_the_smallest_set_that_is_enough_is_the_fastest_of_its_size():
    sentence = build(records_of(MEANS)).sentence
    assert sentence.startswith(
        "By the mean, `MMAP_THRESHOLD_` and `ARENA_MAX` are enough: 110 ms, and 100 ms with all four variables. "
    )
    assert sentence.endswith(
        "Compared with all four, an iteration takes 3.8 times as long without `MMAP_THRESHOLD_`, 1 times without "
        "`TRIM_THRESHOLD_`, 1 times without `TOP_PAD_`, 1.2 times without `ARENA_MAX`."
    )


@pytest.mark.parametrize(("means", "said"), [
    ({(): 0.108, ALL: FAST}, "By the mean, nothing set (110 ms) is within 10 % of all four variables (100 ms)."),
    ({(): SLOW, (MMAP,): 0.111, ALL: FAST},
     "By the mean, no smaller set of those measured is within 10 % of all four variables (100 ms)."),
    ({(): SLOW, (MMAP,): 0.109, ALL: FAST}, "By the mean, `MMAP_THRESHOLD_` is enough: 110 ms, and 100 ms with all"),
    ({(): SLOW, (MMAP,): 0.109}, ""),
])  # fmt: skip
def test_sets_within_a_tenth_of_all_variables_are_enough(means, said):
    sentence = build(records_of(means)).sentence
    assert sentence.startswith(said)
    assert bool(sentence) == bool(said)
    assert "without" not in sentence


def test_too_few_runs_are_no_ranking():
    assert build(records_of(MEANS, runs=1)).sentence.endswith("One run each: not a ranking.")
    assert "not a ranking" not in build(records_of(MEANS)).sentence


def test_another_value_of_a_variable_is_not_that_of_the_flag():
    records = [*records_of(MEANS), record_of({"env": f"{MMAP}=1000"}, 0.05)]
    section = build(records)
    assert rows_of(section)[0]["set in all processes"] == f"{MMAP}=1000"
    assert "`MMAP_THRESHOLD_` and `ARENA_MAX` are enough" in section.sentence


def test_a_skipped_allocator_is_named_with_its_reason():
    skipped = make_run([], status="skipped", reason="there is no such file", processes={})
    env = {"env": "LD_PRELOAD=libjemalloc.so.2"}
    record = make_record("refs", skipped, flags=env, table="allocator")
    notes = build([*records_of(MEANS), record]).notes
    assert "store refs --env LD_PRELOAD=libjemalloc.so.2: skipped: there is no such file." in notes


def test_long_runs_show_their_first_and_last_iterations():
    long = [0.1] * 100 + [0.2] * 800 + [0.3] * 100
    records = [
        make_record("refs", long, table="allocator-long"),
        make_record("shm", [0.05] * 150, runtime="graph", table="allocator-long"),
    ]
    (section,) = sections(group_results(records))
    assert section.name == "allocator-long"
    rows = rows_of(section)
    shown = [
        (
            row["configuration"],
            row["mean ms"],
            row["mean ms of the first 100"],
            row["mean ms of the last 100"],
        )
        for row in rows
    ]
    assert shown == [("graph shm", "50", "-", "-"), ("store refs", "200", "100", "300")]
