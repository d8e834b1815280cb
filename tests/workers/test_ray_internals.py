# SPDX-License-Identifier: Apache-2.0
"""Test that Ray has every private name, every text and every variable that the laboratory knows of it."""

import ast
import inspect
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest
import ray
import torch
from ray.core.generated.node_manager_pb2 import FormatGlobalMemoryInfoReply
from ray.dag.context import DAGContext
from ray.exceptions import ActorDiedError, RayTaskError

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
# Ray's modules with the classes of the objects that the laboratory holds.
WITH_CLASSES = [
    *RAY.glob("dag/*.py"),
    *RAY.glob("experimental/channel/*.py"),
    *RAY.glob("experimental/rdt/*.py"),
    *(RAY / "_private" / name for name in ("node.py", "services.py", "state.py", "worker.py")),
    RAY / "actor.py",
]
# Of what docs.ray.io has pages: modules, and methods of actors and graphs.
DOCUMENTED_MODULES = (
    *("ray", "ray.dag", "ray.exceptions", "ray.experimental.collective"),
    *("ray.util.queue", "ray.util.scheduling_strategies"),
)
DOCUMENTED = {"execute", "experimental_compile", "remote", "teardown", "with_tensor_transport"}
DOCUMENTED |= {"get_node_id"}  # of ray.get_runtime_context()
# Whose attributes have the names of some of Ray's.
OTHER_OBJECTS = (dict, Path, memoryview, socket.socket, threading.Timer, torch.Tensor, torch.device)
# Types of Ray, as annotations.
INTERFACES = {"Communicator"}
# What the laboratory uses of Ray and Ray does not document, by the module, class or function that has it. common/ and
# the scripts, which import nothing of dataflow/, use some of it themselves. It is here, because a hash of
# ray_internals.py tells apart records of different code inside the clock.
UNDOCUMENTED = {
    "ray": ("_private",),
    "ray._private": ("worker", "state"),
    "ray._private.internal_api": ("get_memory_info_reply",),
    "ray._private.node:Node": ("all_processes",),
    "ray._private.services:ProcessInfo": ("process",),
    "ray._private.state": ("state",),
    "ray._private.worker": ("_global_node",),
    "ray.actor": ("__ray_call__", "__ray_ready__"),
    "ray.actor:ActorHandle": ("_actor_id",),
    "ray.dag.compiled_dag_node:CompiledDAG": (
        *("actor_to_node_id", "dag_node_to_idx", "idx_to_task", "_proxy_actor"),
    ),
    "ray.dag.compiled_dag_node:CompiledTask": ("args", "dag_node", "output_channels"),
    "ray.dag.context": ("DAGContext",),
    "ray.dag.context:DAGContext": ("buffer_size_bytes", "get_current"),
    "ray.dag:DAGNode": ("get_args", "type_hint"),
    "ray.dag:DAGNode.experimental_compile": ("_max_inflight_executions",),
    "ray.experimental.channel.accelerator_context": ("register_accelerator_context",),
    "ray.experimental.channel.communicator": ("Communicator",),
    "ray.experimental.channel.shared_memory_channel:CompositeChannel": ("_channels",),
    "ray.experimental.rdt.nixl_tensor_transport:NixlTensorTransport": ("get_nixl_agent",),
    "ray.experimental.rdt.util": ("get_tensor_transport_manager",),
    "ray:init": ("_temp_dir",),
    "ray:put": ("_tensor_transport",),
}
OF_OTHER_LIBRARIES = {
    "argparse:_ActionsContainer": ("_actions", "_option_string_actions"),
    "argparse:HelpFormatter": ("_width",),
    "multiprocessing.process:BaseProcess": ("_config",),
    "nixl._api": ("nixl_agent", "nixl_agent_config"),
    "os": ("_exit",),
    "torch": ("_foreach_copy_",),
}


