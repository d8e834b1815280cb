# SPDX-License-Identifier: Apache-2.0
"""Everything private of Ray that raymeter uses inside of the user's processes.

The names were seen in Ray 2.44.1, 2.52.1 and 2.60.0, if nothing else is said. A name that a version of Ray does not
have is listed in the profile as missing, and what it would have recorded is not recorded.
"""

import contextlib
import functools
import inspect
import io
import os
import pickle
import sys
from pkgutil import resolve_name
from types import FrameType
from typing import Any

import ray

from . import by_class, raylet

worker = ray._private.worker.global_worker
asynchronous = by_class.ByClass()  # whether a class has methods that are coroutines
FOLDER = os.path.dirname(ray.__file__) + os.sep

STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep

NODE_STATISTICS = "/ray.rpc.NodeManagerService/GetNodeStats"

# What `ray.init` reads from the environment. PRELOAD is read by each worker at its start.
RUNTIME_ENV_HOOK = "RAY_RUNTIME_ENV_HOOK"
PRELOAD = "RAY_preload_python_modules"
UV_HOOK = "ray._private.runtime_env.uv_runtime_env_hook:hook"
# The module whose `update_envs` sets the variables of a worker with a runtime_env.
ENVIRONMENT_CONTEXT = "ray._private.runtime_env.context"
UV_COMMAND = "ray._private.runtime_env.uv_runtime_env_hook:_get_uv_run_cmdline"

# Functions and methods that are wrapped, by what they do.
GET = "ray._private.worker:Worker.get_objects"
PUT = "ray._private.worker:Worker.put_object"
WAIT = "ray._private.worker:wait"
SHUTDOWN = "ray._private.worker:shutdown"
CALL_METHOD = "ray.actor:ActorHandle._actor_method_call"
CALL_TASK = "ray.remote_function:RemoteFunction._remote"
CREATE_ACTOR = "ray.actor:ActorClass._remote"
SERIALISE = "ray._private.serialization:SerializationContext.serialize"
SERIALISE_RDT = "ray._private.serialization:SerializationContext.serialize_rdt_objects"  # 2.60
DESERIALISE = "ray._private.serialization:SerializationContext._deserialize_object"
WRITE_CHANNEL = "ray.experimental.channel.shared_memory_channel:Channel.write"
NEXT = "ray._private.object_ref_generator:ObjectRefGenerator._next_sync"  # 2.60; older: _raylet
OLDER_NEXT = "ray._raylet:ObjectRefGenerator._next_sync"
NAMES_OF_NEXT = {NEXT, OLDER_NEXT}  # of one function: 2.44 has the older one only
PICKLE_FUNCTION = "ray.remote_function:pickle_dumps"
PICKLE_CLASS = "ray._private.function_manager:pickle_dumps"
FETCH_FUNCTION = (
    "ray._private.function_manager:FunctionActorManager.fetch_and_register_remote_function"
)
MAKE_EXECUTOR = "ray._private.function_manager:FunctionActorManager._make_actor_method_executor"
FIND_FUNCTION = "ray._private.function_manager:FunctionActorManager.get_execution_info"

# A compiled graph runs methods in a task of this name, from functions with these names.
COMPILED_LOOP = "__ray_call__"
COMPILED_FRAMES = ("exec_operation", "_write", "_read", "_compute")

# Functions that make or end a compiled graph, with many calls of Ray, some of them in a loop that waits.
GRAPH_MODULE = "ray.dag.compiled_dag_node"
GRAPH_FOLDER = os.path.join(FOLDER, "dag") + os.sep
GRAPH_FUNCTIONS = ("experimental_compile", "_get_or_compile", "teardown")

# Module attributes that are replaced by functions that call them: what a pickle and its buffers contain.
PICKLE_MODULE = "ray._private.serialization:pickle"
MESSAGE_PACK_OBJECT = "ray._private.serialization:MessagePackSerializedObject"

