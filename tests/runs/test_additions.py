"""Add one of each thing that docs/architecture.md explains, with exactly its edits, to a copy of the project."""

import shutil
import subprocess
import sys

from conftest import ROOT

from dataflow.records import files

TRANSPORTS, VARIANTS = "dataflow/catalogue/transports.toml", "dataflow/catalogue/variants.toml"
FLOWS, OPTIONS = "dataflow/flows/catalogue.py", "dataflow/plan/options.py"
SUITES, SCHEMA, TIMING = "dataflow/catalogue/suites.toml", "dataflow/records/schema.py", "dataflow/measure/loop.py"
TABLES, SECTIONS = "dataflow/report/tables.py", "dataflow/report/suite_tables.py"
PROCESSES = "dataflow/transports/processes.py"
PACKAGES = [name for name in ("dataflow", "common") if (ROOT / name).is_dir()]
FLOW = '''
def two_judges(samples: int = 2) -> Flow:
    """Two models judge the query, and one of them reads the verdict of a third one."""
    marks = Message((Field("marks", "float32", (samples, 7)), Field("names", "str", lengths=(5, 0)),
                     Field("mask", "bool", lengths=(3, 9)), Field("view", "int64", (2, samples), storage=(4, 9))))
    tasks = (
        Task("left", (DRIVER,), marks),
        Task("right", (DRIVER,), Message((Field("marks", "int32", (samples, 3)),))),
        Task("verdict", ("right", DRIVER, "left"), marks),
        Task("learn", ("verdict", "left"), flat_message(8), actor="left"),
    )
    query = Message((Field("ids", "int64", lengths=(4,) * samples),))
    return Flow("two-judges", "two judges", query, tasks, returns=("learn",))


'''
TRANSPORT = '''
def by_clone(workers: WorkerGroup) -> Connection:
    """Clone every message for its reader."""
    workers.start()
    flow = workers.sent_flow

    def submit(query):
        sent = {DRIVER: query}
        for task in flow.tasks:
            inputs = [tensors.map_tensors(torch.clone, sent[edge.source]) for edge in flow.edges_to(task.name)]
            sent[task.name] = workers.actors[task.actor].forward_step(task.name, *inputs)
        return [tensors.map_tensors(torch.clone, sent[source]) for source in flow.returns]

    return Connection(submit, lambda results: results, {str(edge): "clone" for edge in flow.edges})


'''
CLONE = """[[transports]]
runtime = "torch"
name = "clone"
summary = "every message is cloned"
requirements.single_process = true

"""
CHART = """
def draw_judges(group: Group) -> BarChart:
    bars = [Bar(result.name, {"time": result.typical_seconds}, "") for result in group.done]
    return BarChart("judges", "Judges", {"": bars}, "seconds", segment_names=("time",))


JUDGES = Table("judges", columns=lambda group: tables.MAIN_COLUMNS, chart=draw_judges)
"""
# file, the text that the addition comes before, the addition
EDITS = [
    (TRANSPORTS, '[[transports]]\nruntime = "graph"\nname = "pickle"', CLONE),
    (VARIANTS, '[[variants]]\ntransport = "torch memcpy"', '[[variants]]\ntransport = "torch clone"\niterations = 5\n'
               'compared_with = "torch memcpy"\nexplanation = "fresh memory"\n\n'),
    (PROCESSES, "\nTRANSPORTS = {\n", TRANSPORT),
    (PROCESSES, '    "multiprocessing": by_multiprocessing,\n', '    "clone": by_clone,\n'),
    (FLOWS, "from dataflow.flows.message import flat_message\n", "from dataflow.flows.message import Field, Message\n"),
    (FLOWS, "FLOWS: dict[str,", FLOW.lstrip()),
    (FLOWS, '    "online-dpo": online_dpo,\n', '    "two-judges": two_judges,\n'),
    (OPTIONS, "    huge_pages: bool =", '    samples: int | None = _size("samples of the judges", int, _COUNT)\n'
              '    colour: bool = _transport(False, "paint the messages", configuration=True)\n'),
    (SUITES, "[[quick]]", '[[judges]]\ntable = "judges"\nconfigurations = ["torch clone", "torch memcpy"]\n'
             'flags = "--flow two-judges --samples 3 --iterations 4 --colour"\n\n'),
    (SCHEMA, "    spilled_bytes: Count = 0", "    birds: int = 0  # how many came\n"),
    (TIMING, "        run.stored_bytes, run.spilled_bytes =", "        run.birds = 7\n"),
    (SECTIONS, "from dataflow.report.cluster_tables import CLUSTER\n",
               "from dataflow.report.charts import Bar, BarChart\n"),
    (SECTIONS, "TABLES = {", CHART.lstrip()),
    (SECTIONS, '    "paired": CONFIGURATIONS,', '    "judges": JUDGES,\n'),
    (TABLES, '    Column("first ms",', '    Column("birds", lambda result: str(result.runs[0].birds)),\n'),
]  # fmt: skip


RUN = [sys.executable, "-m", "dataflow", "run", "--suite"]


def test_the_documented_edits_add_a_transport_flow_flag_suite_field_column_and_chart(tmp_path):
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, before, addition in EDITS:
        path = tmp_path / name
        text = path.read_text()
        assert text.count(before) == 1, (name, before)
        path.write_text(text.replace(before, addition + before))

    command = [*RUN, "judges", "--output", str(tmp_path / "out"), "--allow-disturbed"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    names = [path.name for path in sorted((tmp_path / "out").glob("*.json"))]
    assert len(names) == 2 and "clone" in names[0]
    record = (tmp_path / "out" / names[0]).read_text()
    for text in ('"suite": "judges"', '"colour": true', '"birds": 7', '"samples": 3', '"learn -> driver": "clone"'):
        assert text in record
    assert "birds" in done.stdout and "torch clone --colour" in done.stdout
    assert files.record_files([tmp_path / "out"])
    assert (tmp_path / "out" / "judges.svg").exists()
    command = [*RUN, "benchmark", "--dry-run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert "torch clone: 1 x 5 iterations" in done.stdout
