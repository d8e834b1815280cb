"""Check how the workers of a run are started and called, and how an error is explained. No process is started."""

import pytest
from conftest import KILOBYTES

from dataflow.errors import RunFailed
from dataflow.flows.flow import DRIVER
from dataflow.workers import ray_workers
from dataflow.workers.worker_group import WorkerGroup

calls: list[str] = []


class Recorder:
    """An endpoint that records its calls."""

    def __init__(self, plan, name, extra, codec=None):
        self.name, self.extra, self.codec, self.digests = name, extra, codec, {}

    def payload_digests(self):
        return {self.name: [self.extra]}

    def learn_digests(self, digests):
        self.digests = digests

    def verify(self, first, last):
        calls.append(self.name)
        return (first, last, self.codec)


@pytest.fixture
def workers(make_plan):
    return WorkerGroup(make_plan("torch", "--transport", "memcpy", *KILOBYTES))


def test_every_worker_learns_all_digests_and_is_called_with_the_driver_last(workers):
    workers.start(Recorder, Recorder, 5, codec="codec")
    names = list(workers.plan.worker_names)
    assert workers.driver.digests == workers.actors["policy"].digests == {name: [5] for name in names}
    assert workers.call("verify", 1, 2) == {name: (1, 2, "codec" if name != DRIVER else None) for name in names}
    assert calls == [*names[1:], DRIVER]


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


def test_actors_on_an_existing_cluster_get_the_variables_that_change_copies(make_plan, monkeypatch):
    names = ("OMP_WAIT_POLICY", "MALLOC_TOP_PAD_", "THP_MEM_ALLOC_ENABLE")
    for name in names:
        monkeypatch.setenv(name, "1")
    jobs = []
    monkeypatch.setattr(ray_workers.ray, "init", lambda **options: jobs.append(options["runtime_env"]))
    monkeypatch.setattr("dataflow.plan.validate.require_cluster", lambda _: None)
    ray_workers._join_cluster(make_plan("store", "--transport", "refs", "--address", "127.0.0.1:1"))
    assert {name for name in names if jobs[0]["env_vars"].get(name) == "1"} == set(names)
