"""Test that Ray has every private name, every text and every variable that the laboratory knows of it."""

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path

import pytest
import ray
from ray.core.generated.node_manager_pb2 import FormatGlobalMemoryInfoReply
from ray.dag.compiled_dag_node import CompiledDAG, CompiledTask
from ray.dag.context import DAGContext
from ray.exceptions import ActorDiedError, RayTaskError
from ray.experimental.channel.shared_memory_channel import CompositeChannel

from dataflow.workers import ray_internals
from dataflow.workers.variables import VARIABLES

RAY = Path(ray.__file__).parent
BINARIES = ("_raylet.so", "core/src/ray/gcs/gcs_server", "core/src/ray/raylet/raylet")
WITH_TEXTS = ("exceptions.py", "_private/node.py")
TEXTS = [
    ray_internals.RAISED_IN_CONSTRUCTOR,
    "is dead because",
    "exit detail: ",
    "Some common causes",
    "class_name: ",
    ray_internals.RELEASED,
    ray_internals.SLOW_START,
]
PROJECT = Path(__file__).resolve().parents[2]
FILES = [*PROJECT.glob("*.py"), *PROJECT.glob("common/*.py"), *PROJECT.glob("dataflow/**/*.py")]
INTERNALS = PROJECT / "dataflow" / "workers" / "ray_internals.py"
# Where variables of Ray may stand. The script of the graph shows what a compiled graph needs.
WITH_VARIABLES = (
    "common/ray_settings.py",
    "dataflow/workers/variables.py",
    "ray_cg_simulate_chat_learn_data_flow.py",
)
# Advice to set a variable, in a message.
ADVICE = "dataflow/workers/ray_workers.py"


def name_of(file: Path) -> str:
    return str(file.relative_to(PROJECT))


