"""The cost model: terms that were put in are found again, with intervals that hold them, and knees where they are."""

import numpy as np
import pytest

from common.cost.cost_model import TERMS, fit
from common.cost.size import Point, Size, size_of
from common.flow.catalogue import build_flow

SIZES = [2**power for power in range(13, 30, 2)]  # 8 KiB to 512 MiB
MESSAGE, TENSOR, BYTE = 200e-6, 15e-6, 1e-10


def seconds(size, message=MESSAGE, stored=0.0, threaded=0.0, tensor=TENSOR, byte=BYTE):
    steps = stored * size.stored + threaded * size.threaded
    return message * size.messages + steps + tensor * size.tensors + byte * size.bytes


def made(noise=0.0, seed=0, change=lambda size, seconds: seconds, **terms):
    """Bytes at five messages, then tensors at 1 MiB."""
    generator = np.random.default_rng(seed)
    sizes = [Size(5, 5 * (count > 300_000), 5 * (count > 2**22), 0, count) for count in SIZES]
    sizes += [Size(5, 5, 0, 5 * (tensors - 1), 2**20) for tensors in (1, 8, 64)]
    noises = generator.lognormal(0, noise, len(sizes))
    return [Point(size, change(size, seconds(size, **terms)) * by) for size, by in zip(sizes, noises, strict=True)]


def value(found, term):
    return found.estimate(term).value


def test_what_was_put_in_is_found_and_what_was_not_is_none():
    found = fit(made())
    assert found.knee_bytes is None
    expected = dict.fromkeys(TERMS, 0) | {"message": MESSAGE, "tensor": TENSOR, "byte": BYTE}
    assert {term: value(found, term) for term in TERMS} == pytest.approx(expected, rel=1e-3)
    assert np.abs(found.residuals).max() < 1e-3


def test_messages_that_a_store_inlines_cost_less_of_one_that_does():
    points = made(stored=500e-6)
    found = fit(points, ("stored message",))
    assert value(found, "stored message") == pytest.approx(500e-6, rel=1e-2)
    assert found.knee_bytes is None
    assert np.abs(fit(points).residuals).max() > 0.1


def test_tensors_that_threads_copy_cost_more_of_one_that_begins_them():
    points = made(threaded=400e-6)
    found = fit(points, ("threaded tensor",))
    assert value(found, "threaded tensor") == pytest.approx(400e-6, rel=1e-2)
    assert value(found, "byte") == pytest.approx(BYTE, rel=1e-2)
    known = [point for point in points if point.size.bytes <= 2**26]
    large = Size(5, 5, 5, 0, 2**29)
    right = seconds(large, threaded=400e-6)
    assert fit(known, ("threaded tensor",)).predict(large).value == pytest.approx(right, rel=0.02)
    assert fit(known).predict(large).value > 1.1 * right  # a step taken for a slope


def test_the_interval_holds_what_was_put_in_about_as_often_as_it_says():
    held = {term: 0 for term in ("message", "tensor", "byte")}
    foretold, large = 0, Size(5, 5, 5, 0, 2**28)
    for seed in range(100):
        found = fit(made(noise=0.05, seed=seed))
        for term, true in (("message", MESSAGE), ("tensor", TENSOR), ("byte", BYTE)):
            estimate = found.estimate(term)
            held[term] += estimate.low <= true <= estimate.high
        interval = found.predict(large)
        foretold += interval.low <= seconds(large) <= interval.high
    assert min(*held.values(), foretold) >= 88


def test_a_knee_is_found_where_a_byte_begins_to_cost_more():
    def dearer(size, before):
        return before + 3 * BYTE * max(0, size.bytes - 2**23)

    found = fit(made(noise=0.03, change=dearer))
    assert 2**21 <= found.knee_bytes <= 2**25
    assert value(found, "byte beyond the knee") == pytest.approx(4 * BYTE, rel=0.2)
    assert value(found, "byte") == pytest.approx(BYTE, rel=0.5)


def test_noise_alone_has_seldom_a_knee():
    assert sum(fit(made(noise=0.05, seed=seed)).knee_bytes is not None for seed in range(50)) <= 8


def test_one_median_that_is_far_off_does_not_move_the_others():
    points = made(noise=0.02)
    points[2] = Point(points[2].size, 4 * points[2].seconds)
    found = fit(points)
    assert value(found, "message") == pytest.approx(MESSAGE, rel=0.15)
    assert value(found, "byte") == pytest.approx(BYTE, rel=0.1)


def test_larger_trips_are_foretold_from_smaller_ones():
    known = [point for point in made(noise=0.03) if point.size.bytes <= 2**26]
    large = Size(5, 5, 5, 0, 2**29)
    assert fit(known).predict(large).value == pytest.approx(seconds(large), rel=0.1)


def test_what_lies_outside_is_said():
    found = fit(made())
    assert found.beyond(Size(5, 5, 0, 100, 10**6)) == []
    assert found.beyond(Size(2, 2, 0, 1000, 2**30)) == ["bytes", "tensors", "messages"]
    assert found.beyond(Size(5, 5, 0, 0, 100)) == ["bytes"]


def test_two_sizes_are_too_few():
    with pytest.raises(ValueError, match="give three or more"):
        fit(made()[:2])
    exact = fit(made()[:3])
    assert exact.predict(exact.points[0].size).value == pytest.approx(exact.points[0].seconds, rel=1e-2)


def test_of_a_flow_its_edges_count_and_its_tensors_but_for_the_first_of_each():
    assert size_of(build_flow("online-dpo", {})) == Size(5, 5, 5, 0, 448 * 2**20)
    assert size_of(build_flow("chain", {"roles": 2, "payload_bytes": 1024})) == Size(3, 0, 0, 0, 3072)
    cut = size_of(build_flow("chain", {"roles": 2, "payload_bytes": 2**20, "fields": 8}))
    assert cut == Size(3, 3, 0, 21, 3 * 2**20)
