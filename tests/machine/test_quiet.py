"""Whether the machine had anything else to do."""

import os
import time

import pytest

from common.machine import quiet


def test_a_process_that_works_keeps_a_core_busy():
    child = os.fork()
    if not child:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            pass
        os._exit(0)
    try:
        assert quiet.busy_cores() > 0.5
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("group", "folder", "line"),
    [("0::/mine", "mine", "throttled_usec 1500000"), ("3:cpu,cpuacct:/mine", "cpu/mine", "throttled_time 1500000000")],
    ids=["cgroup v2", "cgroup v1"],
)
def test_throttling_is_what_the_cgroup_says_and_unknown_where_it_says_nothing(
    tmp_path, monkeypatch, group, folder, line
):
    (tmp_path / "groups").write_text(f"2:memory:/other\n{group}\n")
    monkeypatch.setattr(quiet, "CGROUPS", tmp_path)
    monkeypatch.setattr(quiet, "OWN_GROUPS", tmp_path / "groups")
    assert quiet.throttled_seconds() is None
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "cpu.stat").write_text(f"nr_throttled 2\n{line}\n")
    assert quiet.throttled_seconds() == pytest.approx(1.5)
    (tmp_path / folder / "cpu.stat").write_text("usage_usec 9\n")
    assert quiet.throttled_seconds() is None
