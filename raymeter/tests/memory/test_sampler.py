# SPDX-License-Identifier: Apache-2.0
"""The thread of the driver that reads the stores, with a raylet that is made up."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")
from raymeter.inside import memory, place, ray_internals
from raymeter.inside.recorder import Recorder
from raymeter.profile.reader import read_recording

JOB = b"job1"


class Lines:
    """A recorder that keeps what is written."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.own_seconds = 0.0

    def write(self, event: dict[str, Any]) -> None:
        self.events.append(event)


def store(**numbers: float) -> SimpleNamespace:
    names = (
        "object_store_bytes_used object_store_bytes_avail object_store_bytes_fallback "
        "num_local_objects spilled_bytes_total restored_bytes_total spill_time_total_s restore_time_total_s"
    )
    return SimpleNamespace(**(dict.fromkeys(names.split(), 0) | numbers))


def reference(size: int, site: str = "", **counts: Any) -> SimpleNamespace:
    kinds = {"pinned_in_memory": False, "submitted_task_ref_count": 0, "local_ref_count": 0}
    return SimpleNamespace(
        object_id=b"\x01", object_size=size, call_site=site, contained_in_owned=[], **kinds | counts
    )


def reply(references: list[SimpleNamespace], job: bytes = JOB) -> tuple[str, SimpleNamespace]:
    """Return a node, and what its raylet says."""
    worker = SimpleNamespace(job_id=job, pid=7, object_refs=references)
    used = store(object_store_bytes_used=5, object_store_bytes_avail=9, spilled_bytes_total=3)
    return "node", SimpleNamespace(store_stats=used, core_workers_stats=[worker])


@pytest.fixture
def raylet(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the replies that the raylet gives."""
    replies: list[Any] = [reply([])]
    monkeypatch.setattr(ray_internals, "is_connected", lambda: True)
    monkeypatch.setattr(ray_internals, "node_statistics", lambda _: replies)
    job = SimpleNamespace(binary=lambda: JOB)
    monkeypatch.setattr(ray_internals, "worker", SimpleNamespace(current_job_id=job))
    return replies


def wait_until(condition: Any) -> None:
    for _ in range(200):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def test_stores_of_all_nodes_are_added(raylet: list[Any]) -> None:
    event = memory.describe_stores([reply([]), reply([])])
    assert (event["used"], event["capacity"], event["spilled"]) == (10, 18, 6)


def test_a_sample_is_written_at_the_start_and_at_the_end(raylet: list[Any]) -> None:
    lines = Lines()
    sampler = memory.Sampler(lines)
    wait_until(lambda: lines.events)
    sampler.stop()
    sampler.stop()
    assert [event["event"] for event in lines.events] == ["store", "store"]
    assert "raymeter-memory" not in [thread.name for thread in threading.enumerate()]


def test_waiting_for_a_raylet_costs_nothing_and_reading_its_answer_does(
    raylet: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(with_references: bool = False) -> list[Any]:
        time.sleep(0.2)
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        return raylet

    monkeypatch.setattr(ray_internals, "node_statistics", answer)
    lines = Lines()
    sampler = memory.Sampler(lines)
    wait_until(lambda: lines.events)
    sampler.stop()
    assert 0.1 <= lines.own_seconds < 0.4  # at the start and at the end


def test_a_raylet_that_does_not_answer_ends_the_samples_quietly(
    raylet: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: bool) -> None:
        raise OSError("connection refused")

    monkeypatch.setattr(ray_internals, "node_statistics", fail)
    lines = Lines()
    sampler = memory.Sampler(lines)
    wait_until(lambda: not sampler.thread.is_alive())
    sampler.stop()
    assert lines.events == []


def test_without_a_cluster_the_thread_ends_with_the_program(
    raylet: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_internals, "is_connected", lambda: False)
    sampler = memory.Sampler(Lines())
    assert sampler.thread.daemon
    sampler.stop()
    assert not sampler.thread.is_alive()


def test_references_are_read_only_if_raymeter_memory_asks(
    raylet: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    raylet[:] = [reply([reference(10**6, local_ref_count=1)])]
    for seconds, expected in (("", ["store"]), ("60", ["store", "reference"])):
        if seconds:
            monkeypatch.setenv(memory.SECONDS, seconds)
        lines = Lines()
        sampler = memory.Sampler(lines)
        sampler.stop()
        assert [event["event"] for event in lines.events[: len(expected)]] == expected


def test_small_objects_and_those_of_other_jobs_are_left_out(raylet: list[Any]) -> None:
    replies = [
        reply([reference(10**6, pinned_in_memory=True), reference(10)]),
        reply([reference(10**7)], b"job2"),
    ]
    [event] = memory.describe_references(5.0, replies)
    assert (event["bytes"], event["kind"]) == (10**6, "PINNED_IN_MEMORY")
    assert (event["time"], event["node"], event["pid"]) == (5.0, "node", 7)


@pytest.mark.parametrize(
    ("counts", "kind"),
    [
        ({"submitted_task_ref_count": 1, "local_ref_count": 1}, "USED_BY_PENDING_TASK"),
        ({"local_ref_count": 2}, "LOCAL_REFERENCE"),
        ({"pinned_in_memory": True, "local_ref_count": 2}, "PINNED_IN_MEMORY"),
        ({}, "UNKNOWN"),
    ],
)
def test_kinds_are_those_of_ray_memory(counts: dict[str, Any], kind: str) -> None:
    assert ray_internals.reference_kind(reference(1, **counts)) == kind


def test_the_line_of_a_reference_is_the_innermost_one_of_the_user() -> None:
    ours = f"{place.RAYMETER_FOLDER}calls.py:call:120"
    site = f"(put object)  | {ours} | /home/me/train.py:step:18 | /home/me/main.py:<module>:3"
    assert memory.user_line(site) == "/home/me/train.py:18"
    assert memory.user_line("disabled") == ""
    assert memory.user_line("") == ""


def test_a_recording_says_that_raymeter_memory_has_asked_for_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYMETER_MEMORY_SECONDS", "0.5")
    made = Recorder(str(tmp_path), "1", [])
    made.close()
    assert read_recording(tmp_path).is_of_memory
