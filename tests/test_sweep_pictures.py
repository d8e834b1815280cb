"""What plot_results.py makes of sweeps: a picture for each thing that was swept, and the cost model."""

import itertools

import pytest
from made_records import a_record, a_run, a_sweep, written
from matplotlib.backends.backend_agg import FigureCanvasAgg

import plot_results
from common.analysis.results import results_of
from common.charts import sweep_chart
from common.cost.costs import costs_of

SIZES = [2**power for power in range(13, 30, 2)]
ROWS = [
    ("store", "refs", {}), ("store", "numpy", {}), ("graph", "shm", {}), ("graph", "shm", {"reuse_buffers": True}),
    ("graph", "zero-copy", {}), ("graph", "mapped", {}), ("graph", "mapped", {"copy_out": True}), ("rdt", "gloo", {}),
    ("torch", "gloo", {}), ("torch", "multiprocessing", {}), ("torch", "memcpy", {}),
]  # fmt: skip
MAPPED = [("store", "numpy"), ("graph", "zero-copy"), ("graph", "mapped"), ("torch", "multiprocessing")]


def seconds(index, count):
    """Some cost, with a knee for every third row."""
    return 1e-4 * (index + 1) + (index + 1) * 2e-10 * count + (index % 3 == 0) * 1e-9 * max(0, count - 2**25)


def of_bytes(index, row, sizes=SIZES):
    runtime, transport, flags = row
    copied = bool(flags) or (runtime, transport) not in MAPPED
    runs = {
        count: a_run([seconds(index, count)] * 3, payload_copied=copied, ceiling_before_seconds=[count * 1e-10 + 1e-6])
        for count in sizes
    }
    return a_sweep(transport, "payload", runs, runtime=runtime, flags=flags)


def of_fields(runtime, transport):
    return a_sweep(transport, "fields", {n: [1e-3 + n * 1e-4] for n in (1, 8, 64)}, runtime=runtime, payload=2**20)


def files(tmp_path, records):
    return [written(tmp_path / f"{index}.json", record) for index, record in enumerate(records)]


def test_each_thing_that_was_swept_has_a_picture_and_the_costs_a_line_a_transport(tmp_path, capsys):
    refused = a_run([], status="waived", reason="lower --payload")
    records = [of_bytes(index, row) for index, row in enumerate(ROWS)] + [of_fields("graph", "shm")]
    records.append(a_sweep("bytes", "payload", {2**20: [0.1], 2**22: [0.2], 2**24: [0.3], 2**30: refused}))
    assert plot_results.main(files(tmp_path, records)) == 0
    text = capsys.readouterr().out
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {"sweep_payload.png", "sweep_fields.png"}
    lines = [line.split("  ")[0] for line in text.splitlines()]
    assert lines.count("graph shm --reuse-buffers") == 1
    assert "store bytes, payload 1 GiB: waived, lower --payload" in text
    assert "graph shm --reuse-buffers bends at 32 MiB: of unknown cause." in text
    assert "graph shm, fitted up to 64 MiB: 128 MiB" in text


def test_sweeps_beside_other_records_leave_these_as_they_are(tmp_path, capsys):
    others = files(tmp_path, [a_record("refs", [0.5, 0.6]), a_record("driver-queue", [1.5, 1.6])])
    assert plot_results.main(others) == 0
    alone = capsys.readouterr().out
    (tmp_path / "more").mkdir()
    both = [*others, written(tmp_path / "more" / "sweep.json", of_bytes(1, ROWS[2]))]
    assert plot_results.main(both) == 0
    together = capsys.readouterr().out
    assert together.startswith(alone[: alone.index("pictures:")])
    assert plot_results.main([*both, "--format", "csv"]) == 0
    assert "transport,µs a message" in capsys.readouterr().out


def test_a_page_has_the_fits_of_the_sweeps_that_are_published(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    page = docs / "cost-model.md"
    page.write_text((plot_results.ROOT / "docs" / "cost-model.md").read_text())
    paths = files(tmp_path, [of_bytes(2, ROWS[2])])
    assert plot_results.main([*paths, "--pages", str(tmp_path), "--output-dir", str(tmp_path / "img")]) == 0
    assert "| graph shm | 60 (60 to 60) |" in page.read_text()
    assert "Not yet published" not in page.read_text()


@pytest.mark.parametrize("count", [1, 4, len(ROWS)])
def test_nothing_of_the_picture_lies_on_something_else(monkeypatch, tmp_path, count):
    figures = []
    save = sweep_chart.Figure.savefig
    monkeypatch.setattr(
        sweep_chart.Figure, "savefig", lambda figure, path: (figures.append(figure), save(figure, path))
    )
    results = results_of(of_bytes(index, row) for index, row in enumerate(ROWS[:count]))
    sweep_chart.draw(results, costs_of(results), tmp_path / "sweep.png")
    (figure,) = figures
    renderer = FigureCanvasAgg(figure).get_renderer()
    times, rates, legend = figure.axes
    words = [figure._suptitle, figure._supxlabel, legend.get_legend(), times, rates]
    extents = [word.get_tightbbox(renderer) for word in words]
    width, height = figure.canvas.get_width_height()
    assert all(e.x0 >= 0 and e.x1 <= width and e.y0 >= 0 and e.y1 <= height for e in extents)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(extents, 2))
    copied = [row for row in ROWS[:count] if row != ROWS[-1] and (row[2] or row[:2] not in MAPPED)]
    shown = [row for row in ROWS[:count] if row != ROWS[-1]]
    bent = [index for index, row in enumerate(ROWS[:count]) if index % 3 == 0 and row != ROWS[-1]]
    assert len(times.lines) == len(shown) + 1 + len(bent)  # the ceiling, and a ring for each knee
    assert len(rates.lines) == len(copied) + 1
