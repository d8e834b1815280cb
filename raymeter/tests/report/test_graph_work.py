# SPDX-License-Identifier: Apache-2.0
"""The graph of a program is built once, and its work is found by time."""

import random

import pytest
from made_programs import make_finding, make_loop, make_steps
from raymeter.causes.savings import save_sending, save_sending_all, total
from raymeter.simulate.graph import Edge, build
from raymeter.simulate.predict import predict
from raymeter.simulate.without_data import without_data
from raymeter.simulate.work import Work


def state_of(program) -> list:
    graph = build(program)
    edges = [(edge.seconds, edge.source) for point in graph.points for edge in point.edges]
    return [*edges, *[point.delay for point in graph.points]]


def test_predictions_leave_the_graph_as_it_was():
    program, steps = make_loop(), make_steps()
    before = state_of(program)
    savings = save_sending_all(program, program.messages)
    finding = make_finding(savings=savings, seconds=total(savings))
    first = predict(program, steps, [finding])
    assert first and state_of(program) == before
    assert without_data(program, steps).saved_seconds > 0
    assert state_of(program) == before
    assert predict(program, steps, [finding]) == first


@pytest.mark.parametrize("is_limit", [True, False])
def test_what_comes_on_top_of_an_upper_limit_is_one_too(is_limit):
    program, steps = make_loop(), make_steps()
    findings = []
    for share in (0.5, 0.25):
        savings = []
        for message in program.messages:
            savings += save_sending(program, message, share)
        findings.append(make_finding(savings=savings, is_limit=is_limit and share == 0.5))
    advice = predict(program, steps, findings)
    assert [item.prediction.is_upper_limit for item in advice] == [is_limit, is_limit]


@pytest.mark.parametrize("seed", range(5))
def test_the_edges_at_a_time_are_those_that_contain_it(seed):
    chooser = random.Random(seed)
    edges = []
    for _ in range(100):
        start = chooser.uniform(0, 10)
        end = start + chooser.choice((0.01, 0.1, 5))
        edges.append(Edge(0, 1.0, start=start, end=end))
    work = Work(edges)
    for _ in range(50):
        time = chooser.uniform(0, 12)
        expected = [edge for edge in work.edges if edge.start < time <= edge.end]
        assert work.at(time) == expected
