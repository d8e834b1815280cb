"""The chart, the pictures and the README's table, from made-up records."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import plot_results
from common import chart, records, report, statistics
from common import readme as readme_text
from common.flows import online_dpo
from common.sizing import Sizes

ROOT = Path(plot_results.__file__).parent
ENVIRONMENT = {"cpu_model": "Test CPU", "logical_cpus": 2, "memory_gib": 8, "gpus": [], "python": "3.11"}


def a_record(transport: str, seconds: list[float], **changes) -> dict:
    flow = online_dpo(Sizes())
    case = {
        "flow": flow.name,
        "transport": transport,
        "device": "cpu",
        "status": "ok",
        "reason": None,
        "payload_copied": transport != "zero-copy",
        "path": {},
        "bytes_per_trip": flow.bytes_per_trip,
        "edges": [{"from": edge.source, "to": edge.reader, "bytes": edge.bytes} for edge in flow.edges],
        "warmup": 1,
        "first_seconds": 5.0,
        "seconds": seconds,
        "wrong_bytes": 0,
        "stored_bytes": 0,
        "spilled_bytes": 0,
        "peak_memory_bytes": 1,
        "harness_seconds": 0.001,
        "placement": {},
    }
    arguments = {"flow": flow.name, "zero_copy": False, "threads": 1, **vars(Sizes())}
    return {
        "schema_version": records.SCHEMA_VERSION,
        "script": "simulate_chat_learn_data_flow.py",
        "started_at": "2026-01-01T00:00:00+00:00",
        "arguments": arguments | changes.pop("arguments", {}),
        "environment": ENVIRONMENT | changes.pop("environment", {}),
        "ceiling_seconds": 0.02,
        "ceiling_samples_seconds": [0.02],
        "ceiling_all_cores_samples_seconds": [0.01],
        "cases": [case | changes],
    }


@pytest.fixture
def write(tmp_path):
    def write(name: str, record: dict) -> str:
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(record))
        return str(path)

    return write


@pytest.fixture
def three(write):
    return [
        write("queue", a_record("driver-queue", [2.0, 2.0, 2.2])),
        write("graph", a_record("zero-copy", [0.02, 0.025, 0.03])),
        write("nccl", a_record("nccl", [], status="waived", reason="no GPU", first_seconds=None, payload_copied=None)),
    ]


def test_draws_every_picture_and_prints_the_table(three, tmp_path, capsys):
    assert plot_results.main([*three, "--output-dir", str(tmp_path / "img")]) == 0
    pictures = sorted(path.name for path in (tmp_path / "img").iterdir())
    assert pictures == ["benchmark_result.png", "chatlearn_data_flow.png", "chatlearn_with_raycg.png", "simulation.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "img").iterdir())
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["transport", "driver-queue", "zero-copy", "nccl"]
    assert lines[1].split()[-1] == "1x"
    assert lines[2].split()[-1] == "80x"
    assert "nccl: waived, no GPU" in lines


def test_the_readme_holds_the_same_numbers_between_its_markers(three, tmp_path):
    readme = tmp_path / "README.md"
    start, end = readme_text.MARKERS
    readme.write_text(f"above\n{start}\n| outdated |\n{end}\nbelow\n")
    assert plot_results.main([*three, "--output-dir", str(tmp_path), "--readme", str(readme)]) == 0
    text = readme.read_text()
    fastest = (
        "The fastest, `zero-copy`, takes 25 ms a trip, 1.25 times the ceiling; `driver-queue` takes 80 times as long"
    )
    assert text.startswith(f"above\n{start}\n{fastest} (95 % interval ") and "\n| transport |" in text
    assert text.endswith(f"{end}\nbelow\n")
    assert "outdated" not in text
    # 448 MiB in 25 ms are not said as a rate: nobody moved them. 448 MiB in 2 s are 0.235 GB/s.
    assert "| zero-copy | 448 | 0 | 5,000 | 20 | 25 | 29.5 | 30 | mapped | 80.0% | 0 | 0.0 | 80x |" in text
    assert "| driver-queue | 448 | 0 | 5,000 | 2,000 | 2,000 | 2,180 | 2,200 | 0.235 | 1.0% | 0 | 0.0 | 1x |" in text
    assert "nccl: waived, no GPU." in text
    # 1 ms of the harness over the warm-up trip and three timed ones of 25 ms.
    assert "inside the clock: at most 1.00% of a trip (zero-copy)." in text


def refusal(capsys, *argv: str) -> str:
    assert plot_results.main(list(argv)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1
    return captured.err


def test_bad_records_are_refused_in_one_line(write, tmp_path, capsys):
    (tmp_path / "cut.json").write_text(json.dumps(a_record("refs", [1.0]))[:-50])
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    assert "truncated" in refusal(capsys, str(tmp_path / "cut.json"))
    assert "not JSON" in refusal(capsys, str(tmp_path / "binary.json"))
    assert "no record" in refusal(capsys, write("foreign", {"results": []}))
    assert "no record" in refusal(capsys, write("list", []))
    assert "update" in refusal(capsys, write("newer", a_record("refs", [1.0]) | {"schema_version": 99}))
    assert "cannot read" in refusal(capsys, str(tmp_path / "none.json"))
    assert "no record" in refusal(capsys, write("negative", a_record("refs", [-1.0])))
    assert "no record" in refusal(capsys, write("no-case", a_record("refs", [1.0]) | {"cases": []}))


def test_records_that_do_not_belong_together_are_refused(write, tmp_path, capsys):
    one = write("one", a_record("refs", [1.0, 1.0]))
    other = write("other", a_record("shm", [1.0, 1.0], environment={"cpu_model": "Another"}))
    assert "--mixed" in refusal(capsys, one, other)
    assert plot_results.main([one, other, "--mixed", "--output-dir", str(tmp_path)]) == 0
    capsys.readouterr()
    smaller = a_record("shm", [1.0])
    smaller["cases"][0]["edges"][0]["bytes"] = 8
    assert "other sizes" in refusal(capsys, one, write("smaller", smaller))
    assert "2 records" in refusal(capsys, one, write("twin", a_record("refs", [1.0])))


def test_what_cannot_be_drawn_is_refused(write, tmp_path, capsys):
    assert "ok" in refusal(capsys, write("failed", a_record("refs", [], status="failed", reason="x")))
    assert "--help" in refusal(capsys, write("fine", a_record("refs", [1.0])), "--unknown")
    readme = tmp_path / "README.md"
    readme.write_text("no markers")
    assert "markers" in refusal(capsys, write("fine", a_record("refs", [1.0])), "--readme", str(readme))
    unknown = a_record("refs", [1.0], arguments={"flow": "unheard-of"})
    assert "unheard-of" in refusal(capsys, write("unknown", unknown), "--output-dir", str(tmp_path))
    carrier = write("carrier", a_record("carrier-pigeon", [1.0]))
    assert "carrier-pigeon" in refusal(capsys, carrier)


def test_a_step_over_several_rungs_names_all_their_causes():
    order = list(chart.LADDER)
    between = chart.causes(["driver-queue", "refs"])
    assert between == [f"{chart.LADDER['ref-queue']}; {chart.LADDER['refs']}"]
    assert len(chart.causes(order)) == len(order) - 1


def test_every_transport_has_a_rung_and_a_cause():
    import ray_cg_simulate_chat_learn_data_flow as graph
    import simulate_chat_learn_data_flow as store

    wanted = {*graph.TRANSPORTS, *store.TRANSPORTS, *(f"{name} --zero-copy" for name in store.TRANSPORTS)}
    assert wanted == set(chart.LADDER)
    assert all(list(chart.LADDER.values())[1:])


def test_the_speed_up_comes_with_an_interval_that_holds_it():
    ratio, low, high = statistics.speedup_interval([0.1, 0.11, 0.09], [1.0, 1.1, 0.9, 1.2])
    assert low <= ratio <= high and low < high
    assert statistics.speedup_interval([0.5], [1.0, 1.0]) == (2.0, 2.0, 2.0)


def test_drawing_needs_neither_ray_nor_torch():
    code = "import sys, plot_results; sys.exit(bool({'ray', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


def test_the_readme_in_the_repository_is_that_of_the_published_records(tmp_path):
    published = sorted(map(str, (ROOT / "results" / "published").glob("*.json")))
    copy = tmp_path / "README.md"
    copy.write_text((ROOT / "README.md").read_text())
    assert plot_results.main([*published, "--output-dir", str(tmp_path), "--readme", str(copy)]) == 0
    assert copy.read_text() == (ROOT / "README.md").read_text()


def test_a_row_says_what_went_wrong():
    wrong = a_record("refs", [1.0], status="failed", reason="8 wrong bytes", wrong_bytes=8)
    assert report.row(wrong, wrong["cases"][0])[-1] == "WRONG 8"
    failed = a_record("refs", [1.0], status="failed", reason="reward died")
    assert report.row(failed, failed["cases"][0])[-1] == "failed"
    spilled = a_record("refs", [1.0, 1.0], spilled_bytes=2**20)
    assert "spilled" in report.warnings(spilled["cases"][0])[0]
    assert report.row(spilled, spilled["cases"][0])[0] == "refs (spilled)"
    unstable = a_record("refs", [1.0, 3.0])["cases"][0]
    assert "unstable" in report.warnings(unstable)[0]
