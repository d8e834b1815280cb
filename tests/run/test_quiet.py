"""Whether the machine had anything else to do."""

import os
import time

from common.run import quiet


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


def test_throttling_is_what_the_cgroup_says_and_nothing_where_it_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(quiet, "CGROUPS", tmp_path)
    assert quiet.throttled_seconds() == 0
    own = tmp_path / quiet.own_group()
    own.mkdir(parents=True, exist_ok=True)
    (own / "cpu.stat").write_text("usage_usec 9\nnr_throttled 2\nthrottled_usec 1500000\n")
    assert quiet.throttled_seconds() == 1.5
    (own / "cpu.stat").write_text("usage_usec 9\n")
    assert quiet.throttled_seconds() == 0
