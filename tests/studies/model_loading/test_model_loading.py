# SPDX-License-Identifier: Apache-2.0
"""Load the weights of a model in fresh processes, as a user does, and present the record."""

from types import SimpleNamespace

import pytest
from made_records import make_record, make_run, rows_of

from dataflow.analysis.result import group_results
from dataflow.errors import RunFailed, UsageError
from dataflow.plan.options import Options
from dataflow.report.sections import sections
from dataflow.studies.model_loading import loading, model_loading

SMALL = (
    "--flow",
    "model-loading",
    "--model",
    "gpt2",
    "--model-scale",
    "0.05",
    "--iterations",
    "3",
    "--warmup",
    "1",
)
MODEL_BYTES = sum(field.bytes for field in model_loading("gpt2", 0.05).tasks[0].work)


@pytest.mark.parametrize(
    "way",
    [
        pytest.param("shared-memory", marks=pytest.mark.slow),
        pytest.param("ray-arrays", marks=pytest.mark.long),
    ],
)
def test_every_process_loads_the_published_bytes_once(run_script, way):
    finished = run_script("store", "--transport", "refs", "--load-by", way, *SMALL)
    assert (finished.code, finished.stderr) == (0, "")
    measured = finished.run.measured["model_loading"]
    assert measured["publish_seconds"] > 0 and len(measured["loads"]) == 3
    for load in measured["loads"]:
        assert (
            min(load["load_seconds"], load["first_read_seconds"], load["second_read_seconds"]) > 0
        )
    assert measured["loads"][2]["added_bytes"] < 0.3 * MODEL_BYTES  # it maps memory that is there


@pytest.mark.parametrize(
    "way", ["torch-load", "torch-mmap", "safetensors", "ray-module", "ray-arrays"]
)
def test_the_model_is_loaded_in_the_first_iteration_and_wrong_bytes_end_the_run(
    tmp_path, monkeypatch, way
):
    monkeypatch.setattr(loading, "find_marked", lambda folder: [])
    store = []  # instead of Ray's
    monkeypatch.setattr(loading.ray, "put", lambda value: store.append(value) or len(store) - 1)
    monkeypatch.setattr(loading.ray, "get", store.__getitem__)
    task = SimpleNamespace(work=model_loading("gpt2", 0.01).tasks[0].work)
    options = Options.of({"load_by": way})
    plan = SimpleNamespace(run_folder=tmp_path, options=options)
    publisher, loader = (loading.LoadingPart(SimpleNamespace(name=name, plan=plan, tasks={name: task}))
                         for name in ("publisher", "loader-1"))  # fmt: skip
    groups = []
    for number in (1, 2):
        publisher.run("publisher", number)
        loader.run("loader-1", number)
        values = {
            "driver": None,
            "publisher": publisher.end_group(number),
            "loader-1": loader.end_group(number),
        }
        groups.append((values, number == 2))
    measured, failure = loading.find_loads(plan, groups, None)
    assert failure is None and len(measured["loads"]) == 1
    load_module = loading.load_module

    def load_other_bytes(*arguments):
        module = load_module(*arguments)
        parameter = next(module.parameters())
        parameter.data = parameter.data.clone()
        parameter.data.view(-1)[-1] += 1
        return module

    monkeypatch.setattr(loading, "load_module", load_other_bytes)
    with pytest.raises(RunFailed, match="loader-1: the loaded bytes differ"):
        loader.run("loader-1", 1)


@pytest.mark.parametrize(("flags", "error"), [
    ("refs --flow model-loading", "need each other"),
    ("refs --load-by torch-load", "need each other"),
    ("refs --flow model-loading --load-by torch-load --address auto", "cannot see the memory of an existing"),
    ("bytes --flow model-loading --load-by torch-load", "use store refs"),
])  # fmt: skip
def test_flags_that_do_not_fit_are_rejected(make_plan, flags, error):
    with pytest.raises(UsageError, match=error):
        make_plan("store", "--transport", *flags.split())


def test_the_table_has_medians_over_processes_and_the_memory_of_later_ones():
    records = []
    for way, factor in (("shared-memory", 0.1), ("torch-load", 1.0)):
        loads = [
            {
                "load_seconds": factor * seconds,
                "first_read_seconds": 0.5,
                "second_read_seconds": 0.25,
                "added_bytes": n,
            }
            for seconds, n in (
                (0.4, MODEL_BYTES),
                (0.2, MODEL_BYTES // 10),
                (0.3, MODEL_BYTES // 5),
            )
        ]
        run = make_run(
            [0.001], measured={"model_loading": {"publish_seconds": 1.0, "loads": loads}}
        )
        sizes = {
            "flow": "model-loading",
            "table": "model-loading",
            "model": "gpt2",
            "model_scale": 0.05,
        }
        records.append(make_record("refs", run, flags={"load_by": way}, **sizes))
    (section,) = sections(group_results(records))
    rows = rows_of(section)
    headers = ("configuration", "load ms", "load and first read ms")
    assert [[row[header] for header in headers] for row in rows] == [
        ["store refs --load-by torch-load", "300", "800"],
        ["store refs --load-by shared-memory", "30", "530"],
    ]
    assert rows[0]["memory that each further worker adds (share of the model)"] == "15.0%"


def test_a_module_is_not_published_by_an_unknown_way(tmp_path):
    with pytest.raises(ValueError, match="mmap is no way to load a module"):
        loading.publish_module(loading.Module(), "mmap", tmp_path, None)
    assert [*tmp_path.iterdir()] == []