# Ray Data makes a block of each batch that a function of the user has returned, in a task that has its transformer.
DATA_BLOCK = "ray.data.block"
DATA_ACCESSOR = "BlockAccessor"
BATCH_TO_BLOCK = "batch_to_block"
DATA_TASK = "_map_task"
DATA_TRANSFORMER = "map_transformer"
DATA_PACKAGE = "ray.data."
MAX_DATA_FRAMES = 100  # between a task of Ray Data and what it calls

# cloudpickle pickles the code of a class that readers cannot import. These functions make the class of it again.
CLOUDPICKLE = "ray.cloudpickle.cloudpickle"
MAKE_CLASS = "_make_skeleton_class"
BUILTIN_TYPE = "_builtin_type"
SET_CLASS = "_class_setstate"
CLASSES_BY_ID = "ray.cloudpickle.cloudpickle:_DYNAMIC_CLASS_TRACKER_BY_ID"


def replace_in_ray(name: str, original: object, wrapper: object) -> None:
    """Let a function of the module `ray` be a wrapper of it, or call this wrapper.

    Ray's functions there first start Ray if needed, and call the original, which is a variable of their closure. The
    user may have imported them before. Nothing happens if `ray` has no function of this name that calls the original.
    """
    shown = getattr(ray, name, None)
    if shown is original:
        setattr(ray, name, wrapper)
        return
    for cell in getattr(shown, "__closure__", None) or ():
        if cell.cell_contents is original:
            cell.cell_contents = wrapper


def environment_context() -> Any:
    """Return the module that gives a new worker the variables of its runtime_env, with `update_envs`."""
    return resolve_name(ENVIRONMENT_CONTEXT)


def start_workers_with(script: str) -> None:
    """Let a cluster that this process starts run a script in place of Ray's setup_worker.py.

    Ray joins this name to a folder, and so an absolute path stays as it is. The name of the script must be the same:
    by it, Ray knows that workers without a runtime_env do not need it.
    """
    ray._private.ray_constants.SETUP_WORKER_FILENAME = script


def is_worker() -> bool:
    """Return whether this process runs tasks, and is no driver."""
    return worker.mode == ray.WORKER_MODE


def is_connected() -> bool:
    return bool(worker.connected)


def current_task() -> str:
    """Return the id of the task that this thread runs; the driver has one, too."""
    return worker.current_task_id.hex()


def current_node() -> str:
    return worker.current_node_id.hex()


def current_name() -> str:
    """Return the name of the running task or method, such as "Trainer.train"; "" if there is none."""
    if worker.current_task_name:
        return worker.current_task_name
    actor = worker.actors.get(
        worker.actor_id
    )  # an async actor reads arguments outside of its tasks
    return type(actor).__name__ if actor else ""


def running_functions() -> list[Any]:
    """Return the functions that may be the task that runs in this process; [] for a method, or if it has ended."""
    name = worker.current_task_function_name if is_worker() else ""
    return functions_named(name)


def functions_named(name: str) -> list[Any]:
    """Return the functions that this process knows under the name of a task.

    A function of the script is exported as "__main__.load", and runs as "train.load" or "load". So only what follows
    the module is compared, and several functions may have this name. Return [] for "", and for an unknown name.
    """
    short = name.rpartition(".")[2]
    known = getattr(worker.function_actor_manager, "_function_execution_info", {})
    functions = []
    for item in list(known.values()):
        exported = getattr(item, "function_name", "")
        if short and exported.rpartition(".")[2] == short:
            functions.append(item.function)
    return functions


