# SPDX-License-Identifier: Apache-2.0
"""What raymeter needs is found in each version of Ray by the names that it has for this."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("ray")
from ray.core.generated import gcs_pb2
from raymeter.inside import calls, ray_internals

EVENT = gcs_pb2.TaskEvents(task_id=b"task", attempt_number=1)


class Accessor:
    def get_task_events(self):
        return [EVENT.SerializeToString()]


class State44:
    """The names of 2.44.1 and what they do: the client is there after a check."""

    global_state_accessor = None

    def _check_connected(self):
        self.global_state_accessor = Accessor()


class State52:
    """The names of 2.52.1."""

    def _connect_and_get_accessor(self):
        return Accessor()


class State60(State52):
    """The names of 2.60.0, which may also ask the dashboard."""

    def _get_all_task_events(self):
        return [EVENT]


@pytest.mark.parametrize("kind", [State44, State52, State60])
def test_the_times_of_tasks_are_read(kind, monkeypatch):
    monkeypatch.setattr(ray_internals.ray._private, "state", SimpleNamespace(state=kind()))
    assert ray_internals.task_events() == [EVENT]


@pytest.mark.parametrize(("absent", "missing"), [
    ({ray_internals.NEXT}, []),
    ({ray_internals.OLDER_NEXT}, []),
    ({ray_internals.NEXT, ray_internals.PUT}, [ray_internals.PUT]),
    ({ray_internals.NEXT, ray_internals.OLDER_NEXT}, [ray_internals.NEXT, ray_internals.OLDER_NEXT]),
])  # fmt: skip
def test_a_function_is_missing_if_the_version_has_none_of_its_names(
    absent, missing, tmp_path, monkeypatch
):
    def replace(name, make_wrapper):
        if name in absent:
            raise AttributeError(name)

    monkeypatch.setattr(calls, "replace", replace)
    monkeypatch.setattr(calls, "recorder", None)
    monkeypatch.setattr(
        calls, "sample_memory", lambda: None
    )  # it starts a thread, and so does this
    monkeypatch.setattr(calls.Recorder, "start_flushing", lambda self: None)
    monkeypatch.setattr(calls.os, "register_at_fork", lambda **_: None)
    monkeypatch.setattr(calls.atexit, "register", lambda _: None)
    monkeypatch.setenv("RAYMETER_FOLDER", str(tmp_path))
    monkeypatch.setenv("RAYMETER_MIN_BYTES", "1")
    calls.install()
    calls.recorder.close()
    [path] = tmp_path.glob("*.jsonl")
    first, *_ = path.read_text().splitlines()
    assert sorted(json.loads(first)["missing"]) == sorted(missing)
