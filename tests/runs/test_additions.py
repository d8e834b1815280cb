"""What must change for one more transport, and for one more flow: in a copy of the repository."""

import shutil

import pytest
from conftest import ROOT

from common.record.rows import RUNTIMES

ROW = """\
    Row("torch", "pigeon", "a bird for each message", above="torch memcpy", because="it flies",
        needs=Needs(one_process=True), suites={"benchmark": 10}),
"""
FUNCTION = '''

def by_pigeon(crew: Crew) -> Wiring:
    """Every message to its reader by hand."""
    crew.start(Model)
    flow = crew.flow

    def submit(query):
        emitted = {DRIVER: query}
        for task in flow.tasks:
            birds = (leaves.map_tensors(torch.clone, emitted[edge.source]) for edge in flow.edges_to(task.name))
            emitted[task.name] = crew.actors[task.actor].forward_step(task.name, *birds)
        return [leaves.map_tensors(torch.clone, emitted[source]) for source in flow.returns]

    return Wiring(submit, lambda results: results, {str(edge): "by air" for edge in flow.edges})
'''
# The query feeds three tasks, one reads from three, one actor has two tasks, and the flow ends at it with a word.
FLOW = '''

def two_judges(rows: int = 2) -> Flow:
    """Two judges, whose verdict one of them learns."""
    marks = Message((Field("marks", "float32", (rows, 7)), Field("names", "str", lengths=(5, 0)),
                     Field("mask", "bool", lengths=(3, 9)), Field("view", "int64", (2, rows), storage=(4, rows + 1))))
    return Flow(
        name="two-judges",
        title="two judges",
        query=Message((Field("ids", "int64", lengths=(4,) * rows),)),
        tasks=(
            Task("left", (DRIVER,), marks),
            Task("right", (DRIVER,), Message((Field("marks", "int32", (rows, 3)),))),
            Task("verdict", ("right", DRIVER, "left"), marks),
            Task("learn", ("verdict", "left"), WORD, actor="left"),
        ),
        returns=("learn",),
    )

'''
EDGES = [
    "driver -> left", "driver -> right", "right -> verdict", "driver -> verdict", "left -> verdict",
    "verdict -> learn", "learn -> driver",
]  # fmt: skip


@pytest.fixture
def tree(tmp_path):
    """A copy of what a user checks out, without its history."""
    for path in ROOT.glob("*.py"):
        shutil.copy(path, tmp_path)
    for folder in ("common", "chatlearn"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def changed(tree):
    paths = [path for path in tree.rglob("*.py") if path.read_text() != (ROOT / path.relative_to(tree)).read_text()]
    return sorted(path.relative_to(tree).as_posix() for path in paths)


def insert(path, text, before):
    """The text, before the last place where that stands."""
    source = path.read_text()
    assert before in source
    begin, _, end = source.rpartition(before)
    path.write_text(begin + text + before + end)


def test_a_transport_is_added_by_its_row_and_its_function(tree, run_script):
    script = tree / RUNTIMES["torch"]
    insert(tree / "common/record/rows.py", ROW, ")  # fmt: skip\nLADDER")
    script.write_text(script.read_text() + FUNCTION)
    assert changed(tree) == ["common/record/rows.py", script.name]
    finished = run_script(script, "--transport", "pigeon", "--flow", "ppo", "--rows", "2", "--iterations", "3")
    assert (finished.code, finished.stderr) == (0, "")
    assert (finished.run.status, finished.run.wrong_bytes, len(finished.run.seconds)) == ("ok", 0, 3)
    assert set(finished.run.path.values()) == {"by air"}
    assert any(line.startswith("torch pigeon ") for line in finished.stdout.splitlines())


@pytest.mark.parametrize(
    ("runtime", "transport", "more"),
    [
        ("store", "refs", ("--in-flight", "2")),
        ("graph", "mapped", ("--message", "packed")),
        ("rdt", "gloo", ()),
        ("torch", "gloo", ("--in-flight", "2", "--message", "packed")),
    ],
)
def test_a_flow_is_added_by_its_function_and_runs_with_every_kind_of_transport(
    tree, run_script, runtime, transport, more
):
    catalogue = tree / "common/flow/catalogue.py"
    insert(catalogue, FLOW, "FLOWS: dict")
    insert(catalogue, '    "two-judges": two_judges,\n', "}\n# What the demo has")
    catalogue.write_text(catalogue.read_text().replace("import Field, flat", "import WORD, Field, Message, flat"))
    assert changed(tree) == ["common/flow/catalogue.py"]
    flags = (
        "--flow",
        "two-judges",
        "--rows",
        "3",
        "--transport",
        transport,
        *more,
        "--iterations",
        "6",
        "--warmup",
        "1",
    )
    finished = run_script(tree / RUNTIMES[runtime], *flags)
    assert (finished.code, finished.stderr) == (0, "")
    record, run = finished.record, finished.run
    assert (run.status, run.wrong_bytes, len(run.seconds)) == ("ok", 0, 6)
    assert [f"{edge.source} -> {edge.reader}" for edge in record.edges] == EDGES
    assert record.edges[-1].bytes == 8
    assert set(record.row.layout.nodes) == {"driver", "left", "right", "verdict"} | (
        {"stand-in"} if runtime == "rdt" else set()
    )
