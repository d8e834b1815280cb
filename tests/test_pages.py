"""What README.md and docs/ are written from: records, and the flags themselves."""

import argparse
import re
import shlex
from pathlib import Path

import pytest
from made_records import a_record, a_run

import plot_results
from common.analysis.results import results_of
from common.errors import RecordError
from common.pages import generated
from common.pages.parts import Parts
from common.plan.command_line import parse
from common.plan.options import FIELDS
from common.record.rows import LADDER

ROOT = Path(plot_results.__file__).parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NONE = generated.sections(Parts([], [], [], [], [], []))
ROWS = results_of(
    [
        a_record("driver-queue", [2.0, 2.0, 2.2]),
        a_record("mapped", [0.05, 0.05], runtime="graph", flags={"copy_out": True}),
        a_record("memcpy", [0.02], runtime="torch"),
        a_record("mapped", a_run([0.004], payload_copied=False), runtime="graph"),
        a_record("mapped", a_run([0.001], payload_copied=False), runtime="graph", flags={"episode": 10}),
    ]
)


def written_by_hand(page):
    """The page without what is generated."""
    return re.sub(r"<!-- ([\w-]+): written by.*?<!-- end of \1 -->", "", page.read_text(), flags=re.DOTALL)


def test_the_three_numbers_are_the_baseline_and_the_fastest_that_copies_and_that_maps():
    lines = generated.numbers(ROWS).splitlines()
    assert lines[0] == "One trip of online-dpo, 448 MiB over 5 edges:"
    assert [line.split(",")[0] for line in lines[2:5]] == [
        "* **2", "* **50 ms** over `graph mapped --copy-out`", "* **4 ms** over `graph mapped`",
    ]  # fmt: skip
    assert [line.rpartition(", ")[2] for line in lines[3:5]] == ["40 times as fast", "500 times as fast"]
    assert lines[6].startswith("(one warm copy of each edge takes 20 ms; 2 x Test CPU, 8 GiB, no GPU")


def test_what_a_script_prints_comes_with_the_command_that_makes_it():
    small = a_record("shm", [0.002], runtime="graph", batch_size=8, flags={"reuse_buffers": True})
    small.arguments["iterations"] = 1
    command, flow, *rest = generated.printed(results_of([small])).splitlines()[1:-1]
    assert flow == "online DPO: 3.5 MiB a trip"
    assert rest[-1] == "Execution time: 0.002 seconds"
    prompt, _, script, *flags = shlex.split(command)
    assert (prompt, script) == ("$", "ray_cg_simulate_chat_learn_data_flow.py")
    asked = parse("", "graph", flags)
    assert (asked.transport, asked.reuse_buffers, asked.batch_size, asked.iterations) == ("shm", True, 8, 1)
    assert generated.printed(ROWS[:0]) is None


def test_of_a_row_with_a_run_that_failed_last_the_one_before_it_is_printed(capsys):
    broken = a_run([9.0], status="failed", reason="reward died")
    lines = generated.printed(results_of([a_record("refs", [1.0], [3.0, 3.0], broken)])).splitlines()
    assert lines[-2] == "Execution time: 6 seconds"
    assert capsys.readouterr() == ("", "")


def test_the_short_advice_has_six_rows_of_the_catalogue_and_the_long_one_all():
    texts = generated.sections(Parts(ROWS, [], [], [], [], []))
    named = {name: [line.split("`")[1] for line in texts[name].splitlines()[2:]] for name in ("choice", "advice")}
    assert sorted(named["choice"]) == sorted(generated.CHOICE) and len(generated.CHOICE) == 6
    assert named["advice"] == [name for name, row in LADDER.items() if row.take]


def test_every_flag_of_the_scripts_stands_on_its_page():
    shown = re.findall(r"`--([a-z-]+)`", generated.flags())
    expected = {field.name.replace("_", "-") for field in FIELDS if field.metadata["help"] != argparse.SUPPRESS}
    assert expected - set(shown) == {"transport"}
    assert len({line.count("|") - line.count("\\|") for line in generated.flags().splitlines()}) == 1


def test_every_section_has_one_place_in_the_repository():
    places = [name for page in PAGES for name in re.findall(r"<!-- ([\w-]+): written by", page.read_text())]
    assert sorted(places) == sorted(NONE)


@pytest.mark.parametrize(
    "text",
    [
        generated.markers("advice")[0],
        generated.markers("advice")[1],
        "".join(generated.markers("advice")) * 2,
        "".join(generated.markers("unheard-of")),
    ],
    ids=["no end", "no begin", "twice", "unknown"],
)
def test_marks_that_nothing_can_be_written_between_are_refused(tmp_path, text):
    (tmp_path / "README.md").write_text(text)
    with pytest.raises(RecordError, match="two markers once"):
        generated.rewrite(tmp_path, NONE)
    assert (tmp_path / "README.md").read_text() == text


def test_a_section_without_rows_stays_as_it_is(tmp_path):
    (tmp_path / "README.md").write_text("a\n{}\nold\n{}\nb".format(*generated.markers("results")))
    generated.rewrite(tmp_path, NONE)
    assert "\nold\n" in (tmp_path / "README.md").read_text()


# Of the method itself: levels, and what the noncentral t distribution says of them.
CHOSEN = ("95 %", "1.6 %", "2.4 %", "3.7 %", "5 %", "7 %")
# Of Ray's article and of the demo, each named where it stands.
OF_OTHERS = ("279.23 s", "35.37 s", "0.17", "1.33 GB/s")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_measured_number_is_written_by_hand(page):
    text = re.sub("|".join(map(re.escape, (*OF_OTHERS, *CHOSEN))), "", written_by_hand(page))
    text = re.sub(r"```.*?```|`[^`]*`|^    .*$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"\d[\d.,]* ?(?:ms|µs|us|s|seconds|GB/s|MB/s|×|x|times|%|minutes)(?!\w)[^\n]*", text) == []


def test_pictures_and_records_stay_small():
    kept = [path for name in ("img", "results/published", "results/evidence") for path in (ROOT / name).rglob("*.*")]
    assert sum(path.stat().st_size for path in kept) < 10e6  # a clone has every one that there ever was


def test_every_picture_stands_on_a_page():
    shown = {path for page in PAGES for path in re.findall(r"!\[[^\]]*\]\((?:\.\./)?img/([^)]+)\)", page.read_text())}
    assert shown == {path.name for path in (ROOT / "img").iterdir()}


def test_the_readme_is_short_and_every_page_is_reached_from_it():
    readme = PAGES[0].read_text()
    assert len(readme.splitlines()) <= 150
    assert {page.name for page in PAGES[1:]} <= set(re.findall(r"docs/([\w-]+\.md)", readme))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_are_there(page):
    links = [link for link in re.findall(r"\]\(([^)#]+)", page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
