# SPDX-License-Identifier: Apache-2.0
"""The page of a profile: one file, without a network, in which nothing of the program is markup."""

import re
import shutil
from html.parser import HTMLParser

import pytest
from made_programs import make_finding, make_loop_profile, make_random_profile
from raymeter.profile.events import Store
from raymeter.profile.steps import Steps
from raymeter.report import html
from raymeter.report.chart import Chart, draw
from raymeter.report.critical import Link
from raymeter.report.html_steps import choose_steps
from raymeter.report.step_charts import describe_link
from raymeter.report.timeline import Span

BROWSER = shutil.which("chromedriver")
VOID = {"meta", "input", "br", "path"}
ATTACK = "<script>alert('x')</script>"


class Page(HTMLParser):
    """Collect the tags, attributes and texts of a page, and check that each tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID or tag == "path":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def with_class(self, name: str) -> list[dict]:
        return [
            attributes
            for _, attributes in self.tags
            if name in (attributes.get("class") or "").split()
        ]


def test_the_page_is_one_file_without_a_network():
    text = html.render(make_loop_profile(make_finding()))
    page = Page(text)
    assert page.open == []
    assert not re.search(r"https?://|url\(|@import", text)
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object")
        assert not {"src", "href"} & attributes.keys()


def test_each_process_has_a_lane_in_both_charts_of_each_step():
    page = Page(html.render(make_loop_profile(make_finding())))
    lanes = [attributes["title"] for attributes in page.with_class("name")]
    assert lanes == ["driver", "Trainer"] * 6  # of three steps
    assert len(page.with_class("panel")) == 3


def test_messages_are_arrows_and_the_critical_path_is_marked():
    page = Page(html.render(make_loop_profile(make_finding())))
    assert len(page.with_class("message")) == 6  # a curve and its head, in three steps
    critical = [
        attributes["title"]
        for attributes in page.with_class("work")
        if "critical" in attributes["class"]
    ]
    assert any("sends Trainer.train" in title for title in critical)
    assert any("runs Trainer.train" in title for title in critical)


def test_nothing_of_the_program_is_markup():
    finding = make_finding(
        title=ATTACK, change=ATTACK, cause=ATTACK, price=ATTACK, line=f"{ATTACK}.py:1"
    )
    profile = make_loop_profile(finding, names=(f"{ATTACK}.train", ATTACK))
    profile.program.recording.folder = profile.program.recording.folder / ATTACK
    page = Page(html.render(profile))
    scripts = [tag for tag, _ in page.tags if tag == "script"]
    assert len(scripts) == 1  # its own
    assert any(ATTACK in text for text in page.texts)


def test_the_page_has_the_same_answer_as_the_terminal():
    assert "not your problem" in html.render(make_loop_profile(send=0.002))
    text = html.render(make_loop_profile(make_finding()))
    assert "not your problem" not in text and "The largest cause: the same content" in text


def test_the_advice_opens_to_a_program_before_and_after_the_change():
    page = Page(html.render(make_loop_profile(make_finding())))
    assert "details" in [tag for tag, _ in page.tags]
    assert any("weights_ref = ray.put(weights)" in text for text in page.texts)
    assert "docs/profile.md" not in " ".join(page.texts)


def test_the_memory_is_shown_if_it_was_recorded():
    profile = make_loop_profile()
    assert "object store" not in html.render(profile)
    profile.program.recording.stores = [
        Store(time=float(time), used=time * 2**20, capacity=2**30, spilled=0) for time in range(4)
    ]
    text = html.render(profile)
    assert "At most 3 MiB of 1 GiB were used (area); nothing was spilled to disk." in text
    assert Page(text).with_class("spilled") == []


def test_a_store_that_stays_empty_is_not_drawn():
    profile = make_loop_profile()
    profile.program.recording.stores = [
        Store(time=float(time), used=0, capacity=2**30, spilled=0) for time in range(4)
    ]
    assert "Memory of the object store" not in html.render(profile)


def test_a_store_that_has_more_than_it_holds_is_explained():
    profile = make_loop_profile()
    profile.program.recording.stores = [
        Store(time=float(time), used=time * 2**30, capacity=2**30, spilled=time * 2**20)
        for time in range(4)
    ]
    text = html.render(profile)
    assert "At most 3 GiB of 1 GiB were used (area), because objects that do not fit are in" in text
    assert "files; 3 MiB were spilled to disk (line)." in text
    assert len(Page(text).with_class("spilled")) == 1


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_the_typical_step_is_in_the_middle_of_all_and_no_start(count):
    # The steps become shorter: of six, the third and the fourth are in the middle.
    ends = [start + 1.0 - start / 10 for start in range(count)]
    times = [(float(start), end) for start, end in zip(range(count), ends, strict=True)]
    (_, number), *_ = choose_steps(Steps("made", times))
    assert number == count // 2


@pytest.mark.parametrize(
    ("name", "text"), [("ray.put", "ray.put"), ("Trainer.train", "sends Trainer.train")]
)
def test_a_call_on_the_critical_path_is_called_as_its_author_knows_it(name, text):
    span = Span("node-1", 1, "call", name, 0.0, 1.0)
    assert describe_link(Link("node-1", "call", 0.0, 1.0, span)) == text


def test_a_time_at_the_end_of_a_chart_has_no_text_that_would_be_cut():
    text = draw(Chart("made", 0.0, 0.304, []))
    assert ">250 ms<" in text
    assert ">300 ms<" not in text


@pytest.mark.parametrize("seed", range(12))
def test_the_page_of_any_program_can_be_read(seed):
    text = html.render(make_random_profile(seed))
    assert Page(text).open == []
    assert len(text) < 5_000_000


@pytest.mark.optional
@pytest.mark.skipif(BROWSER is None, reason="no chromedriver: apt-get install chromium-driver")
@pytest.mark.parametrize("width", [1280, 800])
def test_a_browser_shows_the_chosen_step(tmp_path, width):
    webdriver = pytest.importorskip("selenium.webdriver")
    path = tmp_path / "profile.html"
    html.write(make_loop_profile(make_finding()), path)
    options = webdriver.ChromeOptions()
    for flag in ("--headless", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.chrome.service.Service(BROWSER)
    browser = webdriver.Chrome(options=options, service=service)
    try:
        browser.set_window_size(width, 1000)
        browser.get(path.as_uri())
        panels = browser.find_elements("css selector", ".panel")
        assert [panel.is_displayed() for panel in panels] == [True, False, False]
        browser.find_element("css selector", "label[for=step-1]").click()
        assert [panel.is_displayed() for panel in panels] == [False, True, False]
        critical = panels[1].find_elements("css selector", ".bar.critical")
        assert any(bar.is_displayed() and bar.size["width"] > 50 for bar in critical)
        slider = panels[1].find_element("css selector", "input[type=range]")
        canvas = panels[1].find_element("css selector", ".canvas")
        before = canvas.size["width"]
        slider.send_keys(webdriver.Keys.ARROW_RIGHT)
        assert canvas.size["width"] > before
        page_width = browser.execute_script("return document.documentElement.scrollWidth")
        assert page_width <= browser.execute_script("return window.innerWidth")
        assert browser.get_log("browser") == []
    finally:
        browser.quit()
