# SPDX-License-Identifier: Apache-2.0
"""Simulate a few jobs whose times are known exactly."""

import pytest

from dataflow.cluster.simulation import Job, Kind, Resource, simulate

LINK = Resource(Kind.SENDS, 0)
INPUT = Resource(Kind.RECEIVES, 1)
OTHER_INPUT = Resource(Kind.RECEIVES, 2)
CORE = Resource(Kind.CORE, "driver")


def test_one_message_takes_its_bytes_divided_by_the_rate():
    outcome = simulate([Job({LINK: 100.0})], {LINK: 20.0})
    assert outcome.seconds == 5.0
    assert outcome.share(LINK) == 1.0


def test_two_messages_share_a_link():
    outcome = simulate([Job({LINK: 100.0}), Job({LINK: 100.0})], {LINK: 20.0})
    assert outcome.ends == pytest.approx([10.0, 10.0])


def test_a_small_message_ends_first_and_the_other_one_has_the_link_alone_then():
    outcome = simulate([Job({LINK: 100.0}), Job({LINK: 20.0})], {LINK: 20.0})
    # Each gets half: the small one needs 2 s, and the large one has 80 of 100 bytes left.
    assert outcome.ends == pytest.approx([6.0, 2.0])


def test_a_job_takes_as_long_as_the_resource_that_needs_longest():
    outcome = simulate([Job({LINK: 100.0, CORE: 8.0})], {LINK: 20.0, CORE: 1.0})
    assert outcome.seconds == pytest.approx(8.0)
    assert outcome.share(LINK) == pytest.approx(5 / 8)
    assert outcome.share(CORE) == pytest.approx(1.0)


def test_a_job_begins_when_those_before_it_have_ended():
    jobs = [Job({LINK: 20.0}), Job({CORE: 3.0}), Job({CORE: 1.0}, [0, 1])]
    outcome = simulate(jobs, {LINK: 20.0, CORE: 1.0})
    assert outcome.ends == pytest.approx([1.0, 3.0, 4.0])


def test_jobs_at_no_full_resource_go_on_at_their_own_speed():
    jobs = [
        Job({LINK: 10.0, INPUT: 10.0}),
        Job({LINK: 10.0, INPUT: 10.0}),
        Job({OTHER_INPUT: 10.0}),
    ]
    outcome = simulate(jobs, {LINK: 10.0, INPUT: 100.0, OTHER_INPUT: 10.0})
    assert outcome.ends == pytest.approx([2.0, 2.0, 1.0])


def test_what_a_slow_job_leaves_of_a_link_goes_to_the_others():
    # The second job is slow because of its reader, and takes a tenth of the link.
    jobs = [Job({LINK: 100.0}), Job({LINK: 10.0, OTHER_INPUT: 10.0})]
    outcome = simulate(jobs, {LINK: 10.0, OTHER_INPUT: 1.0})
    assert outcome.ends == pytest.approx([11.0, 11.0])


def test_jobs_that_use_nothing_take_no_time():
    outcome = simulate([Job({}), Job({LINK: 0.0}, [0]), Job({LINK: 5.0}, [1])], {LINK: 5.0})
    assert outcome.ends == [0.0, 0.0, 1.0]


def test_nothing_to_do_takes_no_time():
    outcome = simulate([], {})
    assert outcome.seconds == 0.0
    assert outcome.share(LINK) == 0.0


@pytest.mark.parametrize("count", [1, 3, 10])
def test_a_resource_that_all_need_is_in_use_all_the_time(count):
    jobs = []
    for number in range(count):
        own = Resource(Kind.CORE, f"rollout-{number}")
        jobs.append(Job({LINK: 1.0 + number, own: 0.1}))
    capacities = {LINK: 2.0} | {
        resource: 1.0 for job in jobs for resource in job.uses if resource != LINK
    }
    outcome = simulate(jobs, capacities)
    assert outcome.seconds == pytest.approx(sum(1.0 + number for number in range(count)) / 2)
    assert outcome.share(LINK) == pytest.approx(1.0)
