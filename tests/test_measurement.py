"""Trips as a case runs them: what is checked when. Roles in this process, the transport one copy an edge."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from common.run.options import build_flow
from common.runtime.processes import ProcessRoles
from conftest import KILOBYTES, ROOT, arguments

import torch_simulate_chat_learn_data_flow as torch_script
from common.payload.participant import Participant
from common.run import worker as case
from common.run.trips import measure
from common.view import tables as report

EVERYBODY = ("driver", "policy", "reference", "reward")
GRAPH = ROOT / "ray_cg_simulate_chat_learn_data_flow.py"


@pytest.fixture
def measured(monkeypatch):
    """measured(*flags, wrap=...) -> the case, and the calls of verify: {name: [(trip, trips), ...]}."""
    calls = {name: [] for name in EVERYBODY}
    verify = Participant.verify

    def noted(self, trip, trips=1):
        calls[self.name].append((trip, trips))
        return verify(self, trip, trips)

    monkeypatch.setattr(Participant, "verify", noted)

    def run(*flags, wrap=lambda send: send):
        threads = ("--threads", str(torch.get_num_threads()))
        given = arguments(*KILOBYTES, *threads, *flags)
        given.transport = "memcpy"

        @contextmanager
        def connect(*connecting):
            with torch_script.connect(*connecting) as wiring:
                yield replace(wiring, send=wrap(wiring.send))

        flow = build_flow(given)
        found = case._new_case(flow, given)
        measure(given, flow, connect, found, ProcessRoles())
        return SimpleNamespace(case=found, calls=calls)

    return run


def test_without_episodes_every_trip_is_checked(measured):
    done = measured("--warmup", "1", "--iterations", "3")
    assert done.calls == {name: [(trip, 1) for trip in range(1, 6)] for name in EVERYBODY}
    assert (done.case["status"], len(done.case["seconds"])) == ("ok", 3)


@pytest.mark.parametrize(
    ("iterations", "episode", "checks"),
    [
        (4, 2, [(4, 2), (6, 2)]),
        (5, 2, [(4, 2), (6, 2), (7, 1)]),
        (5, 3, [(5, 3), (7, 2)]),
        (2, 100, [(4, 2)]),
    ],
)
def test_the_last_trip_of_each_episode_is_checked_and_the_very_last_one(measured, iterations, episode, checks):
    done = measured("--warmup", "1", "--iterations", str(iterations), "--episode", str(episode))
    assert done.calls == {name: [(1, 1), (2, 1), *checks] for name in EVERYBODY}
    assert (done.case["status"], done.case["reason"], done.case["wrong_bytes"]) == ("ok", None, 0)
    assert len(done.case["seconds"]) == iterations


def spoil(number, change):
    """A transport that does something wrong with the results of one trip."""

    def wrap(send):
        def sent(query):
            results = send(query)
            if int(query[0]) == number:
                change(results[0])
            return results

        return sent

    return wrap


@pytest.mark.parametrize(
    ("trip", "wrong"), [(1, 1), (2, 1), (3, 0), (4, 1), (5, 0), (6, 1), (7, 1)], ids=lambda value: str(value)
)
def test_a_byte_that_is_wrong_is_seen_where_an_episode_ends(measured, trip, wrong):
    def change(result):
        result.view(torch.uint8)[-1] ^= 1

    done = measured("--warmup", "1", "--iterations", "5", "--episode", "2", wrap=spoil(trip, change))
    assert done.case["wrong_bytes"] == wrong
    assert done.case["status"] == ("failed" if wrong else "ok")


@pytest.mark.parametrize("trip", range(3, 8))
def test_a_stale_stamp_is_seen_wherever_it_is(measured, trip):
    def change(result):
        result[0] -= 1

    done = measured("--warmup", "1", "--iterations", "5", "--episode", "5", wrap=spoil(trip, change))
    assert done.case["status"] == "failed"
    assert 1 <= done.case["wrong_bytes"] <= 8
    assert len(done.case["seconds"]) == 5


def test_nothing_is_wrapped_and_nothing_noted_without_the_flag(measured):
    done = measured("--warmup", "0", "--iterations", "1")
    assert (done.case["spans"], done.case["trips_us"]) == ([], [])
    assert not hasattr(Participant.emit, "__wrapped__")
    assert not hasattr(torch.Tensor.copy_, "__wrapped__")


def test_an_episode_of_the_graph_is_right_and_a_row_of_its_own(run_script):
    flags = ("--transport", "mapped", "--episode", "2", "--iterations", "5", "--warmup", "0")
    finished = run_script(GRAPH, *flags, *KILOBYTES)
    assert (finished.code, finished.stderr) == (0, "")
    record, found = finished.record, finished.case
    assert (found["status"], found["wrong_bytes"], found["payload_copied"]) == ("ok", 0, False)
    assert (len(found["seconds"]), found["spans"], found["trips_us"]) == (5, [], [])
    assert record["arguments"]["episode"] == 2
    assert report.label(record, found) == "graph mapped --episode 2"
    assert "graph mapped --episode 2" in finished.stdout
