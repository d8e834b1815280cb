"""The first picture: causes that add up to what was measured, and a title that says what they are."""

import itertools

import msgspec
import pytest
from made_records import a_record, a_run, written
from matplotlib.colors import to_rgb
from matplotlib.image import imread

import plot_results
from common.analysis.results import results_of
from common.analysis.stages import CAUSES, STAGES, by_cause
from common.charts import headline
from common.charts.headline import STYLES, causes_of, finding, shown

HINT = {"driver -> policy": "TorchTensorType over BufferedSharedMemoryChannel"}


def rows(*records):
    return results_of(records)


def traced(transport, microseconds, stages, runtime="store", flags=None, **changes):
    """A trip in one process, its stages one after another; what they do not fill is explained by nobody."""
    spans, begin = [], 0.0
    for stage, length in stages.items():
        spans.append(("a", 0, stage, "in one process", 0, begin, begin + length))
        begin += length
    run = a_run([microseconds * 1e-6], spans=spans, trips_us=[(0.0, microseconds)], **changes)
    return a_record(transport, run, runtime=runtime, flags=flags or {})


QUEUE = traced("driver-queue", 100, {"serialise": 30, "deserialise": 40, "write": 5, "wait": 15, "submit": 6})
SHM = traced("shm", 100, {"write": 20, "deserialise": 70, "serialise": 2, "loop": 8}, "graph", path=HINT)
WARM = traced("shm", 40, {"write": 20, "deserialise": 20}, "graph", {"reuse_buffers": True}, path=HINT)
LADDER = (
    a_record("driver-queue", [2.0, 2.0, 2.2]),
    a_record("shm", [0.5], runtime="graph"),
    a_record("mapped", [0.05], runtime="graph", flags={"copy_out": True}),
    a_record("mapped", a_run([0.004], payload_copied=False), runtime="graph"),
)


def microseconds(record, *others):
    found = rows(record, *others)
    (own,) = [result for result in found if result.record is record]
    return {cause: pytest.approx(seconds * 1e6) for cause, seconds in by_cause(own, found).items()}


def test_every_stage_belongs_to_one_cause_or_to_what_is_left():
    told = [stage for stages in CAUSES.values() for stage in stages]
    assert len(told) == len(set(told)) and set(told) <= set(STAGES)
    assert set(STAGES) - set(told) == {"make", "submit", "compute", "train", "stamp", "synchronise"}
    assert {*CAUSES, "other"} <= set(STYLES)


def test_causes_add_up_to_the_trip_and_what_no_stage_explains_is_other():
    assert microseconds(QUEUE) == {"serialisation, page faults included": 70, "copying": 5, "waiting": 15, "other": 10}


def test_what_ray_deserialises_with_the_type_hint_is_copied_out_not_pickled():
    assert microseconds(SHM) == {"serialisation, page faults included": 2, "copying": 90, "waiting": 8, "other": 0}


def test_page_faults_are_what_the_same_row_lacks_with_warm_buffers():
    assert microseconds(SHM, WARM) == {"serialisation, page faults included": 2, "page faults": 50, "copying": 40, "waiting": 8, "other": 0}
    assert "page faults" not in microseconds(WARM, SHM)


def test_a_bar_is_as_long_as_the_untraced_median_whatever_tracing_cost():
    ladder, found = rows(*LADDER), rows(QUEUE, SHM, WARM)
    queue, shm = shown(ladder)[:2]
    assert causes_of(queue, found) == {"serialisation, page faults included": 1.4, "copying": 0.1, "waiting": 0.3, "other": pytest.approx(0.2)}
    assert sum(causes_of(shm, found).values()) == pytest.approx(0.5)
    assert causes_of(shown(ladder)[2], found) == {"not traced": 0.05}


def test_the_title_says_what_the_slowest_row_does_and_how_much_faster_the_fastest_are():
    ladder = rows(*LADDER)
    fast = "graph mapped --copy-out is 40 times as fast, graph mapped (readers map) 500 times as fast"
    assert finding(ladder, rows(QUEUE)) == f"70% of a trip over store driver-queue is serialisation, page faults included;\n{fast}"
    assert finding(ladder, []) == f"A trip takes 2,000 ms over store driver-queue;\n{fast}"
    assert finding(ladder[:1], rows(QUEUE)) == "70% of a trip over store driver-queue is serialisation, page faults included"


def test_rows_that_are_not_of_the_picture_or_were_not_measured_are_not_drawn():
    failed = a_record("refs", a_run([9.0], status="failed", reason="reward died"))
    ladder = rows(*LADDER, failed, a_record("payload-queue", [5.0]), a_record("pigeon", [5.0]))
    assert [result.name for result in shown(ladder)] == [
        "store driver-queue", "graph shm", "graph mapped --copy-out", "graph mapped",
    ]  # fmt: skip


def test_a_traced_run_that_failed_explains_nothing():
    run = QUEUE.runs[0]
    broken = a_record("driver-queue", msgspec.structs.replace(run, status="failed", reason="reward died"))
    ladder = rows(*LADDER)
    assert [result.name for result in headline.explained(ladder, rows(QUEUE, broken))] == ["store driver-queue"]
    assert headline.explained(ladder, rows(broken)) == []
    assert causes_of(shown(ladder)[0], rows(broken)) == {"not traced": 2.0}


def test_it_is_drawn_wider_than_high_where_a_row_of_it_was_traced(tmp_path, monkeypatch):
    monkeypatch.setattr(plot_results, "ROOT", tmp_path)
    paths = [written(tmp_path / f"{index}.json", record) for index, record in enumerate((*LADDER, SHM, WARM))]
    assert plot_results.main([*paths, "--output-dir", str(tmp_path)]) == 0
    height, width, _ = imread(tmp_path / "headline.png").shape
    assert width == 1600 and width > 1.5 * height
    (tmp_path / "headline.png").unlink()
    assert plot_results.main([*paths[:4], "--output-dir", str(tmp_path)]) == 0
    assert not (tmp_path / "headline.png").exists()


def test_one_row_alone_can_be_drawn(tmp_path):
    headline.draw(rows(LADDER[0]), rows(QUEUE), tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_causes_without_a_hatch_stay_apart_in_grey():
    plain = [sum(to_rgb(colour)) / 3 for colour, hatch in STYLES.values() if not hatch]
    assert min(abs(one - other) for one, other in itertools.combinations(plain, 2)) > 0.1
    assert len({hatch for _, hatch in STYLES.values()}) == 4
