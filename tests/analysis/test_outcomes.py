# SPDX-License-Identifier: Apache-2.0
"""Predictions that were kept before a campaign are compared with it, and none that were made later."""

from dataclasses import replace

import pytest
from msgspec import structs

from dataflow.analysis.campaigns import boot_of, load_campaigns
from dataflow.analysis.kept_predictions import (
    KeptPrediction,
    PredictionFile,
    load_predictions,
    predict_campaign,
)
from dataflow.analysis.outcomes import (
    PredictedTime,
    find_all_outcomes,
    find_outcomes,
    rms_factor,
)
from dataflow.analysis.stored_costs import load_costs
from dataflow.commands import predict
from dataflow.errors import RecordError, UsageError
from dataflow.machine.samples import MachineSamples, NewMemory, WarmCopies
from dataflow.plan.options import CAMPAIGNS
from dataflow.report.outcome_tables import NONE_YET, outcome_sections

BEFORE = "2020-01-01T00:00:00+00:00"
AFTER = "2099-01-01T00:00:00+00:00"
MIB = 2**20


def make_machine() -> MachineSamples:
    """Return a machine that copies 8 GB/s with one thread and 16 with two, and takes 1 µs per page fault."""
    copies = [
        WarmCopies(64 * MIB, 1, [64 * MIB / 8e9]),
        WarmCopies(64 * MIB, 2, [64 * MIB / 16e9]),
    ]
    pages = 64 * MIB // 4096
    new = NewMemory(bytes=64 * MIB, faults=pages, seconds=[64 * MIB / 8e9 + pages * 1e-6])
    return MachineSamples(
        measured_at=BEFORE, environment={}, warm_copies=copies, just_freed=new, freed_before=new, huge_pages=new,
        pickle_bytes=1, pickle_seconds=[1.0], hash_bytes=1, hash_seconds=[1.0], round_trip_seconds=[1.0],
    )  # fmt: skip


def make_file(boot: str, predicted_at: str = BEFORE) -> PredictionFile:
    return PredictionFile(
        predicted_at=predicted_at,
        boot=boot,
        commit=None,
        cores=2,
        copy_gbps=16.0,
        fault_seconds=1e-6,
        fitted_boots=["another"],
        predictions=predict_campaign(make_machine(), load_costs()),
    )


@pytest.fixture(scope="module")
def campaigns():
    return load_campaigns(CAMPAIGNS)


@pytest.fixture(scope="module")
def newest_boot(campaigns):
    """Return the boot of the newest campaign."""
    *_, newest = campaigns.values()
    return boot_of(next(result for result in newest if result.status == "ok"))


def test_each_configuration_with_a_cost_is_predicted_with_its_own_messages():
    stored = load_costs()
    kept = predict_campaign(make_machine(), stored)
    assert [item.configuration for item in kept] == [cost.configuration for cost in stored.costs]
    for item, cost in zip(kept, stored.costs, strict=True):
        copies = cost.copies * cost.iteration_bytes / 16e9
        expected = copies + cost.faults * 1e-6 + cost.fixed_seconds
        assert item.seconds == pytest.approx(expected, rel=0.01)


def test_predictions_count_for_a_campaign_of_their_boot_that_was_measured_later(
    campaigns, newest_boot
):
    outcomes = find_outcomes(make_file(newest_boot), campaigns)
    tables = {outcome.predicted.table for outcome in outcomes}
    assert "headline" in tables
    for outcome in outcomes:
        assert outcome.mean_seconds > 0


@pytest.mark.parametrize(("boot", "predicted_at"), [("no such boot", BEFORE), (None, AFTER)])
def test_no_other_predictions_count(campaigns, newest_boot, boot, predicted_at):
    file = make_file(boot or newest_boot, predicted_at)
    assert find_outcomes(file, campaigns) == []


def test_a_campaign_counts_for_the_last_predictions_before_it_only(campaigns, newest_boot):
    *_, newest = campaigns.values()
    day_before = "2020-01-02T00:00:00+00:00"
    files = [make_file(newest_boot), make_file("another boot"), make_file(newest_boot, day_before)]
    first, other, last = find_all_outcomes(files, {"newest": newest})
    assert (first, other) == ([], [])
    assert last == find_outcomes(files[0], {"newest": newest}) != []


def test_the_error_is_the_root_mean_square_of_ratios():
    assert rms_factor([(1.0, 1.0)]) == pytest.approx(1.0)
    assert rms_factor([(2.0, 1.0), (1.0, 2.0)]) == pytest.approx(2.0)


def make_outcome(
    predicted: float, mean: float, interval: tuple[float, float] | None
) -> PredictedTime:
    kept = KeptPrediction(
        configuration="store refs", table="headline", flow="online-dpo", iteration_bytes=1000,
        seconds=predicted, interval=interval,
    )  # fmt: skip
    return PredictedTime(kept, mean_seconds=mean, median_seconds=mean)


def test_the_page_says_how_near_the_predictions_came():
    outcomes = [make_outcome(1.1, 1.0, (0.9, 1.3)), make_outcome(1.1, 1.0, (1.05, 1.3))]
    (section,) = outcome_sections([make_file("a boot")], [outcomes])
    assert "With less, predicted and measured means differ by a factor of 1.1" in section.sentence
    assert "With 100 MiB" not in section.sentence
    assert "1 of 2 means lie in their interval" in section.sentence
    assert "At that time, no cost was fitted to this boot" in section.sentence


def test_large_messages_are_apart():
    small = make_outcome(3.0, 1.0, None)
    large = make_outcome(1.1, 1.0, None)
    predicted = structs.replace(large.predicted, iteration_bytes=2**27)
    outcomes = [small, replace(large, predicted=predicted)]
    (section,) = outcome_sections([make_file("a boot")], [outcomes])
    assert "more, predicted and measured means differ by a factor of 1.1" in section.sentence
    assert "With less, predicted and measured means differ by a factor of 3" in section.sentence


def test_a_file_without_a_campaign_shows_nothing():
    (section,) = outcome_sections([make_file("a boot")], [[]])
    assert section.sentence == NONE_YET


def test_a_file_that_has_no_predictions_is_an_error(tmp_path):
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(RecordError, match=r"broken\.json has no predictions"):
        load_predictions(tmp_path)


@pytest.mark.parametrize(
    "flags",
    [
        ["--check"],
        ["--iteration-bytes", "1MiB"],
        ["--copy-gbps", "10", "--fault-us", "1"],
        ["--nodes", "3"],
    ],
)
def test_all_messages_of_a_campaign_are_predicted_here_and_nothing_else(flags):
    with pytest.raises(UsageError, match="--campaign predicts all messages"):
        predict.main(["--campaign", *flags])


def test_samples_of_another_boot_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "dataflow.commands.predict_campaign.load_machine", lambda path: make_machine()
    )
    with pytest.raises(UsageError, match="measure it again"):
        predict.main(["--campaign", "--machine", str(tmp_path / "m.json")])
