"""Check how workers are started and called, how errors are explained, and the environment. No process is started."""

import pytest
from conftest import KILOBYTES

from dataflow.errors import RunFailed
from dataflow.plan import validate
from dataflow.workers import ray_workers, variables
from dataflow.workers.variables import RETAIN_MEMORY, driver_environment
from dataflow.workers.worker_group import WorkerGroup

ALWAYS = {"no_proxy", "NO_PROXY"}
REFS = ("--transport", "refs")
RAY = {
    "RAY_CGRAPH_get_timeout": "37",
    "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1",
    "RAY_preallocate_plasma_memory": "0",
}
CLUSTER = ("--address", "10.0.0.7:6379")


def test_only_errors_of_the_suite_and_of_lost_peers_are_explained(make_plan):
    workers, error = (
        WorkerGroup(make_plan("torch", "--transport", "memcpy", *KILOBYTES)),
        RunFailed("policy died"),
    )
    assert workers.explain(error) is error
    assert (
        workers.explain(RuntimeError("Connection closed by peer\nat ...")) is None
    )  # all actors are in this process
    workers.pipes["policy"] = None
    assert (
        str(workers.explain(RuntimeError("Connection closed by peer\nat ...")))
        == "Connection closed by peer"
    )
    assert workers.explain(KeyError("policy")) is None


def test_a_start_of_ray_that_times_out_is_repeated_once(make_plan, monkeypatch, tmp_path):
    def init(**_):
        starts.append(1)
        raise Exception("The current node timed out during startup.")

    starts: list[int] = []
    monkeypatch.setattr(ray_workers.ray, "init", init)
    monkeypatch.setattr(ray_workers.psutil.Process, "children", lambda *_, **__: [])
    with pytest.raises(RunFailed, match=r"^Ray did not start: The current node timed out"):
        ray_workers.start_cluster(
            make_plan("store", "--transport", "refs", *KILOBYTES, run_folder=tmp_path)
        )
    assert len(starts) == 2


@pytest.mark.parametrize(("runtime", "flags", "set_by_user", "expected"), [
    ("torch", (), {}, {"GLOO_SOCKET_IFNAME": "lo", "OMP_WAIT_POLICY": None, "RAY_AUTH_TOKEN": None}),
    # By default, the threads of OpenMP busy-wait for a while, on the cores of the process that copies next.
    ("torch", ("--threads", "2"), {}, {"OMP_WAIT_POLICY": "passive"}),
    ("torch", ("--threads", "2"), {"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ("store", (*REFS, "--zero-copy", "--timeout", "7"), {}, RAY | dict.fromkeys(RETAIN_MEMORY)),
    ("store", (*REFS, "--huge-pages"), {}, {"THP_MEM_ALLOC_ENABLE": "1"}),
    ("store", (*REFS, "--retain-memory", "--preallocate-store"), {},
     RETAIN_MEMORY | {"RAY_preallocate_plasma_memory": "1"}),
    ("store", (), {}, dict.fromkeys(ALWAYS, "127.0.0.1,localhost")),
    ("torch", (), {"NO_PROXY": "corp.net"}, dict.fromkeys(ALWAYS, "corp.net,127.0.0.1,localhost")),
    ("store", CLUSTER, {"no_proxy": "a,b"}, dict.fromkeys(ALWAYS, "a,b,127.0.0.1,localhost,10.0.0.7")),
    # A driver sends the token of an existing cluster if there is one.
    ("store", CLUSTER, {}, dict.fromkeys(("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "GLOO_SOCKET_IFNAME"))),
    ("store", CLUSTER, {"RAY_AUTH_TOKEN": "secret"}, {"RAY_AUTH_MODE": "token"}),
    ("store", CLUSTER, {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "secret"}, {"RAY_AUTH_MODE": None}),
])  # fmt: skip
def test_the_driver_has_the_variables_of_its_plan(
    make_plan, monkeypatch, tmp_path, runtime, flags, set_by_user, expected
):
    monkeypatch.setattr(validate, "require_cluster", lambda address: None)
    monkeypatch.setattr(variables, "TOKEN", tmp_path / "auth_token")
    for name in ALWAYS | {"OMP_WAIT_POLICY", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}:
        monkeypatch.delenv(name, raising=False)
    for name, value in set_by_user.items():
        monkeypatch.setenv(name, value)
    environment = driver_environment(make_plan(runtime, *flags, *KILOBYTES))
    assert {name: environment.get(name) for name in expected} == expected


def test_each_run_has_a_token_of_its_own_and_a_cluster_that_of_its_user(
    make_plan, monkeypatch, tmp_path
):
    private, existing = (
        make_plan("store", *KILOBYTES),
        make_plan("store", "--address", "auto", *KILOBYTES),
    )
    assert (
        driver_environment(private)["RAY_AUTH_TOKEN"]
        != driver_environment(private)["RAY_AUTH_TOKEN"]
    )
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setattr(variables, "TOKEN", tmp_path / "auth_token")
    variables.TOKEN.touch()
    assert driver_environment(existing)["RAY_AUTH_MODE"] == "token"