def compiled_method() -> str:
    """Return the name of the method that a compiled graph runs in this thread; "" if it runs none."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in COMPILED_FRAMES:
            task = frame.f_locals.get("self")
            return getattr(task, "method_name", "")
        frame = frame.f_back
    return ""


def graph_function() -> str:
    """Return the function with which the user makes or ends a compiled graph, if this thread is in it; else ""."""
    if GRAPH_MODULE not in sys.modules:
        return ""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name in GRAPH_FUNCTIONS and code.co_filename.startswith(GRAPH_FOLDER):
            return code.co_name
        frame = frame.f_back
    return ""


def data_accessor() -> Any:
    """Return the class with which Ray Data makes blocks; None if this process has not imported it."""
    return getattr(sys.modules.get(DATA_BLOCK), DATA_ACCESSOR, None)


def data_transformer() -> Any:
    """Return what holds the user's functions in the task of Ray Data that runs in this thread; None without one."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MAX_DATA_FRAMES):
        if frame is None:
            return None
        if frame.f_code.co_name == DATA_TASK and frame.f_code.co_filename.startswith(FOLDER):
            return take_local(frame, DATA_TRANSFORMER)
        frame = frame.f_back
    return None


def take_local(frame: FrameType, name: str) -> Any:
    """Return a variable of a running function; None without one.

    Before Python 3.13, a frame keeps the dict of its variables that was asked for, and with it their values of this
    moment, such as a large block. It is emptied here, which changes no variable of a function.
    """
    local_variables = frame.f_locals
    found = local_variables.get(name)
    if type(local_variables) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        local_variables.clear()
    return found


def is_of_data(item: Any) -> bool:
    """Return whether an object belongs to Ray Data."""
    return module_of(type(item)).startswith(DATA_PACKAGE)


def module_of(kind: type) -> str:
    """Return the module of a class; "" without one. Its metaclass is not asked, which may be the user's."""
    try:
        module = type.__dict__["__module__"].__get__(kind)
    except AttributeError:  # of a type that is written in C
        return ""
    return module if type(module) is str else ""


def current_actor() -> object | None:
    """Return the actor that lives in this process."""
    return worker.actors.get(worker.actor_id)


def users_class(value: Any) -> Any:
    """Return the class that the user has written, from which Ray has made a class of actors; others as they are."""
    return getattr(value, "__ray_actor_class__", value)


def has_event_loop() -> bool:
    """Return whether the actor in this process runs its methods in an event loop: one of them is a coroutine."""
    actor = current_actor()
    return actor is not None and has_coroutines(type(actor))


def has_coroutines(kind: type) -> bool:
    """Return whether a class has methods that are coroutines or async generators, as Ray asks."""
    if kind not in asynchronous:
        asynchronous.set(kind, find_coroutines(kind))
    return bool(asynchronous.get(kind))


def find_coroutines(kind: type) -> bool:
    """Return what `has_coroutines` does, for a class that is not known yet."""
    methods = [method for _, method in inspect.getmembers(kind)]
    are_coroutines = any(inspect.iscoroutinefunction(method) for method in methods)
    return are_coroutines or any(inspect.isasyncgenfunction(method) for method in methods)


def creation_task(actor_id: object) -> str:
    """Return the id of the task that creates an actor."""
    return type(worker.current_task_id).for_actor_creation_task(actor_id).hex()


def starts_cluster(local_variables: dict) -> bool:
    """Return whether `ray.init`, whose local variables these are, starts a cluster and joins none."""
    services = ray._private.services
    find_address = getattr(services, "canonicalize_bootstrap_address", None)
    if find_address is None:
        return False
    return not find_address(local_variables["address"], local_variables["_temp_dir"])


def task_events() -> list:
    """Return what Ray's control service knows of all tasks, as messages of gcs_pb2.TaskEvents.

    Workers report it once per `RAY_task_events_report_interval_ms`.
    """
    read_all = getattr(ray._private.state.state, "_get_all_task_events", None)
    if read_all is not None:  # in 2.60, and neither in 2.44 nor in 2.52
        return read_all()
    kind = resolve_name("ray.core.generated.gcs_pb2:TaskEvents")
    return [kind.FromString(event) for event in control_service().get_task_events()]


def control_service() -> Any:
    """Return the client of Ray's control service."""
    state = ray._private.state.state
    connect = getattr(state, "_connect_and_get_accessor", None)  # in 2.52 and 2.60
    if connect is not None:
        return connect()
    state._check_connected()  # in 2.44
    return state.global_state_accessor