def places_of(table: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
    pairs = []
    for place, names in table.items():
        pairs += [(place, name) for name in names]
    return pairs


def names_in(table: Mapping[str, Iterable[str]]) -> set[str]:
    return {name for _, name in places_of(table)}


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


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def names_defined_in(tree: ast.AST) -> set[str]:
    """Return the names of functions, fields and attributes of self below a node."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node):
            names.add(node.attr)
    return names


def is_own(node: ast.Attribute) -> bool:
    """Return whether an attribute is one of self, cls or super()."""
    return ast.unparse(node.value) in ("self", "cls", "super()")


def is_private(name: object) -> bool:
    return bool(re.fullmatch(r"_[a-zA-Z0-9]\w*|__ray_\w+__", str(name)))


@cache
def own_names() -> set[str]:
    return set().union(*[names_defined_in(tree_of(file)) for file in FILES])


@cache
def public_names_of_classes() -> set[str]:
    """Return the public names that Ray's classes of actors, graphs and transports have.

    Without those that Ray documents, that the laboratory has too, or that objects of other libraries have.
    """
    names: set[str] = set()
    for file in WITH_CLASSES:
        classes = [node for node in ast.walk(tree_of(file)) if isinstance(node, ast.ClassDef)]
        names = names.union(*map(names_defined_in, classes))
    others = set().union(*map(dir, OTHER_OBJECTS))
    public = {name for name in names if not name.startswith("_")}
    return public - own_names() - others - DOCUMENTED


def names_in_attribute(node: ast.Attribute) -> set[str]:
    """Return the name of an attribute if it is private or if it is one of a private module; else nothing."""
    parents = ast.unparse(node.value).split(".")
    is_of_private = parents[0] == "ray" and "_private" in parents
    is_listed = is_private(node.attr) and not (is_own(node) and node.attr in own_names())
    return {node.attr} if is_listed or is_of_private else set()


def names_in_import(node: ast.ImportFrom) -> set[str]:
    """Return what is imported from a private module, or from one that Ray does not document."""
    module = str(node.module)
    parts = module.split(".")
    is_hidden = parts[0] == "ray" and module not in DOCUMENTED_MODULES
    if is_hidden or any(map(is_private, parts)):
        return {alias.name for alias in node.names}
    return set()


def names_in_texts(node: ast.AST) -> set[str]:
    """Return the private names that are texts: of getattr, and keys of arguments."""
    texts: list[ast.expr | None] = []
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr"):
        texts.append(node.args[1])
    elif isinstance(node, ast.Dict):
        texts += node.keys
    elif isinstance(node, ast.Subscript):
        texts.append(node.slice)
    return {
        text.value for text in texts if isinstance(text, ast.Constant) and is_private(text.value)
    }


def undocumented_names_in(file: Path) -> set[str]:
    """Return the private names of Ray and of other libraries that a file uses, and the undocumented ones of Ray.

    A public name of Ray that the laboratory has too, such as `actors`, is not found.
    """
    tree = tree_of(file)
    uses_ray = re.search(r"\bimport ray\b|\bfrom ray\b|\bray_internals\b", file.read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
    # What modules have, such as `ray` itself, is documented if it is public.
    modules = {alias.name.split(".")[0] for node in imports for alias in node.names}
    names = set()
    for node in ast.walk(tree):
        names |= names_in_texts(node)
        if isinstance(node, ast.Attribute):
            names |= names_in_attribute(node)
            is_of_module = ast.unparse(node.value).split(".")[0] in modules
            if uses_ray and not is_of_module and node.attr in public_names_of_classes():
                names.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            names |= names_in_import(node)
        elif isinstance(node, ast.keyword) and is_private(node.arg):
            names.add(str(node.arg))
    return names


@cache
def used_words() -> set[str]:
    """Return the words in the code of the laboratory."""
    words: set[str] = set()
    for file in FILES:
        words |= set(re.findall(r"\w+", ast.unparse(tree_of(file))))
    return words


def has_name(place: str, name: str) -> bool:
    """Return whether a module, class or function of Ray or of another library has an attribute or argument."""
    thing = resolve_name(place)
    if hasattr(thing, name):
        return True
    if inspect.isfunction(thing) and name in inspect.signature(thing).parameters:
        return True
    source = inspect.getsource(thing)
    return bool(re.search(rf'self\.{name}\b.*=|def {name}\(|kwargs\.pop\("{name}"', source))


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
def test_undocumented_names_and_variables_of_ray_are_in_their_rooms(file):
    if name_of(file) not in (*WITH_VARIABLES, ADVICE):
        assert variables_in(file) == set(), "put them into one of WITH_VARIABLES"
    of_ray = undocumented_names_in(file) - names_in(OF_OTHER_LIBRARIES)
    assert of_ray <= names_in(UNDOCUMENTED), "list them in UNDOCUMENTED"
    if file.is_relative_to(PROJECT / "dataflow") and file != INTERNALS:
        assert of_ray <= INTERFACES, "use them in ray_internals.py only"


VIOLATIONS = {
    "graph.actor_to_node_id_list = worker._hidden.x": {"_hidden"},
    "ids = graph.worker_task_refs": {"worker_task_refs"},
    "graph.actor_to_node_id.clear()": {"actor_to_node_id"},
    "class A(Base):\n    def f(self):\n        return self._not_of_the_laboratory": {
        "_not_of_the_laboratory"
    },
    "class A:\n    def f(self):\n        return self._wait()": set(),
    "getattr(channel, '_hidden', [])": {"_hidden"},
    "settings = {'_temp_dir': 1}": {"_temp_dir"},
    "settings['_hidden'] = 1": {"_hidden"},
    "ray.init(_hidden=1)": {"_hidden"},
    "from ray._private import worker": {"worker"},
    "from ray.experimental.channel.common import ChannelContext": {"ChannelContext"},
    "from ray.util.queue import Queue": set(),
    "node = ray._private.worker.global_worker": {"_private", "worker", "global_worker"},
    "actor.__ray_terminate__.remote()": {"__ray_terminate__"},
    "ray.get(actor.step.remote(type(actor).__name__))": set(),
}


@pytest.mark.parametrize(("code", "found"), VIOLATIONS.items())
def test_undocumented_names_are_found(tmp_path, code, found):
    file = tmp_path / "module.py"
    file.write_text(f"import ray\n{code}\n")
    assert undocumented_names_in(file) == found


def test_each_constant_of_the_internals_is_used_by_the_laboratory():
    """One for tests only would change the hash of the code inside the clock, and so part records of equal code."""
    uses = Counter()
    for file in FILES:
        uses.update(re.findall(r"\w+", ast.unparse(tree_of(file))))
    constants = [name for name in vars(ray_internals) if name.isupper()]
    assert [name for name in constants if uses[name] == 1] == []


def test_variables_are_found(tmp_path):
    file = tmp_path / "module.py"
    file.write_text('"""RAY_A."""\nx = {"RAY_B": 1}\n')
    assert variables_in(file) == {"RAY_B"}


@pytest.mark.parametrize(("place", "name"), places_of(UNDOCUMENTED | OF_OTHER_LIBRARIES))
def test_an_undocumented_name_exists_and_is_used(place, name):
    assert has_name(place, name)
    assert name in used_words()


@pytest.mark.parametrize(
    "place", ["ray.dag.compiled_dag_node:CompiledDAG", "ray:init", "ray.actor"]
)
def test_a_name_that_ray_does_not_have_is_not_found(place):
    assert not has_name(place, "_no_version_of_ray_has_it")


def test_the_counters_of_object_stores_exist():
    stats = FormatGlobalMemoryInfoReply().store_stats
    assert stats.cumulative_created_bytes == stats.spilled_bytes_total == 0


def test_a_manager_of_a_transport_is_found_by_its_name():
    assert callable(ray_internals.transport_manager("GLOO").tensor_transport_backend)


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
