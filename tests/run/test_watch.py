"""How a run is found to have ended, whatever the moment at which the supervisor looks."""

import subprocess
import sys

import pytest

from common.run import blame, watch
from common.run.watch import Watch


def value_of(steps):
    """What a generator returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


SLOW_END = "import time; time.sleep(1)"  # as a worker's that measures its ceiling once more


@pytest.mark.parametrize(
    ("reported", "found"),
    [('{"nodes": {}, "finished": true}', None), ('{"finished": true}', "policy died")],
    ids=["after it had said that all is done", "before"],
)
def test_participants_that_go_are_a_failure_only_before_the_trips_are_reported(
    make_plan, tmp_path, monkeypatch, reported, found
):
    """They go in the moment between two looks of the supervisor, right after the worker's last word on them."""
    plan = make_plan("graph", "--transport", "mapped", folder=tmp_path)
    record = plan.record()
    report = tmp_path / "report"

    def dead(_):
        report.write_text(f"{reported}\n")
        return ["policy"]

    monkeypatch.setattr(blame, "dead", dead)
    monkeypatch.setattr(watch, "GRACE_SECONDS", 0.3)
    worker = subprocess.Popen([sys.executable, "-c", SLOW_END])
    try:
        begun = Watch(plan, record, None, lambda run: None)
        assert value_of(begun._wait(worker)) == found
    finally:
        worker.kill()
        worker.wait()
