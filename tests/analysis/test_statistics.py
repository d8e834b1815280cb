import pytest

from common.analysis.statistics import summarise


def test_summary_of_the_samples():
    summary = summarise([4.0, 1.0, 2.0, 3.0, 10.0])
    assert (summary.count, summary.min, summary.median, summary.max) == (5, 1, 3, 10)
    assert summary.p95 == pytest.approx(8.8)
    assert summary.variation == pytest.approx((50 / 5) ** 0.5 / 4)


def test_summary_of_one_sample_does_not_vary():
    assert summarise([0.25]).variation == 0
    assert summarise([0.25]).p95 == 0.25


def test_no_sample_has_no_summary():
    with pytest.raises(ValueError, match="no timed trip"):
        summarise([])
