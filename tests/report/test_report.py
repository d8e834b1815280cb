# SPDX-License-Identifier: Apache-2.0
"""The verb report as its user calls it: records in; tables, charts and pages out."""

import errno
import os
import re
import shutil
from pathlib import Path

import pytest
from made_records import make_record, make_run, write_record

from dataflow.commands import report
from dataflow.errors import RecordError
from dataflow.records import files

BROWSER = shutil.which("chromedriver")
SKIPPED = make_run([], status="skipped", reason="no GPU", first_seconds=None, processes={})


@pytest.fixture
def write(tmp_path):
    return lambda name, *arguments, **changes: write_record(
        tmp_path / name, make_record(*arguments, **changes)
    )


def test_without_arguments_it_draws_the_newest_records_and_says_which(
    write, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    for folder in ("published", "run-1"):
        write(f"{folder}/00.json", "refs", [1.0])
        write(f"{folder}/01.json", "bytes", [1.0])
        assert report.main([]) == 0
        assert f"records: {tmp_path / folder}\n" in capsys.readouterr().out
    assert (tmp_path / "run-1" / "configurations.svg").exists()


def test_a_profile_is_not_taken_for_the_newest_records(write, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    for name in ("00.json", "01.json"):
        write(f"run-1/{name}", "refs" if name == "00.json" else "bytes", [1.0])
    for name in ("run-profile-20261126T203046/profile.json", "profile.json"):
        later = tmp_path / name
        later.parent.mkdir(exist_ok=True)
        later.write_text('{"steps": 20}')
        os.utime(later, (2**31, 2**31))
    assert report.main([]) == 0
    assert f"records: {tmp_path / 'run-1'}\n" in capsys.readouterr().out


def test_machines_or_boots_in_one_table_are_rejected_and_published_boots_counted(
    write, tmp_path, monkeypatch, capsys
):
    def record(name, boot, transport="refs", **changes):
        environment = {"boot": boot, "kernel": f"6.{boot}"}
        return write(name, transport, [1.0], environment=environment, **changes)

    monkeypatch.setattr(report, "RESULTS", tmp_path)
    (tmp_path / "published").mkdir()
    other = {"python": "3.12"}  # where one was skipped, so it was measured nowhere
    records = [record("published/a.json", 1), record("published/b.json", 2, "bytes"),
               record("published/c.json", 2, table="chatlearn-flat"),
               write("published/d.json", "nccl", SKIPPED, runtime="graph", environment=other)]  # fmt: skip
    with pytest.raises(RecordError, match=r"different machines or versions, python: 3\.11 → 3\.12"):
        report.main(
            [records[0], records[-1], write("other.json", "numpy", [1.0], environment=other)]
        )
    assert report.main(records) == 0
    text = capsys.readouterr().out
    assert (text.count("kernel 6.1"), text.count("kernel 6.2")) == (
        1,
        1,
    )  # the last table that has a note shows it
    assert re.findall("^Boots: .", text, re.MULTILINE) == ["Boots: 2", "Boots: 1"]
    (tmp_path / "published").rename(tmp_path / "own")
    with pytest.raises(
        RecordError, match="of the table configurations are of different boots or kernels, kernel: "
    ):
        report.main([str(tmp_path / "own")])
    assert report.main([str(tmp_path / "own"), "--mixed"]) == 0


def test_an_impossible_result_gives_exit_code_1(write, capsys):
    assert report.main([write("a.json", "refs", *([0.005] for _ in range(3)))]) == 1
    assert "impossible" in capsys.readouterr().out


@pytest.mark.study("chatlearn")  # the records of the agreement have its transport
def test_a_published_chart_is_one_that_a_page_shows(write, tmp_path):
    records = [write("a.json", "refs", [1.0]), write("b.json", "bytes", [1.0])]
    records += [
        write("c.json", "refs", [1.0], batch_size=8),
        write("d.json", "bytes", [1.0], batch_size=8),
    ]
    (tmp_path / "README.md").write_text("![times](img/configurations_2.svg) configurations.svg\n")
    assert report.main([*records, "--publish", str(tmp_path)]) == 0
    assert [path.name for path in (tmp_path / "img").iterdir()] == ["configurations_2.svg"]


def marks(name, body):
    return f"<!-- {name}: written by make publish -->{body}<!-- end of {name} -->"


@pytest.mark.study("chatlearn")  # the records of the agreement have its transport
def test_pages_have_the_sections_between_their_marks_and_keep_the_rest(write, tmp_path):
    readme, copies = tmp_path / "README.md", write("a.json", "bytes", [0.5], runtime="graph")
    in_flight = marks("in-flight", "\nold\n")  # there are no such records
    readme.write_text(f"before\n{marks('results', 'old')}\n{in_flight}\nafter")
    assert (
        report.main([write("b.json", "driver-queue", [1.0]), copies, "--publish", str(tmp_path)])
        == 0
    )
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith(f"\n{in_flight}\nafter")
    assert "Lowest time: `graph bytes`, 500 ms" in text
    readme.write_text("<!-- end of results -->")
    with pytest.raises(RecordError, match="write each of these marks once"):
        report.main([copies, "--publish", str(tmp_path)])


@pytest.mark.study
@pytest.mark.busy
@pytest.mark.slow
def test_every_generated_part_of_the_pages_and_every_chart_equals_what_the_records_give(tmp_path):
    pages = [report.ROOT / "README.md", *sorted((report.ROOT / "docs").rglob("*.md"))]
    (tmp_path / "docs" / "studies").mkdir(parents=True)
    for page in pages:
        (tmp_path / page.relative_to(report.ROOT)).write_text(page.read_text())
    published = str(report.ROOT / "results" / "published")
    assert report.main([published, "--publish", str(tmp_path)]) == 0
    for page in pages:
        assert (tmp_path / page.relative_to(report.ROOT)).read_text() == page.read_text(), page.name
    drawn, published = (
        {path.name: path.read_text() for path in folder.iterdir()}
        for folder in (tmp_path / "img", report.ROOT / "img")
    )
    del published["benchmark_result.svg"]  # of the script plot_results.py
    assert drawn.keys() == published.keys()
    assert [name for name, text in drawn.items() if text != published[name]] == []


def test_report_html_is_one_file_and_nothing_of_a_record_is_markup(write, tmp_path):
    failed = make_run([], status="failed", reason="<img src=x>", processes={})
    records = [write("a.json", "refs", [1.0], failed), write("b.json", "refs", [1.0], batch_size=8)]
    records += [write("c.json", "bytes", [1.0]), write("d.json", "bytes", [1.0], batch_size=8)]
    assert report.main([*records, "--html"]) == 0
    page = (tmp_path / "report.html").read_text()
    assert {"configurations.svg", "configurations_2.svg"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert page.count("<table>") == 2 and "<svg" in page and "Test CPU" in page
    assert (
        "&lt;img src=x&gt;" in page
        and "<img" not in page
        and "src=" not in page.replace("src=x", "")
    )


@pytest.mark.optional
@pytest.mark.skipif(
    BROWSER is None, reason="no chromedriver: apt-get install chromium-driver, as .ci/run does"
)
def test_report_html_is_sorted_and_filtered_in_a_browser(write, tmp_path):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By

    records = [write("a.json", "driver-queue", [2.0]), write("b.json", "shm", [0.08], runtime="graph"),
               write("c.json", "refs", [0.7]), write("d.json", "nccl", SKIPPED, runtime="graph")]  # fmt: skip
    assert report.main([*records, "--html"]) == 0
    options = webdriver.ChromeOptions()
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--window-size=1400,1000",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(BROWSER))
    try:
        browser.get((tmp_path / "report.html").as_uri())
        (table,) = [
            table
            for table in browser.find_elements(By.TAG_NAME, "table")
            if "ms per iteration" in table.text
        ]
        headers = [
            head.get_property("textContent") for head in table.find_elements(By.TAG_NAME, "th")
        ]
        column = headers.index("ms per iteration")

        def medians():
            rows = [
                row
                for row in table.find_elements(By.CSS_SELECTOR, "tbody tr")
                if row.is_displayed()
            ]
            return [
                row.find_elements(By.TAG_NAME, "td")[column].get_property("textContent")
                for row in rows
            ]

        for order in (["80", "700", "2,000", "-"], ["2,000", "700", "80", "-"]):
            browser.execute_script(
                "arguments[0].click()", table.find_elements(By.TAG_NAME, "th")[column]
            )
            assert medians() == order
        table.find_element(By.XPATH, "./ancestor::section//input").send_keys("STORE refs")
        assert medians() == ["700"]
        assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
        assert browser.get_log("browser") == []
    finally:
        browser.quit()


def test_a_full_disk_is_named_with_the_folder(tmp_path, monkeypatch):
    files.create(tmp_path / "record.json", make_record("refs", [1.0]))

    def write_nothing(*_, **__):
        raise OSError(
            errno.ENOSPC, os.strerror(errno.ENOSPC)
        )  # as when the kernel writes a file that is open

    monkeypatch.setattr(Path, "write_text", write_nothing)
    with pytest.raises(
        RecordError, match=r"cannot write .*/out \(No space left on device\): give another --output"
    ):
        report.main([str(tmp_path / "record.json"), "--html", "--output", str(tmp_path / "out")])
