"""Check the environment of workers."""

import subprocess
import sys

import pytest
from conftest import KILOBYTES, ROOT

from dataflow.plan import validate
from dataflow.workers import variables
from dataflow.workers.variables import RETAIN_MEMORY, driver_environment


@pytest.mark.parametrize(("set_by_user", "expected"), [(None, "passive"), ("active", "active")])
def test_copying_threads_sleep_between_copies_unless_the_user_sets_another_policy(
    make_plan, monkeypatch, set_by_user, expected
):
    """By default, OpenMP's threads busy-wait for a while, on the cores of the process that copies next."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if set_by_user:
        monkeypatch.setenv("OMP_WAIT_POLICY", set_by_user)
    assert driver_environment(make_plan("torch", "--threads", "2", *KILOBYTES))["OMP_WAIT_POLICY"] == expected


def test_torch_and_ray_have_different_variables(make_plan):
    assert driver_environment(make_plan("torch", *KILOBYTES)).keys() == {"GLOO_SOCKET_IFNAME", "no_proxy", "NO_PROXY"}
    plan = make_plan("store", "--zero-copy", "--timeout", "7", "--transport", "refs", "--huge-pages", *KILOBYTES)
    variables = driver_environment(plan)
    assert variables["RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"] == "1"
    assert variables["RAY_CGRAPH_get_timeout"] == "37"
    assert variables["THP_MEM_ALLOC_ENABLE"] == "1"
    assert variables["RAY_AUTH_TOKEN"] != driver_environment(plan)["RAY_AUTH_TOKEN"]
    assert variables["RAY_preallocate_plasma_memory"] == "0" and not RETAIN_MEMORY.items() & variables.items()
    plan = make_plan("store", "--retain-memory", "--preallocate-store", "--transport", "refs", *KILOBYTES)
    variables = driver_environment(plan)
    assert variables["RAY_preallocate_plasma_memory"] == "1" and RETAIN_MEMORY.items() <= variables.items()


@pytest.mark.parametrize(("runtime", "flags", "set_by_user", "expected"), [
    ("store", (), {}, "127.0.0.1,localhost"),
    ("torch", (), {"NO_PROXY": "corp.net"}, "corp.net,127.0.0.1,localhost"),
    ("store", ("--address", "10.0.0.7:6379"), {"no_proxy": "a,b"}, "a,b,127.0.0.1,localhost,10.0.0.7"),
])  # fmt: skip
def test_no_proxy_is_used_for_this_machine_and_the_cluster(
    make_plan, monkeypatch, runtime, flags, set_by_user, expected
):
    monkeypatch.setattr(validate, "require_cluster", lambda address: None)
    monkeypatch.setattr(validate, "require_modules", lambda *_: None)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in set_by_user.items():
        monkeypatch.setenv(name, value)
    variables = driver_environment(make_plan(runtime, *flags, *KILOBYTES))
    assert variables["no_proxy"] == variables["NO_PROXY"] == expected


def test_a_driver_sends_the_token_of_an_existing_cluster_if_there_is_one(make_plan, monkeypatch, tmp_path):
    plan = make_plan("store", "--address", "auto", *KILOBYTES)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setattr(variables, "TOKEN", tmp_path / "auth_token")
    assert not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "GLOO_SOCKET_IFNAME"} & set(driver_environment(plan))
    variables.TOKEN.write_text("secret")
    assert driver_environment(plan)["RAY_AUTH_MODE"] == "token"
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert "RAY_AUTH_MODE" not in driver_environment(plan)


def test_a_user_without_a_home_has_no_token_of_ray():
    code = (
        "import os, pwd\ndef unknown(uid): raise KeyError(uid)\npwd.getpwuid = unknown\nos.environ.pop('HOME', None)\n"
        "from dataflow.workers.variables import TOKEN\nprint(TOKEN.exists())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