def texts_of(file: Path) -> list[str]:
    """Return the texts in a file, without docstrings."""
    tree = ast.parse(file.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [
        node.value
        for node in constants
        if isinstance(node.value, str) and id(node) not in docstrings
    ]


def variables_in(file: Path) -> set[str]:
    """Return the variables of Ray that the texts of a file name; one that ends with _ is how names begin."""
    return set(re.findall(r"\bRAY_\w+", " ".join(texts_of(file))))


def private_names_in(file: Path) -> set[str]:
    """Return the private names of Ray that a file uses: its methods of actors, modules, and arguments with _."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"__ray_\w+__|_private", node.attr):
            names.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and "._private" in str(node.module):
            names.add(node.module)
        elif isinstance(node, ast.keyword) and str(node.arg).startswith("_"):
            names.add(node.arg)
    return names


RAY_VARIABLES = {name for of_group in VARIABLES.values() for name in of_group}
for _file in FILES:
    RAY_VARIABLES |= variables_in(_file)
RAY_VARIABLES = sorted(name for name in RAY_VARIABLES if re.fullmatch(r"RAY_\w*[a-zA-Z]", name))


@cache
def binaries() -> bytes:
    return b"".join((RAY / name).read_bytes() for name in BINARIES)


@cache
def constants() -> list[str]:
    """Return the texts in Ray's modules of errors, of which Python joins the parts."""
    texts = []
    for name in WITH_TEXTS:
        tree = ast.parse((RAY / name).read_text())
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        texts += [node.value for node in nodes if isinstance(node.value, str)]
    return texts


@cache
def sources() -> str:
    return "".join(path.read_text(errors="ignore") for path in RAY.rglob("*.py"))


def has_text(text: str) -> bool:
    return text.encode() in binaries() or any(text in constant for constant in constants())


def test_this_version_of_ray_is_the_one_that_was_seen():
    assert ray.__version__ == ray_internals.SEEN_VERSION


@pytest.mark.parametrize("text", TEXTS)
def test_errors_of_ray_have_the_texts(text):
    assert has_text(text)


def test_a_text_that_ray_does_not_have_is_not_found():
    assert not has_text("a text that no version of Ray has")


@pytest.mark.parametrize("variable", RAY_VARIABLES)
def test_ray_reads_the_variable(variable):
    setting = re.escape(variable.removeprefix("RAY_"))
    assert setting.encode() in binaries() or re.search(rf"\b(RAY_)?{setting}\b", sources())


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_private_names_and_variables_of_ray_are_in_their_rooms(file):
    if name_of(file) not in (*WITH_VARIABLES, ADVICE):
        assert variables_in(file) == set(), "put them into one of WITH_VARIABLES"
    if file.is_relative_to(PROJECT / "dataflow") and file != INTERNALS:
        assert private_names_in(file) == set(), "put them into ray_internals.py"


def test_private_names_and_variables_are_found(tmp_path):
    file = tmp_path / "module.py"
    file.write_text('"""RAY_A."""\nactor.__ray_call__.remote(f, _temp_dir=1)\nx = {"RAY_B": 1}\n')
    assert variables_in(file) == {"RAY_B"}
    assert private_names_in(file) == {"__ray_call__", "_temp_dir"}


@pytest.mark.parametrize("name", sorted(set().union(*map(private_names_in, FILES))))
def test_ray_has_the_private_name(name):
    if name.startswith("__ray_"):
        assert f"def {name}(" in inspect.getsource(ray.actor)
    elif name.startswith("_") and name != "_private":
        parameters = {*inspect.signature(ray.put).parameters}
        parameters |= {*inspect.signature(ray.dag.DAGNode.experimental_compile).parameters}
        is_of_init = f'kwargs.pop("{name}"' in inspect.getsource(ray.init)
        assert name in parameters or is_of_init
    else:
        assert importlib.import_module("ray._private" if name == "_private" else name)


def test_names_that_are_read_without_a_cluster_exist():
    from ray._private.internal_api import get_memory_info_reply

    assert callable(get_memory_info_reply)
    stats = FormatGlobalMemoryInfoReply().store_stats
    assert stats.cumulative_created_bytes == stats.spilled_bytes_total == 0
    assert "self.all_processes" in inspect.getsource(ray._private.node.Node)
    assert "process" in ray._private.services.ProcessInfo._fields
    assert hasattr(ray._private.worker, "_global_node")
    assert hasattr(ray._private.state, "state")
    assert callable(ray_internals.transport_manager("GLOO").tensor_transport_backend)
    assert "self._ray_actor_id" in inspect.getsource(ray.actor.ActorHandle)
    assert hasattr(ray.actor.ActorHandle, "_actor_id")


def test_a_compiled_graph_has_the_names():
    source = inspect.getsource(CompiledDAG)
    for name in ("idx_to_task", "dag_node_to_idx", "_proxy_actor"):
        assert f"self.{name}" in source
    source = inspect.getsource(CompiledTask)
    for name in ("output_channels", "args", "dag_node"):
        assert re.search(rf"self\.{name}\b|def {name}\b", source)
    assert hasattr(ray.dag.DAGNode, "type_hint")
    assert "self._channels" in inspect.getsource(CompositeChannel)
    assert hasattr(DAGContext.get_current(), "buffer_size_bytes")


def test_channels_name_their_semaphores_so():
    suffixes = b"".join(
        b"/%s\0" % kind.encode() for kind in reversed(ray_internals.CHANNEL_SEMAPHORES)
    )
    assert suffixes in binaries()


def test_the_patterns_find_the_names_of_actors_in_errors_of_ray():
    title = "ray::policy.__init__"
    traceback = "Traceback (most recent call last):\nValueError: no"
    cause = RayTaskError("policy.__init__", traceback, ValueError("no"), title, 1, "127.0.0.1")
    text = str(ActorDiedError(cause))
    assert ray_internals.RAISED_IN_CONSTRUCTOR in text
    assert ray_internals.CONSTRUCTOR.findall(text) == ["policy"]
    assert ray_internals.TASK.findall(str(cause)) == ["policy"]


def test_the_size_of_channels_is_that_of_the_process(monkeypatch):
    monkeypatch.setattr(DAGContext.get_current(), "buffer_size_bytes", 1)
    ray_internals.set_channel_bytes(12345)
    assert DAGContext.get_current().buffer_size_bytes == 12345
