# SPDX-License-Identifier: Apache-2.0
"""The hook that Ray calls in ray.init, without a cluster: hooks of others, and a recorder that fails."""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("ray")
from raymeter.inside import calls, hook, ray_internals

USERS_ENV = {"env_vars": {"A": "1"}}


def users_hook(runtime_env: dict | None) -> dict:
    return {**(runtime_env or {}), "from": "user"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hook.USERS_HOOK, f"{__name__}.users_hook")
    monkeypatch.setenv(hook.USERS_UV_RUN, "1")
    monkeypatch.setattr(ray_internals, "is_connected", lambda: False)
    monkeypatch.setattr(ray_internals, "is_started_by_uv_run", lambda: False)


def test_the_hook_of_the_user_is_called() -> None:
    assert hook.apply_other_hooks(USERS_ENV) == {**USERS_ENV, "from": "user"}


def test_under_uv_run_rays_own_hook_is_called_as_ray_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_internals, "is_started_by_uv_run", lambda: True)
    monkeypatch.setattr(ray_internals, "UV_HOOK", f"{__name__}:uv_hook")
    assert hook.apply_other_hooks(USERS_ENV) == {"from": "uv"}
    monkeypatch.setenv(hook.USERS_UV_RUN, "0")  # the user has switched it off
    assert hook.apply_other_hooks(USERS_ENV) == {**USERS_ENV, "from": "user"}


def uv_hook(_: dict | None) -> dict:
    return {"from": "uv"}


def test_a_recorder_that_fails_leaves_the_program_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise OSError("no space")

    monkeypatch.setattr(calls, "install", fail)
    monkeypatch.setenv(hook.STARTED_CLUSTER, "")
    monkeypatch.setenv(hook.FOLDER, "")
    monkeypatch.setenv(hook.MIN_BYTES, "")
    assert hook.add_to_runtime_env(USERS_ENV) == {**USERS_ENV, "from": "user"}
    assert capsys.readouterr().err == "raymeter: this program is not recorded: no space\n"


def test_a_program_that_removes_the_settings_is_not_recorded_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(hook.FOLDER, raising=False)
    monkeypatch.setattr(calls, "install", lambda: None)
    monkeypatch.setenv(hook.STARTED_CLUSTER, "")
    assert hook.add_to_runtime_env(USERS_ENV) == {**USERS_ENV, "from": "user"}
    assert "the program has removed RAYMETER_FOLDER" in capsys.readouterr().err


def test_workers_import_the_hook_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRELOAD", "mine")
    hook.preload_in_workers("PRELOAD")
    hook.preload_in_workers("PRELOAD")
    assert os.environ["PRELOAD"] == "mine,raymeter.inside.hook"


def test_a_worker_can_run_the_package_from_its_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(hook.FOLDER, "")  # no recorder is installed here
    monkeypatch.setenv(hook.MIN_BYTES, "")
    set_up_worker = hook.make_worker_hook(None)
    for name in [name for name in sys.modules if name.partition(".")[0] == "raymeter"]:
        monkeypatch.delitem(sys.modules, name)
    installed = []
    package = ModuleType("raymeter.inside")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "raymeter.inside", package)
    monkeypatch.setitem(sys.modules, "raymeter.inside.calls", calls)
    monkeypatch.setattr(calls, "install", lambda: installed.append(True))
    set_up_worker()
    for name in hook.MODULES:
        monkeypatch.delitem(sys.modules, f"raymeter.inside.{name}", raising=False)
    assert capsys.readouterr().err == ""
    assert installed == [True]


def test_a_worker_gets_each_module_of_the_package() -> None:
    folder = Path(hook.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")}
    not_sent = {"__init__", "setup_worker"}
    assert set(hook.MODULES) == modules - not_sent


def test_what_ray_pickles_before_it_is_connected_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pickle_code = calls.make_export_wrapper("class")(lambda value: b"code")
    stopped = []
    monkeypatch.setattr(calls, "recorder", object())
    monkeypatch.setattr(calls, "stop", stopped.append)
    assert pickle_code(users_hook) == b"code"
    assert not stopped
