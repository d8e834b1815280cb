"""What overlapping is worth, from a sweep over trips under way."""

import pytest
from made_records import a_run, a_sweep

from common.analysis.results import results_of
from common.charts import in_flight


def swept(transport, by_depth, **more):
    """A sweep whose episodes of four trips take these seconds."""
    runs = {depth: a_run([seconds / 2] * 4, episode_seconds=[seconds], **more) for depth, seconds in by_depth.items()}
    return a_sweep(transport, "in_flight", runs, flags={"episode": 4})


COPIED = {"ceiling_before_seconds": [0.1], "ceiling_after_seconds": [0.1], "ceiling_all_cores_seconds": [0.06]}
RECORDS = [swept("refs", {1: 4.0, 2: 2.0, 4: 1.98}, **COPIED), swept("bytes", {1: 1.0})]


def test_a_line_says_what_overlapping_is_worth_and_how_many_suffice():
    (line,) = in_flight.lines_of(results_of(RECORDS))  # one point is no line
    shown = {column.header: column.cell(line) for column in in_flight.columns()}
    assert shown["transport"] == "store refs"
    assert (shown["trips a second, one by one"], shown["at best"]) == ("1", "2.02")
    assert (shown["overlapping is worth"], shown["enough under way"]) == ("2.02x", "2")
    # 192 of the 448 MiB are read by one actor, 43 % of 0.1 s; all copies by all cores take longer, 0.06 s.
    assert in_flight.bound_seconds(line[0]) == 0.06
    assert shown["of what its slowest stage allows"] == "12%"


def test_where_nothing_is_copied_handing_over_bounds_it():
    mapped = COPIED | {"payload_copied": False}
    (line,) = in_flight.lines_of(results_of([swept("refs", {1: 4.0, 2: 2.0}, **mapped)]))
    assert in_flight.bound_seconds(line[0]) is None
    mapped |= {"hand_over_before_seconds": [2e-4, 3e-4], "hand_over_after_seconds": [1e-4]}
    (line,) = in_flight.lines_of(results_of([swept("refs", {1: 4.0, 2: 2.0}, **mapped)]))
    assert in_flight.bound_seconds(line[0]) == pytest.approx(1e-4 * 2 / 5)  # two of five words are the reward's


def test_it_is_drawn(tmp_path):
    in_flight.draw(results_of(RECORDS), tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 10_000
    assert "| store refs | 1 | 2.02 |" in str(in_flight.markdown(results_of(RECORDS)))
    assert in_flight.markdown(results_of(RECORDS[1:])) is None
