"""Test that Ray has every private name, every text and every variable that the laboratory knows of it."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest
import ray
from ray.dag.compiled_dag_node import CompiledDAG, CompiledTask
from ray.dag.context import DAGContext
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
RAY_VARIABLES = sorted(
    {name for of_group in VARIABLES.values() for name in of_group if name.startswith("RAY_")}
)


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


def test_names_that_are_read_without_a_cluster_exist():
    from ray._private.internal_api import get_memory_info_reply

    assert callable(get_memory_info_reply)
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
    assert "self._channels" in inspect.getsource(CompositeChannel)
    assert hasattr(DAGContext.get_current(), "buffer_size_bytes")


def test_the_size_of_channels_is_that_of_the_process(monkeypatch):
    monkeypatch.setattr(DAGContext.get_current(), "buffer_size_bytes", 1)
    ray_internals.set_channel_bytes(12345)
    assert DAGContext.get_current().buffer_size_bytes == 12345
