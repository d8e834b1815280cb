"""The pictures: of a flow, that nothing lies outside or on top of something else; those of the repository, current."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread

import plot_results
from common.charts import flow_picture
from common.flow.catalogue import build_flow

ROOT = Path(plot_results.__file__).parent


def gathering(count):
    return f"{', '.join(f'rollout-{index}' for index in range(count))} -> trainer: 12MB"


@pytest.mark.parametrize("text", [gathering(1), gathering(2), gathering(4), gathering(8), "ppo", "online-dpo"])
def test_boxes_arrows_and_words_of_a_flow_lie_inside_and_apart(monkeypatch, tmp_path, text):
    flow, figures = build_flow(text, {}), []
    save = flow_picture.Figure.savefig
    monkeypatch.setattr(
        flow_picture.Figure, "savefig", lambda figure, path: (figures.append(figure), save(figure, path))
    )
    labels = {str(edge): f"{index} MiB" for index, edge in enumerate(flow.edges)}
    flow_picture.draw(flow, tmp_path / "flow.png", "What is simulated", labels, "a note below")
    (figure,) = figures
    (axes,) = figure.axes
    area, renderer = axes.bbox, FigureCanvasAgg(figure).get_renderer()
    extents = [artist.get_window_extent(renderer) for artist in (*axes.patches, *axes.texts)]
    assert all(area.x0 <= e.x0 and e.x1 <= area.x1 and area.y0 <= e.y0 and e.y1 <= area.y1 for e in extents)
    boxes = [patch.get_window_extent(renderer) for patch in axes.patches if hasattr(patch, "get_boxstyle")]
    assert len(boxes) == len(flow.tasks) + 2
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    shown = {text.get_text(): text.get_window_extent(renderer) for text in axes.texts}
    words = [shown[label] for label in (*labels.values(), "What is simulated", "a note below")]
    assert not any(word.overlaps(box) for word in words for box in boxes)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(words, 2))


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A folder with what `make publish` would make of the repository."""
    folder = tmp_path_factory.mktemp("published")
    records = ROOT / "results" / "published"
    shutil.copy(ROOT / "README.md", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    evidence = ("--evidence", str(ROOT / "results" / "evidence"))
    where = ("--output-dir", str(folder / "img"), "--pages", str(folder))
    assert plot_results.main([str(records), *where, *evidence]) == 0
    return folder


def test_every_table_of_the_repository_is_that_of_the_published_records(published):
    for page in [published / "README.md", *(published / "docs").iterdir()]:
        assert page.read_text() == (ROOT / page.relative_to(published)).read_text(), page.name


def test_every_picture_of_the_repository_is_that_of_the_published_records(published):
    drawn = {path.name for path in (published / "img").iterdir()}
    assert drawn == {path.name for path in (ROOT / "img").iterdir()}
    for name in drawn:
        new, old = imread(published / "img" / name), imread(ROOT / "img" / name)
        assert np.array_equal(new, old), f"img/{name}: make publish"
