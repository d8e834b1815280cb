"""Load the weights of a model in fresh processes, as a user does, and present the record."""

from types import SimpleNamespace

import pytest
import torch
from made_records import make_record, make_run

from dataflow.analysis.result import group_results
from dataflow.errors import RunFailed, UsageError
from dataflow.report.sections import sections
from dataflow.studies.model_loading import WAYS, loading, model_loading
from dataflow.studies.model_loading.page_cache import drop_from_page_cache

SMALL = ("--flow", "model-loading", "--model", "gpt2", "--model-scale", "0.05", "--iterations", "3", "--warmup", "1")
MODEL_BYTES = sum(field.bytes for field in model_loading("gpt2", 0.05).tasks[0].work)


@pytest.mark.parametrize(
    "way",
    [
        "shared-memory",
        pytest.param("torch-mmap-cold", marks=pytest.mark.long),
        pytest.param("ray-arrays", marks=pytest.mark.long),
    ],
)
def test_every_process_loads_the_published_bytes_once(run_script, tmp_path, way):
    (tmp_path / "file").write_bytes(bytes(2**20))
    if "cold" in way and not drop_from_page_cache(tmp_path / "file"):
        pytest.skip("files of this machine stay in the page cache")
    finished = run_script("store", "--transport", "refs", "--load-by", way, *SMALL)
    assert (finished.code, finished.stderr) == (0, "")
    measured = finished.run.measured["model_loading"]
    assert measured["publish_seconds"] > 0 and len(measured["loads"]) == 3
    for load in measured["loads"]:
        assert min(load["load_seconds"], load["first_read_seconds"], load["second_read_seconds"]) > 0
    if "cold" not in way:  # the later processes map memory that is there
        assert measured["loads"][2]["added_bytes"] < 0.3 * MODEL_BYTES


@pytest.fixture
def make_part(tmp_path, monkeypatch):
    """make_part(name) -> the part of an actor that publishes or loads with torch.load."""
    monkeypatch.setattr(loading, "find_marked", lambda folder: [])

    def make(name, way="torch-load"):
        task = SimpleNamespace(work=model_loading("gpt2", 0.01).tasks[0].work)
        plan = SimpleNamespace(run_folder=tmp_path, options=SimpleNamespace(load_by=way))
        return loading.LoadingPart(SimpleNamespace(name=name, plan=plan, tasks={name: task}))

    return make


def test_the_model_is_loaded_in_the_first_iteration_and_wrong_bytes_end_the_run(make_part, monkeypatch):
    publisher, loader = make_part("publisher"), make_part("loader-1")
    for number in (1, 2):
        publisher.run("publisher", number)
        loader.run("loader-1", number)
        values = {"driver": None, "publisher": publisher.end_group(number), "loader-1": loader.end_group(number)}
        assert (values["loader-1"] is None) == (number == 2)
        if number == 1:
            collector = loading.LoadingCollector(None)
        collector.add(values, is_timed=number == 2)
    measured, failure = collector.result(None)
    assert failure is None and len(measured.loads) == 1

    def load_other_bytes(path, fields):
        tensors = torch.load(path, weights_only=True)
        tensors[fields[0].name].view(-1)[-1] += 1
        return tensors

    monkeypatch.setitem(loading.FUNCTIONS, "torch-load", (None, load_other_bytes))
    with pytest.raises(RunFailed, match="loader-1: the loaded bytes differ"):
        make_part("loader-1").run("loader-1", 1)


def test_files_that_stay_in_the_page_cache_end_a_cold_run(make_part, monkeypatch):
    make_part("publisher").run("publisher", 1)
    monkeypatch.setattr(loading, "drop_from_page_cache", lambda path: False)
    make_part("loader-1").run("loader-1", 1)
    with pytest.raises(RunFailed, match="stay in the page cache: use another way"):
        make_part("loader-1", "torch-load-cold").run("loader-1", 1)


def test_every_way_has_its_functions():
    assert {way.removesuffix("-cold") for way in WAYS} == set(loading.FUNCTIONS)


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--flow", "model-loading"), "need each other"),
        (("--load-by", "torch-load"), "need each other"),
        (("--flow", "model-loading", "--load-by", "torch-load", "--transport", "bytes"), "use store refs"),
    ],
)
def test_flags_that_do_not_fit_are_rejected(make_plan, flags, error):
    with pytest.raises(UsageError, match=error):
        make_plan("store", *(() if "--transport" in flags else ("--transport", "refs")), *flags)


def test_the_table_has_medians_over_processes_and_the_memory_of_later_ones():
    records = []
    for way, factor in (("shared-memory", 0.1), ("torch-load", 1.0)):
        loads = [
            {"load_seconds": factor * seconds, "first_read_seconds": 0.5, "second_read_seconds": 0.25, "added_bytes": n}
            for seconds, n in ((0.4, MODEL_BYTES), (0.2, MODEL_BYTES // 10), (0.3, MODEL_BYTES // 5))
        ]
        measured = {"model_loading": {"publish_seconds": 1.0, "loads": loads}}
        run, sizes = make_run([0.001], measured=measured), {"model": "gpt2", "scale": 0.05}
        flags = {"load_by": way}
        records.append(make_record("refs", run, flow="model-loading", table="model-loading", flags=flags, **sizes))
    (section,) = sections(group_results(records))
    table = section.table
    assert [dot.value for dot in section.chart.groups["load"]] == pytest.approx([300, 30])
    rows = {row[0]: dict(zip(table.headers, row, strict=True)) for row in table.cells}
    assert list(rows) == ["torch-load", "shared-memory"]
    assert rows["torch-load"]["load ms"] == "300" and rows["shared-memory"]["load ms"] == "30"
    assert rows["shared-memory"]["load: times as fast as torch-load"] == "10"
    assert rows["shared-memory"]["load and first read: times as fast"] == "1.51"
    assert rows["torch-load"]["memory that each further worker adds (share of the model)"] == "15.0%"
