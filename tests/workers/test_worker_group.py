"""Check how the workers of a run are started and called, and how an error is explained. No process is started."""

import pytest
from conftest import KILOBYTES

from dataflow.errors import RunFailed
from dataflow.workers import ray_workers
from dataflow.workers.worker_group import WorkerGroup

calls: list[str] = []


@pytest.fixture
def workers(make_plan):
    return WorkerGroup(make_plan("torch", "--transport", "memcpy", *KILOBYTES))


def test_only_errors_of_the_suite_and_of_lost_peers_are_explained(workers):
    error = RunFailed("policy died")
    assert workers.explain(error) is error
    assert workers.explain(RuntimeError("Connection closed by peer\nat ...")) is None  # all actors are in this process
    workers.pipes["policy"] = None
    assert str(workers.explain(RuntimeError("Connection closed by peer\nat ..."))) == "Connection closed by peer"
    assert workers.explain(KeyError("policy")) is None


def test_a_start_of_ray_that_times_out_is_repeated_once(make_plan, monkeypatch, tmp_path):
    def init(**_):
        starts.append(1)
        raise Exception("The current node timed out during startup.")

    starts: list[int] = []
    monkeypatch.setattr(ray_workers.ray, "init", init)
    monkeypatch.setattr(ray_workers.psutil.Process, "children", lambda *_, **__: [])
    with pytest.raises(RunFailed, match=r"^Ray did not start: The current node timed out"):
        ray_workers.start_cluster(make_plan("store", "--transport", "refs", *KILOBYTES, run_folder=tmp_path))
    assert len(starts) == 2
