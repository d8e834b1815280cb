# SPDX-License-Identifier: Apache-2.0
"""Test what pages say of GPUs: nothing measured, a table of its own, and what so many cards can measure."""

from pathlib import Path

from made_records import make_record, make_run, rows_of

from dataflow.analysis.result import group_results
from dataflow.measure.supervisor import plan_suite
from dataflow.plan import validate
from dataflow.report.gpu_tables import answer_gpus, build_cards, gpu_sections
from dataflow.report.sections import sections

# Three runs of graph shm on two busy cores had 0.4 and 0.8 s from the end of one to the start of the next, with the
# clean-up. 1.5 s passed before the first one, and 11 s after the last one, until the report was printed.
BETWEEN_SECONDS = 2
AROUND_SECONDS = 15
CARD = {"gpus": ["NVIDIA H100"], "gpu_driver": "580.1", "cuda": "13.0", "nccl": "2.30.7"}
HOST = {"to host, pinned": [0.03], "from host, pinned": [0.02], "to host, pageable": [0.09]}


def on_gpu(transport, seconds, **changes):
    path = changes.pop("path", "NCCL")
    fields = {
        "host_copy_seconds": HOST,
        "data_paths": {"driver -> policy": "shared memory", "policy -> reference": path},
    }
    run = make_run([seconds], **fields)
    return make_record(transport, run, table="gpu", device="cuda", environment=CARD, **changes)


def test_the_pages_say_that_nothing_was_measured_only_while_there_is_no_record():
    cpu = group_results([make_record("refs", [1.0])])
    failed = make_record(
        "refs", make_run([], status="failed", reason="late"), table="gpu", device="cuda"
    )
    rehearsed = make_record("refs", [1.0], table="gpu")  # with --device cpu
    for results in (cpu, group_results([failed]), group_results([rehearsed])):
        assert answer_gpus(results).startswith("**GPUs:** not measured. Nothing has run on a GPU")
        assert [section.name for section in gpu_sections(results)] == ["gpu-cards", "gpu"]
    measured = group_results([on_gpu("refs", 0.5), on_gpu("shm", 0.2, runtime="graph")])
    assert [section.name for section in gpu_sections(measured)] == ["gpu-cards"]
    assert answer_gpus(measured) == (
        "**GPUs** (1 x NVIDIA H100, driver 580.1, CUDA 13.0, NCCL 2.30.7, 448 MiB per iteration; "
        "[cluster.md](cluster.md#gpus)). `graph shm` 200 ms, `store refs` 500 ms."
    )


def test_gpus_have_a_table_of_their_own_with_the_copies_that_their_messages_need():
    records = [on_gpu("refs", 0.5, path="object store"), on_gpu("nccl", 0.1, runtime="graph")]
    cpu = make_record("refs", [1.0])
    built = sections(group_results([*records, cpu]))
    assert [section.name for section in built] == ["results", "gpu"]
    table = rows_of(built[1])
    assert [row["configuration"] for row in table] == ["store refs", "graph nccl"]
    assert [row["x memcpy"] for row in table] == ["25", "5"]  # 20 ms
    assert [row["x host copies"] for row in table] == ["10", "2"]  # 30 and 20 ms
    assert [row["messages between actors"] for row in table] == ["object store", "NCCL"]
    notes = " ".join(built[1].notes)
    assert "1 x NVIDIA H100, driver 580.1, CUDA 13.0, NCCL 2.30.7" in notes
    assert "paths through the host use pageable memory" in notes


def test_the_page_says_what_so_many_cards_measure_as_the_suite_skips_it(monkeypatch):
    monkeypatch.setattr("dataflow.plan.plan.require_memory", lambda *_: 2**33)
    monkeypatch.setattr(validate, "require_modules", lambda *_: None)
    shown = rows_of(build_cards())
    for cards in (1, 2, 3, 8):
        monkeypatch.setattr(validate, "count_gpus", lambda cards=cards: cards)
        column = "1 card" if cards == 1 else f"{cards} cards"
        items = plan_suite([], "gpu", {}, Path())
        places = []
        for item in items:
            share = 0 if item.skipped else item.plan.gpus_per_actor
            places.append("-" if item.skipped else "own card" if share == 1 else "shared")
        assert [row[column] for row in shown] == places
        assert all(item.plan.device == "cuda" and item.plan.table == "gpu" for item in items)


def test_one_card_takes_at_most_seven_minutes_and_every_run_has_a_limit(monkeypatch):
    monkeypatch.setattr("dataflow.plan.plan.require_memory", lambda *_: 2**33)
    monkeypatch.setattr(validate, "require_modules", lambda *_: None)
    monkeypatch.setattr(validate, "count_gpus", lambda: 1)
    limits = []
    kept = set()
    for item in plan_suite([], "gpu", {}, Path()):
        if not item.skipped:
            limits.append(item.plan.options.run_limit)
            kept.add(item.plan.configuration.name)
            assert item.plan.options.allow_disturbed  # or a run could be repeated
    seconds = sum(limits) + len(limits) * BETWEEN_SECONDS + AROUND_SECONDS
    assert seconds <= 7 * 60
    assert {"store refs --retain-memory", "graph shm --retain-memory"} <= kept