def cluster_cpus() -> float:
    """Return how many CPUs all living nodes have for tasks, as the program has said or Ray has found."""
    return sum_resource("CPU")


def cluster_memory() -> float:
    """Return how many bytes of memory all living nodes have for tasks: by default, 70 % of what is free."""
    return sum_resource("memory")


def sum_resource(name: str) -> float:
    """Return how much of a resource all living nodes have."""
    return sum(resources.get(name, 0.0) for resources in resources_of_nodes())


def resources_of_nodes() -> list[dict[str, float]]:
    """Return how much of each resource each living node has, such as {"CPU": 8.0, "GPU": 1.0}."""
    return [node["Resources"] for node in ray._private.state.state.node_table() if node["Alive"]]


def task_state(number: int) -> str:
    """Return the name of a state of a task, such as "RUNNING"."""
    return resolve_name("ray.core.generated.common_pb2:TaskStatus").Name(number)


def task_type(number: int) -> str:
    """Return "NORMAL_TASK", "ACTOR_TASK", "ACTOR_CREATION_TASK" or "DRIVER_TASK"."""
    return resolve_name("ray.core.generated.common_pb2:TaskType").Name(number)


def node_statistics(with_references: bool = False) -> list:
    """Return the id of each living node, and what its raylet knows of its store, as a message of GetNodeStatsReply.

    With references, also what each core worker says of its references, as `ray memory` reads it, without a dashboard.
    Raise OSError or RayletError if a node does not answer.
    """
    messages = resolve_name("ray.core.generated.node_manager_pb2")
    request = messages.GetNodeStatsRequest(include_memory_info=with_references).SerializeToString()
    replies = []
    for node in ray._private.state.state.node_table():
        if node["Alive"]:
            host, port = node["NodeManagerAddress"], node["NodeManagerPort"]
            answer = raylet.ask(host, port, NODE_STATISTICS, request, authorization())
            reply = messages.GetNodeStatsReply.FromString(answer)
            replies.append((node["NodeID"], reply))
    return replies


def authorization() -> list:
    """Return the headers with the token of the cluster; none before 2.52, or for a cluster without tokens."""
    loader = getattr(ray._raylet, "AuthenticationTokenLoader", None)
    if loader is None or not loader.instance().has_token():
        return []
    return list(loader.instance().get_token_for_http_header().items())


def reference_kind(reference: Any) -> str:
    """Return why an object is kept, from an ObjectRefInfo: the words are those of `ray memory`."""
    if reference.pinned_in_memory:
        return "PINNED_IN_MEMORY"
    if reference.submitted_task_ref_count:
        return "USED_BY_PENDING_TASK"
    if reference.local_ref_count:
        return "LOCAL_REFERENCE"
    if reference.contained_in_owned:
        return "CAPTURED_IN_OBJECT"
    return "UNKNOWN"


def make_serialiser() -> tuple:
    """Return the function with which Ray serialises a message, and whether all of Ray's reducers are in it.

    Ray's context registers its reducers (Arrow tables, tensors by view) with cloudpickle. It needs no cluster, but for
    messages with references. Return None and False if this version makes no context without a cluster.
    """
    try:
        if is_connected():
            return worker.get_serialization_context().serialize, True
        make_context = resolve_name("ray._private.serialization:SerializationContext")
        return make_context(worker).serialize, True
    except Exception:
        return None, False


def is_started_by_uv_run() -> bool:
    """Return whether Ray would call its own hook for `uv run` (2.46 and newer)."""
    if not hasattr(ray._private.ray_constants, "RAY_ENABLE_UV_RUN_RUNTIME_ENV"):
        return False
    try:
        find_command = resolve_name(UV_COMMAND)
    except (ImportError, AttributeError):
        return False
    return bool(find_command())


