# SPDX-License-Identifier: Apache-2.0
"""Test the tables that compare recorded operations and bytes with ChatLearn's formulas."""

from dataclasses import replace

import pytest
from local_episodes import episode_flags, make_runner
from made_records import make_record, make_run

from dataflow.analysis.result import group_results
from dataflow.report.sections import sections
from dataflow.studies.chatlearn.counts import OPERATIONS
from dataflow.studies.chatlearn.formulas import EpisodeShape, count_bytes, count_operations
from dataflow.studies.chatlearn.operation_tables import OPERATIONS as COLUMNS

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
        seconds = {"group_seconds": [0.004] * 2, "warmup_seconds": [0.001] * 2}
        record.runs = [make_run([0.001] * 8, **seconds, measured=done.run.measured)]
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


def counts_by_layout(rows, operation):
    """Return the counts of an operation, as the table has them, by layout; and whether all are equal."""
    (row,) = [dict(row) for row in rows if row["operation"] == operation]
    row.pop("operation")
    equal = row.pop("equal")
    return row, equal


def test_each_layout_is_compared_with_the_formulas(make_measured_record):
    layouts = ((), ("--replicas", "reference=3", "--ranks", "policy=2"), ("--data-parallel", "2"),
               ("--relay-episodes", "2"))  # fmt: skip
    records = [make_measured_record("--flow", "ppo", *TRAINED, *flags) for flags in layouts]
    rows = rows_of(records, "chatlearn-operations")
    assert [row["operation"] for row in rows] == [*COLUMNS.values()]
    assert {row["equal"] for row in rows} == {"yes"}
    names = [
        "one process per model",
        "--data-parallel 2",
        "--relay-episodes 2",
        "--replicas reference=3 --ranks policy=2",
    ]
    for operation, counts in {
        "driver put": ["36", "36", "36", "36"],
        "driver qsize": ["5", "5", "5", "5"],
        # Two ranks of policy have one more per message.
        "model tasks": ["16", "16", "16", "20"],
        # Only the relay buffer asks twice per message.
        "StreamDataset qsize": ["5", "5", "9", "5"],
        # Two steps per episode for each of two models.
        "trainer put": ["4", "8", "8", "4"],
        "trainer blocking gets": ["16", "16", "32", "16"],
    }.items():
        by_layout, _ = counts_by_layout(rows, operation)
        assert by_layout == dict(zip(names, counts, strict=True))


def test_the_order_of_replicas_is_compared_with_turns_from_the_first_message(make_measured_record):
    layout = ("--replicas", "policy=2,reference=3")
    record = make_measured_record("--flow", "ppo", *TRAINED, *layout)

    def sentence():
        built = sections(group_results([record]))
        return next(s for s in built if s.name == "chatlearn-operations").sentence

    begin = "got the messages of two episodes in this order:"
    end = "begin at r0 with the first of 3 earlier messages and go on across episodes: yes."
    for model, turns in (
        ("policy", "r1 r0 r1 r0, then r1 r0 r1 r0"),
        ("reference", "r0 r1 r2 r0, then r1 r2 r0 r1"),
    ):
        same = (
            f"The replicas of {model} {begin} {turns}. Equal to the turns of ChatLearn, which {end}"
        )
        assert same in sentence()
    record.runs[0].measured["chatlearn"]["replica_order"]["policy"][1][0] = 0
    assert sentence().count("across episodes: no.") == 1
    # Without the untimed messages, ChatLearn's turns would begin with the first replica of each model.
    record.runs[0].warmup_seconds = [0.001]
    assert sentence().count("across episodes: no.") == 2


def test_every_recorded_operation_has_a_column_and_a_formula(make_measured_record):
    record = make_measured_record("--flow", "ppo", *TRAINED)
    operations = record.runs[0].measured["chatlearn"]["operations"]
    assert operations.keys() == {*OPERATIONS}
    for name in OPERATIONS:
        expected = operations[name]
        operations[name] += 1
        rows = rows_of([record], "chatlearn-operations")
        counts = {"one process per model": f"{expected + 1} (ChatLearn: {expected})"}
        assert counts_by_layout(rows, COLUMNS[name]) == (counts, "no")
        assert sum(row["equal"] == "no" for row in rows) == 1
        operations[name] = expected


def test_other_counts_are_shown_beside_those_of_chatlearn(make_measured_record):
    record = make_measured_record("--flow", "grpo", "--message", "fields")
    rows = rows_of([record], "chatlearn-operations")
    counts = {"without a trainer": "4 (ChatLearn: 0)"}
    assert counts_by_layout(rows, "driver payload gets") == (counts, "no")
    assert [row["operation"] for row in rows if row["equal"] == "no"] == ["driver payload gets"]


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
    ppo = EpisodeShape(8, 1, 5, 2, 2, steps=8, data_parallel=2, ranks=32, micro_batches=16)
    assert count_operations(ppo) == {
        "queue_actors": 9,
        "driver_put": 72,
        "driver_get": 64,
        "driver_qsize": 9,
        "driver_payload_gets": 0,
        "model_tasks": 256,  # each of four models has eight ranks
        "stream_dataset_get": 8,
        "stream_dataset_qsize": 9,
        "trainer_queue_actors": 3,
        "trainer_put": 32,
        "trainer_get": 32,
        "trainer_blocking_gets": 128,
    }
    relayed = replace(ppo, has_relay_buffer=True)
    assert count_operations(relayed) == count_operations(ppo) | {"stream_dataset_qsize": 17}
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


def test_the_chart_of_episodes_has_no_factor_because_its_table_divides_by_another_configuration():
    fields = {"table": "chatlearn", "message": "fields", "batch_size": 8}
    times = {"ref-queue": 1.0, "refs": 0.5, "numpy": 0.05}
    records = []
    for name, seconds in times.items():
        runs = [[seconds * noise] for noise in (1, 1.01, 0.99)]
        records.append(make_record(name, *runs, as_sent=name == "ref-queue", **fields))
    section = next(s for s in sections(group_results(records)) if s.chart)
    assert section.chart.title.startswith("Time per iteration: online DPO, ")
    header = "times as fast as ref-queue as sent"
    assert header in section.table.headers


def test_no_factor_of_episodes_is_of_rows_with_other_numbers_of_iterations_in_flight():
    records = []
    for name, seconds, in_flight in (("ref-queue", 1.0, 8), ("refs", 0.5, 8), ("numpy", 0.1, 4)):
        runs = [[seconds * noise] * 8 for noise in (1, 1.01, 0.99)]
        fields = {"table": "chatlearn", "message": "fields", "batch_size": 8}
        fields["flags"] = {"check_every": 8, "in_flight": in_flight}
        records.append(make_record(name, *runs, as_sent=name == "ref-queue", **fields))
    rows = rows_of(records, "episodes")
    factors = {row["configuration"]: row["times as fast as ref-queue as sent"] for row in rows}
    assert factors["store ref-queue as sent"] == "1"
    assert factors["store refs"].startswith("2 (")
    assert factors["store numpy"] == "-"
