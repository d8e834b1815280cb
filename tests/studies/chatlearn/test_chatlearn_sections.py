"""The table of ChatLearn's messages, and the changes that make a clear difference."""

from made_records import make_record, make_run

from dataflow.analysis.result import group_results
from dataflow.report.sections import sections

SAMPLES = {"batch_size": 4, "prompt_len": 8, "response_len": 8}


def build(*records):
    return sections(group_results(records))


def column(section, header):
    index = section.table.headers.index(header)
    return {row[0]: row[index] for row in section.table.cells}


def test_chatlearns_messages_are_compared_with_its_queues_as_sent():
    def record(transport, seconds, runtime="store", table="chatlearn", message="packed", **changes):
        run = make_run([seconds] * 8, group_seconds=[8 * seconds])
        flags = {"episode" if transport == "ref-queue" else "check_every": 8, "in_flight": 8}
        return make_record(transport, run, runtime=runtime, table=table, message=message, flags=flags, **changes)

    built = build(
        record("ref-queue", 0.6, message="fields", as_sent=True, **SAMPLES),
        record("refs", 0.03, **SAMPLES),
        record("refs", 0.02, table="chatlearn-flat", message=None, payload=4096),
    )
    (section,) = [section for section in built if section.name == "episodes"]
    assert column(section, "speed-up over ref-queue as sent") == {
        "store ref-queue as sent": "1x",
        "store refs packed": "20x",
    }
    assert column(section, "ms per iteration")["store refs packed"] == "30"
    assert column(section, "ms as one flat tensor")["store refs packed"] == "20"
    assert {"chatlearn_episodes"} == {s.chart.file_name for s in built if s.chart}


def test_only_clear_changes_of_chatlearns_messages_are_listed():
    def record(seconds, message, **changes):
        runs = [make_run([second] * 2) for second in seconds]
        return make_record("refs", *runs, table="chatlearn", message=message, flags={"check_every": 2}, **changes)

    clear = build(record([0.5, 0.51, 0.49], "fields", **SAMPLES), record([0.05, 0.051, 0.049], "packed", **SAMPLES))
    (changes,) = [section for section in clear if section.name == "chatlearn-changes"]
    assert "(`store refs` → `store refs packed`): 10 times as fast (" in changes.sentence
    unclear = build(record([0.5, 0.51, 0.49], "fields", **SAMPLES), record([0.5, 0.6, 0.4], "packed", **SAMPLES))
    assert [section.sentence for section in unclear if section.name == "chatlearn-changes"] == [""]
