# SPDX-License-Identifier: Apache-2.0
"""The charts of memory on the page: the object store, and the private memory of the processes."""

import itertools
import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from made_programs import make_finding, make_loop_profile
from raymeter.advice import Profile
from raymeter.memory.processes import FILE, Sample
from raymeter.profile.events import Store
from raymeter.report import html
from raymeter.report.html_memory import MAX_PROCESSES, draw_memory
from raymeter.report.line_chart import HEIGHT, LABEL_PIXELS, Line, TimeAxis, draw_lines, spread

BROWSER = shutil.which("chromedriver")
MIB = 2**20
ATTACK = "<script>alert('x')</script>"
OTHERS = 3
LONG_NAME = "ray::RolloutWorkerOfASystem.generate_sequences"


def make_samples(names: list[str], seconds: int = 10) -> list[Sample]:
    """Return samples of some processes. The first one is the largest, and grows by 10 MiB per second."""
    samples = []
    for second, (number, name) in itertools.product(range(seconds), enumerate(names)):
        size = 300 + 10 * second if number == 0 else 200 - 20 * number
        process = "node-1" if number == 0 else f"node-{10 + number}"
        samples.append(Sample(float(second), 1 + number, name, 0, size * MIB, process))
    return samples


def many_samples() -> list[Sample]:
    names = ["python", LONG_NAME]
    names += [f"ray::Worker{number}" for number in range(MAX_PROCESSES + OTHERS - 2)]
    return make_samples(names)


def make_profile(samples: list[Sample], folder: Path, spilled: int = 40) -> Profile:
    """Return a profile in whose folder the samples are, beside those of a store."""
    text = "".join(f"{json.dumps(asdict(sample))}\n" for sample in samples)
    (folder / FILE).write_text(text)
    profile = make_loop_profile(make_finding())
    recording = profile.program.recording
    recording.folder = folder
    for second in range(2, 7):
        store = Store(float(second), used=30 * MIB, capacity=600 * MIB)
        store.spilled = 1000 * MIB + spilled * MIB * (second - 2)  # of a cluster that was joined
        recording.stores.append(store)
    return profile


def draw(samples: list[Sample]) -> str:
    return draw_memory(make_loop_profile().program.recording, samples)


def labels_of(text: str) -> list[tuple[str, str]]:
    return re.findall(r"<b>(.*?)</b><span>(.*?)</span>", text)


def test_each_large_process_has_a_line_with_its_name_and_its_last_value():
    labels = labels_of(draw(make_samples(["python", "ray::Trainer.train"])))
    assert labels == [("driver (1)", "390 MiB"), ("ray::Trainer.train (2)", "180 MiB")]


def test_the_small_processes_are_summed_up():
    labels = labels_of(draw(many_samples()))
    assert len(labels) == MAX_PROCESSES + 1
    smallest = sum(200 - 20 * number for number in range(MAX_PROCESSES, MAX_PROCESSES + OTHERS))
    assert labels[-1] == (f"{OTHERS} others together", f"{smallest} MiB")


def test_a_process_that_ends_early_says_when():
    samples = make_samples(["python", "ray::load"])
    early = [sample for sample in samples if sample.pid == 1 or sample.time < 5]
    text = draw(early)
    assert labels_of(text)[1] == ("ray::load (2)", "180 MiB (until 4 s)")
    assert text.count('class="dot"') == 1


def test_lines_go_from_left_to_right_and_larger_values_are_higher():
    text = draw(make_samples(["python"]))
    [path] = re.findall(r'class="line-0" d="M(.*?)"', text)
    points = [tuple(map(float, point.split())) for point in path.split("L")]
    lefts = [left for left, _ in points]
    tops = [top for _, top in points]
    assert (lefts[0], lefts[-1]) == (0, 1000)
    assert tops == sorted(tops, reverse=True) and tops[0] > tops[-1] > 0


def test_the_store_has_the_same_axis_of_time_as_the_processes(tmp_path):
    text = html.render(make_profile(many_samples(), tmp_path))
    assert text.index("Memory of the object store") < text.index("Private memory of the processes")
    ticks = re.findall(r'class="when" style="left:(.*?)%"><span>(.*?)</span>', text)
    half = len(ticks) // 2
    assert ticks[:half] == ticks[half:]
    assert ticks[0] == ("0.00", "0 s")
    # The store was sampled from 2 s to 6 s of 9 s.
    [used] = re.findall(r'class="used" d="M(.*?) ', text)
    assert float(used) == pytest.approx(1000 * 2 / 9, abs=0.1)


