# SPDX-License-Identifier: Apache-2.0
"""Test the tables that compare recorded operations and bytes with ChatLearn's formulas."""

import pytest
from local_episodes import episode_flags, make_runner
from made_records import make_run

from dataflow.analysis.result import group_results
from dataflow.report.sections import sections
from dataflow.studies.chatlearn.formulas import EpisodeShape, count_bytes, count_operations

TRAINED = ("--sink", "trainer", "--train-global-batch", "16", "--train-micro-batch", "2")


@pytest.fixture
def make_measured_record(make_plan, monkeypatch, tmp_path):
    """make_measured_record(*flags) -> the record of episodes that ran in this process."""
    run = make_runner(make_plan, monkeypatch, tmp_path)

    def make(*flags):
        done = run(*flags, *episode_flags(4, episodes=2)).expect_ok()
        record = done.plan.new_record()
        record.table = "chatlearn-operations"
        record.environments = {"0": {"cpu_model": "Test CPU", "gpus": []}}
        record.runs = [make_run([0.001] * 8, group_seconds=[0.004] * 2, measured=done.run.measured)]
        return record

    return make


def rows_of(records, name):
    """Return the rows of the sections of this name, as dicts by header."""
    rows = []
    for section in sections(group_results(records)):
        if section.name == name:
            rows += [
                dict(zip(section.table.headers, cells, strict=True))
                for cells in section.table.cells
            ]
    return rows


def test_each_layout_is_compared_with_the_formulas(make_measured_record):
    layouts = ((), ("--replicas", "reference=3", "--ranks", "policy=2"), ("--data-parallel", "2"),
               ("--relay-episodes", "2"))  # fmt: skip
    records = [make_measured_record("--flow", "ppo", *TRAINED, *flags) for flags in layouts]
    rows = rows_of(records, "chatlearn-operations")
    assert [row["layout"] for row in rows] == [
        "one process per model",
        "--data-parallel 2",
        "--relay-episodes 2",
        "--replicas reference=3 --ranks policy=2",
    ]
    assert {row["equal"] for row in rows} == {"yes"}
    assert {row["driver put"] for row in rows} == {"36"}
    # Two steps per episode for each of two models.
    assert [row["trainer put"] for row in rows] == ["4", "8", "8", "4"]
    (section,) = [s for s in sections(group_results(records)) if s.name == "chatlearn-operations"]
    assert (
        "reference got the messages of two episodes in this order: r0 r1 r2 r0, then r1 r2 r0 r1."
        in section.sentence
    )


def test_other_counts_are_shown_beside_those_of_chatlearn(make_measured_record):
    record = make_measured_record("--flow", "grpo", "--message", "fields")
    (row,) = rows_of([record], "chatlearn-operations")
    assert (row["driver payload gets"], row["equal"]) == ("4 (ChatLearn: 0)", "no")
    changed = make_measured_record("--flow", "grpo", "--message", "fields", *TRAINED)
    changed.runs[0].measured["chatlearn"]["operations"]["trainer_get"] += 1
    (row,) = rows_of([changed], "chatlearn-operations")
    assert (row["trainer get"], row["equal"]) == ("3 (ChatLearn: 2)", "no")


def test_bytes_of_each_message_are_compared_with_the_formulas(make_measured_record):
    record = make_measured_record("--flow", "grpo-math", *TRAINED)
    rows = rows_of([record], "chatlearn-bytes")
    equal = {row["message"]: row["equal"] for row in rows}
    assert equal == {
        "input": "yes",
        "policy": "yes",
        "reference": "yes",
        "reward": "yes",
        "reward1": "-",
    }
    record.runs[0].measured["chatlearn"]["message_bytes"]["policy"] += 1
    changed = {row["message"]: row["equal"] for row in rows_of([record], "chatlearn-bytes")}
    assert changed == equal | {"policy": "no"}


def test_formulas_are_those_of_chatlearn():
    """Numbers that were worked out by hand, at sizes of its llama2-7B script: 8 messages, 2 trained models, 8 steps."""
    ppo = EpisodeShape(8, 1, 5, 2, trained_models=2, steps=8, data_parallel=2)
    assert count_operations(ppo) == {
        "queue_actors": 9,
        "driver_put": 72,
        "driver_get": 64,
        "driver_payload_gets": 0,
        "trainer_put": 32,
        "trainer_get": 32,
    }
    sizes = {"batch_size": 128, "prompt_len": "512", "response_len": "512"}
    online_dpo = count_bytes("online-dpo", sizes)
    characters = 4 * 128 * 512  # of the prompts, and as many of the responses
    assert online_dpo["policy"] == 13 * 131_072 - 512 + 524_288 + 2 * characters
    assert online_dpo["reference"] == 4 * 128 * 1023
    assert online_dpo["reward"] == 17 * 131_072 + 2 * 524_288 + 9 * 128 + characters
    assert count_bytes("ppo", sizes)["reward"] - online_dpo["reward"] == 4 * 128 * 512
    assert count_bytes("dpo", sizes) == {
        "input": 24 * 131_072 + 1024,
        "reference": 24 * 131_072 + 2048,
    }
