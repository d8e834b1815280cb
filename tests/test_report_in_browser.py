"""report.html in a real browser, with real clicks: drawn, sorted, filtered, pointed at, without network or errors."""

import shutil
from pathlib import Path

import pytest
from made_records import a_chain, a_record, a_run, written
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

import plot_results
from common.analysis.results import results_of
from common.record import files

DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(DRIVER is None, reason="no browser: apt-get install chromium-driver, as .ci/run does")

SPANS = [("driver", 0, "wait", "in one process", 0, 0.0, 1e6)]
EPISODES = {"rows": 4, "prompt_len": 8, "response_len": 8, "message": "packed", "flags": {"episode": 8, "in_flight": 8}}
EVIL = "<img src=x onerror=console.error('markup')>"
FAILED = a_run([1.5, 1.6], status="failed", reason=f"reward died {EVIL}")
WAIVED = a_run([], status="waived", reason="no GPU", first_seconds=None, payload_copied=None, processes={})
RECORDS = (
    a_record("driver-queue", [2.0, 2.0, 2.2], [2.1, 2.3]),
    a_record("ref-queue", [0.7]),
    a_record("bytes", FAILED, environment={"kernel": EVIL}),
    a_record("zero-copy", a_run([0.02, 0.025, 0.03], payload_copied=False), runtime="graph"),
    a_record("nccl", WAIVED, runtime="graph"),
    a_record("refs", [0.1, 0.11], batch_size=8),
    a_record("refs", a_run([1.0], spans=SPANS, trips_us=[(0.0, 1e6)])),
    a_record("shm", a_run([0.08] * 8, episode_seconds=[0.08]), runtime="graph", **EPISODES),
    a_chain("mapped", [0.0003 + 1e-6 * index for index in range(500)], "graph"),
)
OLD = [Path(__file__).parent / "record" / f"schema_{version}.json" for version in (1, 2)]


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    for flag in ("--headless", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1400,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    for index, record in enumerate(RECORDS):
        written(folder / f"{index}.json", record)
    for path in OLD:
        shutil.copy(path, folder)
    assert plot_results.main([str(folder), "--html", "--mixed"]) == 0
    return folder


@pytest.fixture
def page(browser, folder):
    """The report, opened anew; whatever a test does, nothing may be written to the console."""
    browser.get((folder / "report.html").as_uri())
    yield browser
    assert browser.get_log("browser") == []


CELLS = """
const heads = [...document.querySelectorAll("#rows th")].map((head) => head.textContent);
const rows = [...document.querySelectorAll("#rows tbody tr")].filter((row) => row.checkVisibility());
return rows.map((row) => row.cells[heads.indexOf(arguments[0])].textContent);
"""


def texts(page, column):
    """The visible cells of a column, by its header."""
    return page.execute_script(CELLS, column)


def retype(field, keys):
    """In place of what stands in the field."""
    field.send_keys(Keys.CONTROL + "a")  # a call of its own: the key is held until its end
    field.send_keys(keys)


def click_header(page, header):
    heads = page.find_elements(By.CSS_SELECTOR, "#rows th button")
    (button,) = [head for head in heads if head.get_property("textContent") == header]
    page.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", button)
    button.click()


def test_every_row_of_the_records_is_there_and_every_chart_is_drawn(page, folder):
    records = [files.load(path) for path in folder.glob("*.json")]
    assert len(texts(page, "transport")) == len(results_of(records)) >= len(RECORDS)
    charts = page.find_elements(By.CSS_SELECTOR, ".plotly-graph-div")
    kinds = {chart.get_attribute("id").partition("-")[0] for chart in charts}
    assert kinds == {"times", "stages", "sweep"}
    for chart in charts:
        assert chart.find_elements(By.CSS_SELECTOR, ".main-svg .trace, .main-svg .points"), chart.get_attribute("id")
    sections = [section.get_attribute("id") for section in page.find_elements(By.TAG_NAME, "section")]
    assert sections == ["rows", "times", "stages", "episodes", "sweeps", "advice", "environment"]


def test_nothing_is_loaded_from_elsewhere_and_nothing_of_a_record_is_markup(page):
    assert page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []
    assert page.find_elements(By.CSS_SELECTOR, "img") == []
    assert f"failed, reward died {EVIL}" in texts(page, "why")


def test_a_click_on_a_header_sorts_and_another_one_turns_it_round(page):
    def number(cell):
        return float(cell.replace(",", ""))

    before = texts(page, "median ms")
    numbers = sorted((cell for cell in before if cell != "-"), key=number)
    missing = ["-"] * before.count("-")
    assert missing and before != numbers + missing
    click_header(page, "median ms")
    assert list(map(number, texts(page, "median ms")[: len(numbers)])) == list(map(number, numbers))
    assert texts(page, "median ms")[len(numbers) :] == missing
    click_header(page, "median ms")
    assert list(map(number, texts(page, "median ms")[: len(numbers)])) == list(map(number, numbers[::-1]))
    assert texts(page, "median ms")[len(numbers) :] == missing
    click_header(page, "payload")
    sizes = texts(page, "payload")
    assert sizes[0] == "39 B" and sizes[-1] == "448 MiB"  # by bytes, not by letters
    click_header(page, "transport")
    names = texts(page, "transport")
    assert names == sorted(names) and len(names) == len(before)


def test_rows_that_lack_one_of_the_words_are_hidden_and_counted(page):
    count = len(texts(page, "transport"))
    field = page.find_element(By.CSS_SELECTOR, "#rows input")
    field.send_keys("REFS online")
    wanted = texts(page, "transport")
    assert 0 < len(wanted) < count and all("refs" in name for name in wanted)
    assert page.find_element(By.CSS_SELECTOR, "#rows output").text == f"{len(wanted)} of {count} rows"
    click_header(page, "median ms")  # sorted, they stay hidden
    assert sorted(texts(page, "transport")) == sorted(wanted)
    retype(field, "no such row")
    assert texts(page, "transport") == []
    assert page.find_element(By.CSS_SELECTOR, "#rows output").text == f"0 of {count} rows"
    retype(field, Keys.DELETE)
    assert len(texts(page, "transport")) == count


def test_the_switch_makes_the_axis_logarithmic_and_linear_again(page):
    switch = page.find_element(By.CSS_SELECTOR, "input[data-chart]")
    kind = f"return document.getElementById('{switch.get_attribute('data-chart')}')._fullLayout.xaxis.type"
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", switch)
    assert page.execute_script(kind) == "linear"
    switch.click()
    assert page.execute_script(kind) == "log"
    switch.click()
    assert page.execute_script(kind) == "linear"


def test_a_sample_and_a_bar_tell_what_they_are_when_pointed_at(page):
    chart = page.find_element(By.ID, "times-0")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)

    def told(element, right=0):
        ActionChains(page).move_to_element_with_offset(element, right, 0).perform()
        return " ".join(text.text for text in chart.find_elements(By.CSS_SELECTOR, ".hoverlayer text"))

    points = chart.find_elements(By.CSS_SELECTOR, ".boxlayer path.point")
    assert len(points) == 3 + 2 + 1 + 2 + 3 + 20 + 30  # of driver-queue's two runs, of the others, of the old schemas
    assert "store driver-queue, run 1, trip 3: 2,200 ms" in told(points[2])
    bar = chart.find_element(By.CSS_SELECTOR, ".barlayer .point path")
    assert "median ms: 2,100" in told(bar, -bar.rect["width"] // 4)


@pytest.mark.parametrize("width", [1400, 800])
def test_the_page_is_as_wide_as_its_window(page, width):
    page.set_window_size(width, 1000)
    fits = "return document.documentElement.scrollWidth <= window.innerWidth && window.innerWidth <= arguments[0]"
    WebDriverWait(page, 10).until(lambda page: page.execute_script(fits, width))  # charts follow a moment later
    page.set_window_size(1400, 1000)
