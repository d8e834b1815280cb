"""The chart, the pictures and the README's table, from made-up records."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from made_records import a_chain, a_record

import plot_results
import ray_cg_simulate_chat_learn_data_flow as graph_script
import ray_rdt_simulate_chat_learn_data_flow as rdt_script
import simulate_chat_learn_data_flow as store_script
import torch_simulate_chat_learn_data_flow as torch_script
from common.analysis import statistics
from common.record import files as records
from common.view import ladder_chart as chart
from common.view import markdown as readme_text
from common.view import tables as report
from common.view.advice import ADVICE

ROOT = Path(plot_results.__file__).parent


@pytest.fixture(autouse=True)
def nothing_is_published(monkeypatch, tmp_path):
    """A test that draws by mistake must not change the repository's pictures or README."""
    monkeypatch.setattr(plot_results, "ROOT", tmp_path)


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
        write("graph", a_record("zero-copy", [0.02, 0.025, 0.03], "graph")),
        write(
            "nccl",
            a_record("nccl", [], "graph", status="waived", reason="no GPU", first_seconds=None, payload_copied=None),
        ),
    ]


def test_draws_every_picture_and_prints_the_table(three, tmp_path, capsys):
    assert plot_results.main([*three, "--output-dir", str(tmp_path / "img")]) == 0
    pictures = sorted(path.name for path in (tmp_path / "img").iterdir())
    assert pictures == ["benchmark_result.png", "chatlearn_data_flow.png", "chatlearn_with_raycg.png", "simulation.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "img").iterdir())
    lines = capsys.readouterr().out.splitlines()
    names = [line.split("  ")[0] for line in lines[:4]]
    assert names == ["transport", "store driver-queue", "graph nccl", "graph zero-copy"]  # as the ladder has them
    assert lines[1].split()[-1] == "1x"
    assert lines[3].split()[-1] == "80x"
    assert "graph nccl: waived, no GPU" in lines


def test_the_readme_holds_the_same_numbers_between_its_markers(three, tmp_path):
    readme = tmp_path / "README.md"
    start, end = readme_text.markers("results")
    advice_start, advice_end = readme_text.markers("advice")
    readme.write_text(f"above\n{start}\n| outdated |\n{end}\nbelow\n{advice_start}\n| old |\n{advice_end}\nend\n")
    assert plot_results.main([*three, "--output-dir", str(tmp_path), "--readme", str(readme)]) == 0
    text = readme.read_text()
    fastest = (
        "Where readers end with bytes of their own, `store driver-queue` is the fastest: 2,000 ms a trip, 100.00 times "
        "the ceiling. Where they map another's memory, `graph zero-copy` is the fastest: 25 ms a trip; "
        "`store driver-queue` takes 80 times as long"
    )
    assert text.startswith(f"above\n{start}\n{fastest} (95 % interval ") and "\n| transport |" in text
    assert f"{end}\nbelow\n{advice_start}\n" in text
    assert text.endswith(f"\n{advice_end}\nend\n")
    assert "outdated" not in text and "| old |" not in text
    # 448 MiB in 25 ms are not said as a rate: nobody moved them. 448 MiB in 2 s are 0.235 GB/s.
    assert "| graph zero-copy | 448 | 0 | 5,000 | 20 | 25 | 29.5 | 30 | mapped | - | 0 | 0.0 | 80x |" in text
    queue = "| store driver-queue | 448 | 0 | 5,000 | 2,000 | 2,000 | 2,180 | 2,200 | 0.235 | 1.0% | 0 | 0.0 | 1x |"
    assert queue in text
    assert "graph nccl: waived, no GPU." in text
    # 1 ms of the harness over the warm-up trip and three timed ones of 25 ms.
    assert "inside the clock, all processes together: at most " in text
    assert "1.00% of a trip where they are mapped (graph zero-copy)." in text


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
    assert "is of a flow that is unknown here" in refusal(
        capsys, write("unknown", unknown), "--output-dir", str(tmp_path)
    )


def test_a_transport_without_a_rung_is_drawn_last(write, tmp_path, capsys):
    """Records may be newer than this version: they have a bar, and no cause."""
    paths = [write("carrier", a_record("carrier-pigeon", [1.0])), write("graph", a_record("mapped", [1.0], "graph"))]
    assert plot_results.main([*paths, "--output-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:3]] == ["graph mapped", "store carrier-pigeon"]
    assert chart.causes({"store carrier-pigeon": [1.0], "graph mapped": [1.0]}) == {}


SLOW, FAST = [2.0, 2.1, 1.9, 2.0, 2.0], [1.0, 1.05, 0.95, 1.0, 1.0]
ABOVE, CAUSE = chart.LADDER["graph shm"]


@pytest.mark.parametrize(
    ("above", "below", "said"),
    [
        (SLOW, FAST, "2× faster than"),
        (FAST, SLOW, "2× slower than"),
        (FAST, FAST, "no clear difference from"),
        ([1.0, 2.0, 3.0], [1.1, 1.9, 2.9], "no clear difference from"),
    ],
    ids=["faster", "slower", "the same", "within the noise"],
)
def test_a_rung_says_how_it_compares_with_the_one_above_and_why(above, below, said):
    assert chart.causes({ABOVE: above, "graph shm": below}) == {"graph shm": f"{said} {ABOVE}: {CAUSE}"}


def test_one_trip_each_bears_out_no_difference():
    assert statistics.change([2.0], [1.0]) == "no clear difference from"
    assert statistics.change([2.0] * 5, [1.0]) == "no clear difference from"


def test_a_rung_says_nothing_of_one_that_was_not_measured():
    others = {name: FAST for name in chart.LADDER if name not in (ABOVE, "graph shm")}
    assert "graph shm" not in chart.causes(others | {"graph shm": SLOW})


def test_every_rung_of_a_full_ladder_has_its_cause():
    compared = {name for name, (above, _) in chart.LADDER.items() if above}
    assert set(chart.causes(dict.fromkeys(chart.LADDER, FAST))) == compared


def test_rungs_are_compared_with_rungs_that_stand_above_them():
    order = list(chart.LADDER)
    for name, (above, cause) in chart.LADDER.items():
        assert bool(above) == bool(cause), name
        assert not above or order.index(above) < order.index(name), name
    assert chart.BASELINE in order


BYTES = "bytes"  # of which there is nothing to map
# What each script offers that is a row of its own. A script that is new is named here.
OFFERED = {
    "store": [
        *store_script.TRANSPORTS,
        *(f"{name} --zero-copy" for name in store_script.TRANSPORTS if name != "bytes"),
    ],
    "graph": list(graph_script.TRANSPORTS),
    "rdt": list(rdt_script.TRANSPORTS),
    "torch": list(torch_script.TRANSPORTS),
}
MAPPED = [("graph", graph_script), ("rdt", rdt_script), ("torch", torch_script)]


def test_every_transport_has_a_rung():
    offered = {f"{runtime} {name}" for runtime, names in OFFERED.items() for name in names}
    copied_out = {
        f"{runtime} {name} --copy-out"
        for runtime, script in MAPPED
        for name, kind in script.TRANSPORTS.items()
        if kind == "mapped" and name != "cuda-ipc"  # of whose copies nobody asked
    }
    assert (offered | copied_out) - set(chart.LADDER) == set()


def test_every_rung_of_a_script_is_one_that_it_offers():
    for name in chart.LADDER:
        runtime, transport, *flags = name.partition(" --episode ")[0].split(" ")
        assert runtime in records.RUNTIMES.values()
        assert {flag.removeprefix("--").replace("-", "_") for flag in flags} <= set(report.ROW_FLAGS)
        if runtime in OFFERED:
            assert transport in OFFERED[runtime], name


@pytest.mark.parametrize(
    ("runtime", "transport", "flags", "name"),
    [
        ("store", "refs", {}, "store refs"),
        ("store", "refs", {"zero_copy": True}, "store refs --zero-copy"),
        ("store", "refs", {"zero_copy": True, "copy_out": True}, "store refs --zero-copy --copy-out"),
        ("graph", "shm", {"huge_pages": True}, "graph shm --huge-pages"),
        ("graph", "mapped", {"copy_out": True, "zero_copy": False}, "graph mapped --copy-out"),
        ("torch", "gloo", {}, "torch gloo"),
        ("graph", "mapped", {"episode": 1}, "graph mapped"),
        ("graph", "mapped", {"episode": 2}, "graph mapped --episode 2"),
        ("graph", "mapped", {"episode": 10, "copy_out": True}, "graph mapped --copy-out --episode 10"),
    ],
)
def test_a_row_is_called_by_runtime_transport_and_the_flags_that_make_it_another(runtime, transport, flags, name):
    record = a_record(transport, [1.0], runtime, arguments=flags)
    assert report.label(record, record["cases"][0]) == name


def test_a_row_with_flags_that_are_no_rung_follows_the_one_without_them():
    names = ["graph mapped", "store refs --zero-copy --copy-out", "store refs", "graph pickle", "torch nothing"]
    order = sorted(names, key=chart.place)
    assert order == [
        "store refs", "store refs --zero-copy --copy-out", "graph pickle", "graph mapped", "torch nothing",
    ]  # fmt: skip


def test_two_runs_of_one_transport_with_and_without_copy_out_are_two_rows(write, tmp_path):
    mapped = write("mapped", a_record("mapped", [1.0, 1.1], "graph", payload_copied=False))
    copied = write("copied", a_record("mapped", [1.5, 1.6], "graph", arguments={"copy_out": True}))
    assert plot_results.main([mapped, copied, "--output-dir", str(tmp_path)]) == 0


def test_a_record_of_the_first_schema_is_drawn(write, tmp_path):
    """It knows no flag that came later."""
    old = write("old", a_record("refs", [1.0, 1.1]) | {"schema_version": 1})
    new = write("new", a_record("shm", [0.5, 0.6], "graph", arguments={"copy_out": False, "trace": False}))
    assert plot_results.main([old, new, "--output-dir", str(tmp_path)]) == 0


def test_a_microbenchmark_has_a_table_of_its_own(write, three, tmp_path, capsys):
    """It moves other bytes than the ladder, and is no rung of it."""
    paths = [
        write("chain-refs", a_chain("refs", [0.003, 0.003], "store")),
        write("chain-mapped", a_chain("mapped", [0.0003, 0.0003], "graph")),
    ]
    start, end = readme_text.markers("microbenchmarks")
    ladder_start, ladder_end = readme_text.markers("results")
    readme = tmp_path / "README.md"
    advice = "\n".join(readme_text.markers("advice"))
    readme.write_text(f"{advice}\n{ladder_start}\n{ladder_end}\n{start}\n| outdated |\n{end}\nbelow\n")
    assert plot_results.main([*paths, *three, "--output-dir", str(tmp_path), "--readme", str(readme)]) == 0
    ladder, hops = readme.read_text().split(start)
    assert "outdated" not in hops
    assert "chain-2" not in ladder
    # Three messages follow one another, so a hop is a third of the trip.
    assert "**chain-2**" in hops
    assert "| store refs | 13 | 2 | 3,000 | 1,000 | - |" in hops
    assert "| graph mapped | 13 | 2 | 300 | 100 | 10x (10 to 10) |" in hops
    assert "store driver-queue" not in hops


def test_the_advice_says_what_was_measured_here_and_what_was_not(tmp_path):
    records_of = {
        "graph zero-copy": a_record("zero-copy", [0.02, 0.025, 0.03], "graph"),
        "graph nccl": a_record("nccl", [], "graph", status="waived", reason="no GPU", payload_copied=None),
    }
    text = readme_text.advice_markdown([(record, record["cases"][0]) for record in records_of.values()])
    last = {line.split("`")[1]: line.split("|")[-2].strip() for line in text.splitlines()[2:]}
    assert list(last) == list(ADVICE)
    said = {"graph zero-copy": "25 ms, p95 29.5", "graph nccl": "waived"}
    assert last == {name: said.get(name, "not run") for name in ADVICE}
    assert len({line.count("|") for line in text.splitlines()}) == 1


def test_every_piece_of_advice_is_about_a_rung():
    assert set(ADVICE) <= set(chart.LADDER)


def test_a_microbenchmark_alone_leaves_the_pictures_of_the_ladder_alone(write, tmp_path, capsys):
    path = write("chain", a_chain("shm", [0.001, 0.0011], "graph"))
    assert plot_results.main([path, "--output-dir", str(tmp_path / "img")]) == 0
    assert "graph shm" in capsys.readouterr().out
    assert list((tmp_path / "img").iterdir()) == []


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
    assert report.row(spilled, spilled["cases"][0])[0] == "store refs (spilled)"
    unstable = a_record("refs", [1.0, 3.0])["cases"][0]
    assert "unstable" in report.warnings(unstable)[0]
