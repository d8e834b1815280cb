# SPDX-License-Identifier: Apache-2.0
"""Test what pages say of GPUs: nothing measured, a table of its own, and what so many cards can measure."""

from pathlib import Path

import pytest
from made_records import make_record, make_run, rows_of

from common.record import save
from dataflow.analysis.result import group_results
from dataflow.measure.supervisor import plan_suite
from dataflow.plan import validate
from dataflow.report.gpu_tables import (
    answer_gpus,
    build_cards,
    build_scripts,
    describe_gpu_times,
    gpu_sections,
    load_script_results,
    split_failure,
)
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
    run = make_run([seconds], **fields | changes.pop("run", {}))
    return make_record(transport, run, table="gpu", device="cuda", environment=CARD, **changes)


def test_the_pages_say_that_nothing_was_measured_only_while_there_is_no_record():
    cpu = group_results([make_record("refs", [1.0])])
    failed = make_record(
        "refs", make_run([], status="failed", reason="late"), table="gpu", device="cuda"
    )
    rehearsed = make_record("refs", [1.0], table="gpu")  # with --device cpu
    for results in (cpu, group_results([failed]), group_results([rehearsed])):
        assert answer_gpus(results).startswith("**GPUs:** not measured. Nothing has run on a GPU")
        names = [section.name for section in gpu_sections(results)]
        assert names == ["gpu-cards", "gpu-scripts", "gpu"]
    measured = group_results([on_gpu("refs", 0.5), on_gpu("shm", 0.2, runtime="graph")])
    assert [section.name for section in gpu_sections(measured)] == ["gpu-cards", "gpu-scripts"]
    assert answer_gpus(measured) == (
        "**GPUs** (1 x NVIDIA H100, driver 580.1, CUDA 13.0, NCCL 2.30.7, 448 MiB per iteration; "
        "[cluster.md](cluster.md#gpus)). `graph shm` 200 ms, `store refs` 500 ms."
    )


def test_an_answer_says_what_readers_get_if_it_is_no_copy_to_keep():
    views = on_gpu("cuda-ipc", 0.03, runtime="rdt", run={"readers_own_a_copy": False})
    assert answer_gpus(group_results([views])).endswith("`rdt cuda-ipc` 30 ms (view).")


def write_scripts(folder, *names):
    """Write a record of 20 iterations for each script, as it writes it on a card: 3 s of queues, or 0.2 s."""
    for name in names:
        runtime, transport = name.split()
        seconds = 3.0 if runtime == "store" else 0.2
        run = make_run([seconds] * 20, host_copy_seconds=HOST)
        record = make_record(transport, run, runtime=runtime, device="cuda", environment=CARD)
        save(folder / f"{runtime}.json", record)


def test_the_two_scripts_stand_beside_the_demo(tmp_path):
    write_scripts(tmp_path, "store driver-queue", "graph cuda-ipc")
    section = build_scripts(load_script_results(tmp_path))
    assert section.sentence == (
        "**On one NVIDIA H100 that all models share, an iteration of the demo's queues takes 3,000 ms (mean of 20), "
        "and one of a compiled graph (`cuda-ipc`) 200 ms (mean of 20): 15 times as fast. The demo reports 2,800 and "
        "350 ms, 7.9 times, with NCCL between its own GPUs.**"
    )
    table = rows_of(section)
    assert [row["transport"] for row in table] == ["driver-queue", "cuda-ipc"]
    assert [row["iterations"] for row in table] == ["20", "20"]
    assert [row["x host copies"] for row in table] == ["60", "4"]


def test_readme_has_the_scripts_the_fastest_copy_the_fastest_view_and_what_failed(tmp_path):
    write_scripts(tmp_path, "store driver-queue", "graph cuda-ipc")
    views = on_gpu("cuda-ipc", 0.03, runtime="rdt", run={"readers_own_a_copy": False})
    smaller = on_gpu("shm", 0.01, runtime="graph", batch_size=512)
    copies = [on_gpu("refs", 0.5), on_gpu("shm", 0.11, runtime="graph")]
    records = [*copies, views, smaller]
    text = describe_gpu_times(group_results(records), tmp_path)
    fastest = (
        "If readers keep a copy, `graph shm` was the fastest of the suite, with 110 ms (one run). "
        "If readers get a view, `rdt cuda-ipc` was the fastest of the suite, with 30 ms (one run)."
    )
    assert text.endswith(fastest)
    reason = "iteration 7: the run did not end within 27 s (--run-limit)"
    failed = on_gpu("nixl", 0, runtime="rdt", run={"status": "failed", "reason": reason})
    said = "No times (the run did not end within 27 s): `rdt nixl` (iteration 7)."
    assert describe_gpu_times(group_results([*records, failed]), tmp_path).endswith(said)
    assert describe_gpu_times(group_results([failed]), tmp_path).endswith(f"own GPUs. {said}")
    died = on_gpu("refs", 0, runtime="store", run={"status": "failed", "reason": "it died"})
    text = describe_gpu_times(group_results([failed, died]), tmp_path)
    assert said in text
    assert "No times (it died): `store refs`." in text
    assert describe_gpu_times([], tmp_path).endswith("between its own GPUs.")
    assert describe_gpu_times(group_results(records), tmp_path / "none") == ""


@pytest.mark.parametrize("names", [(), ("store driver-queue",), ("graph shm",)])
def test_without_records_of_both_scripts_the_pages_have_no_times_of_them(tmp_path, names):
    write_scripts(tmp_path, *names)
    section = build_scripts(load_script_results(tmp_path))
    assert (section.sentence, section.table) == ("", None)


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


def test_one_card_takes_at_most_a_quarter_of_an_hour_and_every_run_has_a_limit(monkeypatch):
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
    assert seconds <= 15 * 60
    assert {"store refs --retain-memory", "graph shm --retain-memory"} <= kept


def test_the_moment_of_a_failure_is_not_cut_from_a_reason_with_a_colon():
    stuck = "failed: iteration 6: reward is stuck after iteration 5: reward is in read (a.py:7)"
    reason = "reward is stuck after iteration 5: reward is in read (a.py:7)"
    assert split_failure(stuck) == ("iteration 6", reason)
    assert split_failure("failed: it died") == ("", "it died")
    assert split_failure("failed: OSError: no such file") == ("", "OSError: no such file")
    first = "failed: before the first iteration: late (--run-limit)"
    assert split_failure(first) == ("before the first iteration", "late")
