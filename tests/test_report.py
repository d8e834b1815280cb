"""The report's text: what of records stands in it, and what it never does. Its behaviour: test_report_in_browser.py."""

import html
import re

import msgspec
import pytest
from made_records import a_chain, a_record, a_run, a_sweep, written
from plotly.offline import get_plotlyjs

import plot_results
from common.analysis.results import results_of
from common.pages import markdown
from common.pages.html_page import sort_value, table
from common.pages.report import groups_of, report
from common.record.rows import ROWS
from common.text.tables import COLUMNS, Column

COLUMNS_AND_PEAK = len(COLUMNS) + 1  # before the speed-up


def waived(reason="no GPU"):
    return a_run([], status="waived", reason=reason, first_seconds=None, payload_copied=None, processes={})


LADDER = (
    a_record("driver-queue", [2.0, 2.0, 2.2]),
    a_record("zero-copy", a_run([0.02, 0.025, 0.03], payload_copied=False), runtime="graph"),
    a_record("nccl", waived(), runtime="graph"),
)


def sections(page):
    """heading -> the HTML below it."""
    return dict(re.findall(r"<section [^>]*><h2>(.*?)</h2>(.*?)</section>", page, re.DOTALL))


def lines(text):
    """The cells of each line of the first table."""
    body = text.split("<tbody>")[1].split("</tbody>")[0]
    return [[html.unescape(re.sub("<.*?>", "", cell)) for cell in re.findall(r"<td.*?</td>", line, re.DOTALL)]
            for line in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)]  # fmt: skip


def test_a_row_has_the_cells_of_the_printed_table():
    (group,) = groups_of(LADDER)
    columns = markdown.ladder_columns(group)
    found = lines(sections(report(LADDER))["Rows"])
    assert [line[: len(columns)] for line in found] == [[c.cell(result) for c in columns] for result in group]
    assert [line[-3:] for line in found] == [
        ["3", "online-dpo", ""], ["0", "online-dpo", "waived, no GPU"], ["3", "online-dpo", ""],
    ]  # fmt: skip


def test_rows_of_unlike_flows_and_sizes_stand_in_one_table_and_compare_with_their_like():
    small = a_record("driver-queue", [0.2, 0.2], batch_size=8)
    chains = a_chain("refs", [0.003, 0.003], "store"), a_chain("mapped", [0.0003, 0.0003], "graph")
    page = report([*chains, small, *LADDER])
    found = {(line[0], line[1]): line[COLUMNS_AND_PEAK] for line in lines(sections(page)["Rows"])}
    assert found == {
        ("store driver-queue", "448 MiB"): "1x", ("graph nccl", "448 MiB"): "-", ("graph zero-copy", "448 MiB"): "80x",
        ("store driver-queue", "3.5 MiB"): "1x", ("store refs", "39 B"): "-", ("graph mapped", "39 B"): "-",
    }  # fmt: skip
    headings = re.findall(r"<h3>(.*?)</h3>", sections(page)["Times"])
    assert headings == ["online-dpo, 448 MiB a trip", "online-dpo, 3.5 MiB a trip", "chain-2, 39 B a trip"]


def test_only_the_sections_that_records_have_something_for():
    assert list(sections(report(LADDER))) == ["Rows", "Times", "Advice", "Environment"]
    assert list(sections(report(LADDER[2:]))) == ["Rows", "Advice", "Environment"]
    several = [a_record("refs", [size * 0.1] * 2, batch_size=size) for size in (8, 16)]
    assert "Sweeps" in sections(report(several)) and "Sweeps" not in sections(report(several[:1]))


def test_a_sweep_has_a_chart_for_what_was_swept_and_none_a_point():
    ceiling = {"ceiling_before_seconds": [0.05]}
    fields = a_sweep("refs", "fields", {count: a_run([count * 0.1] * 3, **ceiling) for count in (1, 8)}, payload=2**20)
    depths = a_sweep("bytes", "in_flight", {count: a_run([0.2] * 4, episode_seconds=[0.8 / count]) for count in (1, 4)},
                     flags={"episode": 4})  # fmt: skip
    found = sections(report([fields, depths]))
    headings = re.findall(r"<h3>(.*?)</h3>", found["Sweeps"])
    assert headings == ["online-dpo, by tensors a message, the bytes alike", "online-dpo, by trips under way"]
    assert "Times" not in found
    assert re.findall(r'"name":"(store refs|ceiling|store bytes)"', found["Sweeps"])[:2] == ["store refs", "ceiling"]


def test_a_point_that_could_not_be_drawn_is_told_with_its_reason():
    swept = a_sweep("bytes", "fields", {1: a_run([0.01]), 2: waived("64 KiB are too few")}, payload=64 * 1024)
    swept.runs[1].at, swept.runs[1].edges = {"fields": 10_000}, []
    assert "64 KiB are too few" in report([swept])


def test_the_advice_says_what_was_measured_here():
    found = {line[0]: line[-1] for line in lines(sections(report(LADDER))["Advice"])}
    said = {"store driver-queue": "2,000 ms", "graph zero-copy": "25 ms", "graph nccl": "waived"}
    assert found == {row.name: said.get(row.name, "not run") for row in ROWS if row.take}