def serialise_parts(value: Any) -> tuple:
    """Return what Ray's serialisation makes of a value: msgpack data, a pickle, and the buffers outside of it.

    The pickle is empty if msgpack can hold all of the value. Bytes are returned as they are in the place of
    msgpack data. References in the value are not counted as sent, and are not pinned. Raise what cloudpickle raises.
    Seen in 2.44 to 2.60.
    """
    if type(value) is bytes:
        return value, b"", []
    context = serialisation_context()
    objects: list[Any] = []
    buffers: list[Any] = []

    def collect(item: Any) -> int:
        objects.append(item)
        return len(objects) - 1

    pack = ray._raylet.MessagePackSerializer.dumps(value, collect)
    if not objects:
        return pack, b"", buffers
    context.set_in_band_serialization()
    try:
        pickled = ray.cloudpickle.dumps(objects, protocol=5, buffer_callback=buffers.append)
    finally:
        context.set_out_of_band_serialization()
        context.get_and_clear_contained_object_refs()
    return pack, pickled, buffers


def deserialise_parts(pack: bytes, pickled: bytes, buffers: list, kind: type) -> Any:
    """Make a value of this type of what `serialise_parts` has returned. Bytes are copied."""
    if kind is bytes:
        return bytearray(pack)
    objects = load(pickled, buffers) if pickled else []
    return ray._raylet.MessagePackSerializer.loads(pack, objects.__getitem__)


def load(pickled: bytes, buffers: list) -> Any:
    """Unpickle a message in the process that has made it, and leave the user's classes as they are."""
    if not has_class_code(pickled):
        return ray.cloudpickle.loads(pickled, buffers=buffers)
    file = io.BufferedReader(io.BytesIO(pickled))  # which the unpickler reads in large pieces
    return UnpicklerOfSender(file, buffers=buffers).load()


def has_class_code(pickled: bytes) -> bool:
    """Return whether the code of a class is in a pickle."""
    return SET_CLASS.encode() in pickled


class UnpicklerOfSender(pickle.Unpickler):
    """Read a message without making its classes again.

    cloudpickle would find that this process has the class already, and would give it all attributes again: copies of
    its class variables, and of its methods with other global variables. A new subclass would be announced, too.
    """

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if module != CLOUDPICKLE:
            return found
        if name == SET_CLASS:
            return keep_class
        return functools.partial(known_class, found) if name == MAKE_CLASS else found


def keep_class(kind: type, state: tuple) -> None:
    """Take the place of cloudpickle's function that gives a class its attributes."""


def known_class(
    make: Any, constructor: type, name: str, bases: tuple, values: dict, *identity: Any
) -> type:
    """Return the class that this process has, by the id that cloudpickle gave it; else make one as cloudpickle does."""
    kind = resolve_name(CLASSES_BY_ID).get(identity[0])
    return kind if kind is not None else make(constructor, name, bases, values, *identity)


def serialisation_context() -> Any:
    """Return Ray's context, which has registered Ray's reducers; without a cluster a new one."""
    if is_connected():
        return worker.get_serialization_context()
    make_context = resolve_name("ray._private.serialization:SerializationContext")
    return make_context(worker)


def registered_reducer(kind: type) -> Any:
    """Return the function with which the program has registered how a class is pickled; None for Ray's own, or none.

    `ray.util.register_serializer` wraps the user's function, which is a variable of the one that is registered.
    """
    reducer = ray.cloudpickle.CloudPickler.dispatch.get(kind)
    if reducer is None:
        return None
    for function in [*captured_functions(reducer), reducer]:
        code = getattr(function, "__code__", None)
        if code is not None and not code.co_filename.startswith((FOLDER, STANDARD_LIBRARY)):
            return function
    return None


def captured_functions(function: Any) -> list[Any]:
    """Return the variables of outer functions that a function uses, of those that can be called and have a value."""
    functions = []
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # it has no value yet, or no more
            value = cell.cell_contents
            if callable(value):
                functions.append(value)
    return functions
