"""A sweep as a user runs it: one record, a process a point, and what does not fit told and left behind."""

import subprocess
import sys

from conftest import ROOT, SCRIPTS

import plot_results
from common.analysis.results import results_of
from common.record import files
from common.record.points import points

SHORT = ("--duration", "200ms", "--warmup", "1")


def test_a_sweep_has_every_point_in_one_record_and_goes_on_where_one_does_not_fit(run_script, tmp_path, capsys):
    sizes = "payload=4KiB,64KiB,1MiB,100TB"
    finished = run_script(SCRIPTS["torch"], "--transport", "memcpy", "--sweep", sizes, *SHORT)
    assert (finished.code, finished.stderr) == (0, "")
    record = finished.record
    assert (record.sweep, [run.at["payload"] for run in record.runs]) == (sizes, [2**12, 2**16, 2**20, 10**14])
    *good, last = record.runs
    assert all(run.status == "ok" and len(run.seconds) >= 3 and run.ceiling_before_seconds for run in good)
    assert (last.status, last.seconds) == ("waived", []) and "lower --payload" in last.reason
    for point in points(record)[:3]:
        wanted = point.row.sizes["payload"]
        assert abs(point.bytes_per_trip - wanted) <= 4 * len(point.edges)
    lines = finished.stdout.splitlines()
    assert sum(line.startswith("  payload ") for line in lines) == 4
    assert sum(line.startswith("payload ") and line.endswith(" ok") for line in lines) == 3
    assert plot_results.main([str(finished.output), "--output-dir", str(tmp_path)]) == 0
    assert "torch memcpy  " in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["sweep_payload.png"]


def test_rows_are_swept_over_fields_one_record_each(tmp_path):
    rows = ("torch memcpy", "torch multiprocessing")
    sweep = ("--payload", "64KiB", "--sweep", "fields=1,16", *SHORT)
    command = [sys.executable, "benchmark.py", "--rows", *rows, *sweep, "--output-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    records = [files.load(path) for path in sorted(tmp_path.glob("*.json"))]
    for record in records:
        assert [(run.at, run.status) for run in record.runs] == [({"fields": n}, "ok") for n in (1, 16)]
        assert [len(result.flow.query.fields) for result in results_of([record])] == [1, 16]
        assert len({point.bytes_per_trip for point in points(record)}) == 1
    assert len(records) == 2
    assert "2 points of fields=1,16" in done.stdout
    assert (tmp_path / "sweep_fields.png").exists()