def test_what_a_joined_cluster_had_spilled_before_does_not_count(tmp_path):
    text = html.render(make_profile([], tmp_path))
    assert "160 MiB were spilled to disk (line)" in text
    assert labels_of(text) == [("in the store", "30 MiB"), ("spilled so far", "160 MiB")]


def test_samples_that_miss_a_full_store_do_not_contradict_what_was_spilled(tmp_path):
    missed = "The 5 samples show no full store."
    assert missed in html.render(make_profile([], tmp_path))
    assert missed not in html.render(make_profile([], tmp_path, spilled=0))


def test_without_two_samples_there_is_no_chart(tmp_path):
    assert draw([]) == ""
    assert draw(make_samples(["python"], seconds=1)) == ""
    assert "Private memory" not in html.render(make_profile([], tmp_path))


def test_a_name_is_no_markup():
    text = draw(make_samples(["python", ATTACK]))
    assert ATTACK not in text and "&lt;script&gt;" in text


@pytest.mark.parametrize(
    "heights",
    [[10.0, 10.0, 10.0], [HEIGHT, HEIGHT, 0.0], [230.0, 120.0, 125.0, 130.0, 0.0, 239.0]],
)
def test_texts_at_the_ends_of_lines_do_not_cover_each_other(heights):
    places = spread(heights)
    ordered = sorted(places)
    assert ordered[0] >= LABEL_PIXELS / 2 and ordered[-1] <= HEIGHT - LABEL_PIXELS / 2
    for above, below in itertools.pairwise(ordered):
        assert below - above >= LABEL_PIXELS
    for (height, place), (other, other_place) in itertools.combinations(
        zip(heights, places, strict=True), 2
    ):
        if height < other:
            assert place < other_place


def test_the_texts_of_a_chart_have_room():
    tops = re.findall(r'<div style="top:(\d+)px" title', draw(many_samples()))
    places = sorted(map(int, tops))
    assert len(places) == MAX_PROCESSES + 1
    for above, below in itertools.pairwise(places):
        assert below - above >= LABEL_PIXELS - 1  # rounded


def test_times_before_the_recording_are_negative():
    axis = TimeAxis(start=98.0, end=104.0, zero=100.0)
    text = draw_lines("made", axis, [Line("a", "line-0", [(98.0, 1), (104.0, 2)])])
    assert re.findall(r"<span>(\S+ s)</span></i>", text) == [
        f"{second} s" for second in range(-2, 5)
    ]


def test_times_are_as_short_as_their_axis_allows():
    assert TimeAxis(start=0.0, end=12.3, zero=0.0).say(6.873) == "6.9 s"
    assert TimeAxis(start=0.0, end=0.5, zero=0.0).say(0.25) == "0.25 s"


@pytest.mark.optional
@pytest.mark.skipif(BROWSER is None, reason="no chromedriver: apt-get install chromium-driver")
@pytest.mark.parametrize("width", [1280, 800])
def test_a_browser_shows_both_charts_with_all_texts(tmp_path, width):
    webdriver = pytest.importorskip("selenium.webdriver")
    path = tmp_path / "profile.html"
    html.write(make_profile(many_samples(), tmp_path), path)
    options = webdriver.ChromeOptions()
    for flag in ("--headless", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    service = webdriver.chrome.service.Service(BROWSER)
    browser = webdriver.Chrome(options=options, service=service)
    try:
        browser.set_window_size(width, 1000)
        browser.get(path.as_uri())
        store, processes = browser.find_elements("css selector", ".plot")
        assert store.rect["width"] == processes.rect["width"] > 0.5 * width
        assert store.rect["x"] == processes.rect["x"]
        labels = browser.find_elements("css selector", ".labels div")
        assert len(labels) == 2 + MAX_PROCESSES + 1
        for label in labels:
            assert label.is_displayed()
            assert label.rect["x"] >= store.rect["x"] + store.rect["width"]
            assert label.rect["x"] + label.rect["width"] <= width
        for above, below in itertools.combinations(labels[2:], 2):
            distance = abs(above.rect["y"] - below.rect["y"])
            assert distance >= min(above.rect["height"], below.rect["height"])
        line = browser.find_element("css selector", ".plot .line-0")
        assert line.rect["width"] == pytest.approx(store.rect["width"], abs=3)
        page_width = browser.execute_script("return document.documentElement.scrollWidth")
        assert page_width <= browser.execute_script("return window.innerWidth")
    finally:
        browser.quit()
