# SPDX-License-Identifier: Apache-2.0
"""Check how workers are started and called, how errors are explained, and the environment. No process is started."""

import multiprocessing
import os
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
import ray
from conftest import KILOBYTES

from dataflow.errors import ActorRaised, RunFailed
from dataflow.plan import validate
from dataflow.workers import ray_workers, variables, worker_group
from dataflow.workers.ray_workers import RayWorkers
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "AssertionError"),
        ("\n  no raylet answers \nat ...", "no raylet answers"),
        ("x" * 200, f"{'x' * 150}..."),
    ],
)
def test_a_start_of_ray_that_fails_says_why_in_one_line(
    make_plan, monkeypatch, tmp_path, text, expected
):
    def fail(**_):
        raise AssertionError(text)

    monkeypatch.setattr(ray_workers.ray, "init", fail)
    plan = make_plan("store", "--transport", "refs", *KILOBYTES, run_folder=tmp_path)
    with pytest.raises(RunFailed) as raised:
        ray_workers.start_cluster(plan)
    assert str(raised.value) == f"Ray did not start: {expected}"


OF_THE_SUITE = {
    "RAY_enable_metrics_collection": "0",
    "RAY_worker_niceness": "0",
    "RAY_enable_worker_prestart": "0",
}


@pytest.mark.parametrize(("runtime", "flags", "set_by_user", "expected"), [
    ("torch", (), {}, {"GLOO_SOCKET_IFNAME": "lo", "OMP_WAIT_POLICY": None, "RAY_AUTH_TOKEN": None}),
    # By default, the threads of OpenMP busy-wait for a while, on the cores of the process that copies next.
    ("torch", ("--threads", "2"), {}, {"OMP_WAIT_POLICY": "passive"}),
    ("torch", ("--threads", "2"), {"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ("store", (*REFS, "--zero-copy", "--timeout", "7"), {}, RAY | dict.fromkeys(RETAIN_MEMORY)),
    ("store", (*REFS, "--huge-pages"), {}, {"THP_MEM_ALLOC_ENABLE": "1"}),
    ("store", (*REFS, "--env", "OF_TEST='x y' MALLOC_ARENA_MAX=2"), {"OF_TEST": "z"},
     {"OF_TEST": "x y", "MALLOC_ARENA_MAX": "2", "MALLOC_TOP_PAD_": None}),
    ("store", (*REFS, "--env", "OF_TEST=1", "--retain-memory"), {}, RETAIN_MEMORY | {"OF_TEST": "1"}),
    ("torch", ("--threads", "2", "--env", "OMP_WAIT_POLICY=active"), {}, {"OMP_WAIT_POLICY": "active"}),
    ("store", (*REFS, "--retain-memory", "--preallocate-store"), {},
     RETAIN_MEMORY | {"RAY_preallocate_plasma_memory": "1"}),
    ("store", REFS, {}, OF_THE_SUITE),
    ("store", (*REFS, "--ray-defaults"), {}, dict.fromkeys(OF_THE_SUITE)),
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


@pytest.fixture
def ray_workers_of(make_plan):
    """ray_workers_of(**attributes) -> Ray workers on one node, whose cluster is not started."""

    def make(nodes=1, **attributes):
        workers = object.__new__(RayWorkers)
        workers.plan = make_plan("store", *REFS, *KILOBYTES)
        workers.nodes = SimpleNamespace(ids=["n"] * nodes, address="127.0.0.1")
        workers.worker_nodes = {"driver": 0, "policy": 0, "reward": nodes - 1}
        handle = SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda: "ab12"))
        workers.actors = {"reward": handle}
        vars(workers).update(attributes)
        return workers

    return make


NAMED = "\n".join([
    "The actor died unexpectedly before finishing this task.",
    "\tclass_name: policy",
    "\tactor_id: ff00",
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR "
    "Worker exit detail: killed. Some common causes include: many",
])  # fmt: skip


@pytest.mark.parametrize(("text", "actor_id", "nodes", "reason"), [
    (NAMED, "ab12", 1, "policy died: killed."),
    ("The actor died unexpectedly before finishing this task.", None, 1,
     "an actor died: The actor died unexpectedly before finishing this task."),
    ("The actor died unexpectedly before finishing this task.", "ab12", 2,
     "reward on node 1 died: The actor died unexpectedly before finishing this task."),
    ("\n  A text of another version, \n with details", "cd34", 1, "an actor died: A text of another version,"),
    ("x" * 500, None, 1, f"an actor died: {'x' * 150}..."),
    ("", None, 1, "an actor died"),
])  # fmt: skip
def test_the_death_of_an_actor_is_explained_also_with_an_unknown_text(
    ray_workers_of, text, actor_id, nodes, reason
):
    error = ray.exceptions.RayActorError(actor_id, text)
    assert str(ray_workers_of(nodes)._explain_ray_error(error)) == reason


def test_the_text_of_an_actor_that_died_is_found_in_the_error_of_a_task_that_waited_for_it(
    ray_workers_of,
):
    cause = ray.exceptions.RayActorError("ab12", "An unknown text\nand more")
    error = ray.exceptions.RayTaskError("step", "Traceback of policy\n  many lines", cause)
    assert str(ray_workers_of()._explain_ray_error(error)) == "reward died: An unknown text"


@pytest.mark.parametrize("kind", [RunFailed, ActorRaised])
def test_an_error_of_the_suite_stays_as_it_is_with_ray(ray_workers_of, kind):
    error = kind("policy: a reason")
    assert ray_workers_of()._explain_ray_error(error) is error


def test_an_error_of_the_suite_that_an_actor_raised_has_one_line(ray_workers_of):
    """Ray gives its error the class of the cause, too."""
    cause = RunFailed("expected a dict of tokens")
    traceback = "\x1b[36mray::reference.step()\x1b[39m (pid=1)\n  many lines"
    error = ray.exceptions.RayTaskError("step", traceback, cause).as_instanceof_cause()
    assert isinstance(error, RunFailed)
    explained = ray_workers_of()._explain_ray_error(error)
    assert isinstance(explained, ActorRaised)
    assert str(explained) == "reference: expected a dict of tokens"


def test_the_port_of_a_process_group_stays_taken_until_the_group_is_formed(ray_workers_of):
    workers = ray_workers_of()
    port = int(workers.rendezvous().rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", port))


def test_a_process_group_is_formed_at_the_port_that_was_chosen(tmp_path):
    """In a process of its own, because a process has one default group."""
    finished = subprocess.run(
        [sys.executable, "-c", FORM_GROUP],
        capture_output=True, check=False, text=True, timeout=60, env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip
    assert finished.stdout.split() == ["1.0"], finished.stderr


FORM_GROUP = """
import torch
import torch.distributed as dist
from types import SimpleNamespace
from dataflow.workers.ray_workers import RayWorkers
workers = object.__new__(RayWorkers)
workers.plan = SimpleNamespace(options=SimpleNamespace(timeout=30))
workers.nodes = SimpleNamespace(address="127.0.0.1")
dist.init_process_group("gloo", workers.rendezvous(), rank=0, world_size=1)
value = torch.ones(1)
dist.all_reduce(value)
print(value.item())
"""


@pytest.mark.parametrize("is_answer_read", [True, False])
def test_a_driver_that_ends_is_no_error_of_the_thread_that_answers(is_answer_read):
    """If an answer was not read, the pipe is reset, and has no regular end."""
    driver, worker = multiprocessing.Pipe()
    driver.send(len)
    answered = threading.Thread(target=worker_group.answer_calls, args=("actor", worker))
    errors = []
    answered.run = record_error(answered.run, errors)
    answered.start()
    assert driver.poll(20)
    if is_answer_read:
        assert driver.recv() == (True, 5)
    driver.close()
    answered.join(20)
    assert not answered.is_alive()
    assert errors == []


def record_error(function, errors):
    """Return a function that does the same, and adds its error to a list."""

    def call():
        try:
            function()
        except BaseException as error:
            errors.append(error)

    return call