def test_a_trace_that_is_not_to_be_believed_is_named_and_not_drawn():
    spans = [("driver", 0, "wait", "in one process", 0, 0.0, 1e6)]
    whole = a_run([1.0], spans=spans, trips_us=[(0.0, 1e6)])
    half = a_run([2.0], spans=spans, trips_us=[(0.0, 2e6)])
    text = sections(report([a_record("refs", whole), a_record("bytes", half)]))["Stages"]
    assert "not drawn: store bytes: the stages add up to 50.0% of the trip" in text
    assert "wait: 1,000 ms, 100.0%" in text and "50.0%" not in text.split("<p")[0]
    unfinished = a_record("refs", a_run([], status="failed", reason="reward died", spans=spans))
    assert "Stages" not in sections(report([unfinished]))


def test_what_records_have_in_common_is_told_once_and_the_rest_a_line_each():
    versions = {"versions": {"ray": "2.60.0"}}
    one, other = (a_record(name, [1.0], environment=versions | {"load_average": load, "cuda": None})
                  for name, load in (("refs", 0.51), ("bytes", 2.0)))  # fmt: skip
    text = sections(report([one, other]))["Environment"]
    common = re.findall("<li>(.*?)</li>", text)
    assert "versions: ray 2.60.0" in common and "gpus: none" in common and "cuda: unknown" in common
    assert [line[0:1] + line[-1:] for line in lines(text)] == [["store refs", "0.51"], ["store bytes", "2"]]


def test_nothing_of_a_record_is_markup():
    evil = "</script><img src=x onerror=alert(1)>"
    failed = a_run([1.0, 1.2], status="failed", reason=evil)
    record = a_record(evil, failed, environment={"cpu_model": evil, evil: evil})
    page = report([record, a_record(evil, [1.0, 1.1], batch_size=8), a_record(evil, [1.0, 1.1], batch_size=16)])
    own = page.replace(get_plotlyjs(), "")
    assert "<img" not in own
    charts = own.count('class="plotly-graph-div"')
    assert charts == 4 and own.count("</script>") == charts + 2  # the library's and the page's own


def test_a_page_is_the_same_each_time():
    assert report(LADDER) == report(LADDER)


@pytest.mark.parametrize(
    ("cell", "value"),
    [("1,776", 1776), ("0.2487", 0.2487), ("448 MiB", 448 * 2**20), ("896 B", 896), ("12 MB", 12e6), ("36.5x", 36.5),
     ("14.0%", 14), ("-", None), ("mapped", None), ("10x (9 to 11)", 10)],
)  # fmt: skip
def test_a_cell_is_sorted_by_the_number_it_begins_with(cell, value):
    assert sort_value(cell) == value


def test_what_is_below_a_number_stands_below_it():
    assert 0 < sort_value("<1%") < sort_value("1.0%")


def test_words_are_not_sorted_as_numbers_nor_is_the_first_column():
    text = table(["7"], [Column("a", str), Column("b", str, words=True), Column("c", str)])
    assert text.count("data-value") == 1 and "filter" not in text


def argv(tmp_path, *records):
    return [written(tmp_path / f"{index}.json", record) for index, record in enumerate(records)]


def test_html_writes_one_page_of_a_folder_and_nothing_else(tmp_path, capsys):
    (tmp_path / "deeper").mkdir()
    argv(tmp_path, *LADDER)
    written(tmp_path / "deeper" / "0.json", a_chain("refs", [0.003], "store"))
    before = set(tmp_path.rglob("*"))
    assert plot_results.main([str(tmp_path), "--html"]) == 0
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "report.html"}
    assert capsys.readouterr().out == f"report: {tmp_path / 'report.html'}\n"
    assert "4 rows, 4 runs (3 ok, 0 failed, 1 waived), 2026-01-01." in (tmp_path / "report.html").read_text()


def test_records_without_a_row_that_is_ok_have_a_report_too(tmp_path):
    assert plot_results.main([*argv(tmp_path, LADDER[2]), "--html", "--output-dir", str(tmp_path / "there")]) == 0
    assert "waived, no GPU" in (tmp_path / "there" / "report.html").read_text()


@pytest.mark.parametrize("flag", ["--publish", "--pages=.", "--format=csv"])
def test_html_with_what_it_does_not_write_is_refused(tmp_path, capsys, flag):
    assert plot_results.main([*argv(tmp_path, LADDER[0]), "--html", flag]) == 2
    assert capsys.readouterr().err.startswith("error: --html writes a page and nothing else")
    assert not (tmp_path / "report.html").exists()


def test_folders_and_records_without_a_run_are_refused(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (path,) = argv(tmp_path, msgspec.structs.replace(LADDER[0], runs=[]))
    for what, said in ((str(tmp_path / "empty"), "holds no record"), (path, "none of the records holds a run")):
        assert plot_results.main([what, "--html"]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1


def test_groups_are_apart_by_what_cannot_be_compared():
    spans = [("driver", 0, "wait", "in one process", 0, 0.0, 1e6)]
    traced = a_record("refs", a_run([1.0], spans=spans, trips_us=[(0.0, 1e6)]))
    groups = groups_of([traced, a_chain("refs", [0.003], "store"), *LADDER])
    assert [[result.name for result in group] for group in groups] == [
        [result.name for result in results_of(LADDER)], ["store refs"], ["store refs"],
    ]  # fmt: skip
    assert groups[-1][0].traced and not groups[-2][0].traced
