"""What the supervisor makes of processes that end: whose work was done may go, whoever goes before that is to blame."""

import json
import subprocess
import sys

import pytest
from conftest import ROOT

from common.record.schema import Run
from common.run import watch
from common.run.watch import Watch


@pytest.fixture
def watched(make_plan, monkeypatch, tmp_path):
    """watched(*reports) -> what is wrong, where policy's process has ended when the supervisor first looks."""
    monkeypatch.setattr(watch, "GRACE_SECONDS", 0.1)

    def wait(*reports):
        plan = make_plan("torch", "--transport", "gloo", folder=tmp_path)
        own = Watch(plan, plan.record(), Run(started_at=""), lambda run: None)
        joins = "import sys; from pathlib import Path; from common.trace.board import Board\n"
        joins += f"Board.join(Path({str(tmp_path)!r}), 'policy', {plan.participants!r}, {plan.trips})"
        subprocess.run([sys.executable, "-c", joins], cwd=ROOT, check=True)
        (tmp_path / "report").write_text("".join(json.dumps(report) + "\n" for report in reports))
        worker = subprocess.Popen(["sleep", "1"])  # the ceiling, measured again, takes longer than the grace
        try:
            return own._wait(worker)
        finally:
            worker.kill()
            worker.wait()

    return wait


def test_a_process_that_ends_when_all_is_done_is_nobody_to_blame(watched):
    assert watched({"nodes": {"policy": 0}}, {"status": "ok", "reason": None, "finished": True}) is None


def test_a_process_that_ends_before_is(watched):
    assert watched({"status": "ok", "reason": None}) == "policy died"
