# SPDX-License-Identifier: Apache-2.0
"""The chart of predictions has a point per configuration and machine, of two kinds, and their errors as text."""

import pytest

from dataflow.analysis.kept_predictions import KeptPrediction, PredictionFile
from dataflow.analysis.left_out import LeftOutTime
from dataflow.analysis.outcomes import PredictedTime
from dataflow.report.outcome_tables import find_predictions_of_new_machines
from dataflow.report.prediction_chart import BEFORE, LEFT_OUT, prediction_section

LEFT_OUT_TIMES = [
    LeftOutTime("store refs", "headline", "aaaa1", 1.0, 1.1),
    LeftOutTime("store refs", "headline", "bbbb2", 2.0, 1.0),
    LeftOutTime("graph shm", "headline", "aaaa1", 0.2, 0.2),
    LeftOutTime("rdt gloo", "headline", "aaaa1", 0.2, None),
]


def make_file(boot, *fitted):
    return PredictionFile(
        predicted_at="2026-01-01T00:00:00+00:00",
        boot=boot,
        commit=None,
        cores=2,
        copy_gbps=10.0,
        fault_seconds=1e-6,
        fitted_boots=[*fitted],
        predictions=[],
    )


def make_outcome(configuration, predicted, measured, iteration_bytes=1):
    kept = KeptPrediction(
        configuration=configuration,
        table="headline",
        flow="online-dpo",
        iteration_bytes=iteration_bytes,
        seconds=predicted,
        interval=None,
    )
    return PredictedTime(kept, measured, measured)


def test_each_configuration_and_machine_has_a_point_of_its_kind():
    files = [make_file("cccc3", "aaaa1", "bbbb2"), make_file("aaaa1", "aaaa1"), make_file("dddd4")]
    outcomes = [
        [make_outcome("store refs", 1.5, 1.0), make_outcome("graph shm", 0.2, 0.25)],
        [make_outcome("store refs", 9.0, 9.0)],  # its costs were fitted to this machine
        [],  # no campaign has followed yet
    ]
    chart = prediction_section(LEFT_OUT_TIMES, files, outcomes).chart
    left_out, before = chart.groups
    assert (left_out.name, before.name) == (LEFT_OUT, BEFORE)
    assert [*left_out.predicted] == pytest.approx([1100, 1000, 200])
    assert [*left_out.measured] == pytest.approx([1000, 2000, 200])
    assert [*before.predicted] == pytest.approx([1500, 200])
    assert [*before.measured] == pytest.approx([1000, 250])
    assert "on 3 machines" in chart.title


def test_the_text_has_the_error_the_farthest_point_and_what_is_not_predicted():
    section = prediction_section(LEFT_OUT_TIMES, [], [])
    assert section.sentence.startswith(
        "The machine was left out of the fit: factor 1.5 (rms of the logarithms); 2 of 3 times on 2 machines "
    )
    assert "The largest error is -50 % (store refs on bbbb)." in section.sentence
    assert "Not predicted: 1 times (rdt gloo)" in section.sentence
    for line in section.chart.caption[1:]:
        assert line in section.sentence


def test_without_predictions_there_is_no_chart():
    section = prediction_section([], [make_file("cccc3")], [[]])
    assert section.chart is None and section.sentence == ""


def test_predictions_of_a_new_machine_are_those_of_large_messages_before_a_fit_to_it():
    large = make_outcome("store refs", 1.5, 1.0, 100 * 2**20)
    small = make_outcome("store refs", 9.0, 1.0, 100 * 2**20 - 1)
    files = [make_file("cccc3", "aaaa1"), make_file("aaaa1", "aaaa1"), make_file("dddd4")]
    assert find_predictions_of_new_machines(files, [[large, small], [large], []]) == [[large]]
