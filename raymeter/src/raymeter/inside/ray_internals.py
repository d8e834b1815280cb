"""Everything private of Ray that raymeter uses inside of the user's processes.

The names were seen in Ray 2.44.1, 2.52.1 and 2.60.0, if nothing else is said. A name that a version of Ray does not
have is listed in the profile as missing, and what it would have recorded is not recorded.
"""

import os
from pkgutil import resolve_name

import ray

worker = ray._private.worker.global_worker
FOLDER = os.path.dirname(ray.__file__) + os.sep

# What `ray.init` reads from the environment. PRELOAD is read by each worker at its start.
RUNTIME_ENV_HOOK = "RAY_RUNTIME_ENV_HOOK"
PRELOAD = "RAY_preload_python_modules"

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
PICKLE_FUNCTION = "ray.remote_function:pickle_dumps"
PICKLE_CLASS = "ray._private.function_manager:pickle_dumps"
FETCH_FUNCTION = (
    "ray._private.function_manager:FunctionActorManager.fetch_and_register_remote_function"
)

# Module attributes that are replaced by functions that call them: what a pickle and its buffers contain.
PICKLE_MODULE = "ray._private.serialization:pickle"
MESSAGE_PACK_OBJECT = "ray._private.serialization:MessagePackSerializedObject"


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


def current_actor() -> object | None:
    """Return the actor that lives in this process."""
    return worker.actors.get(worker.actor_id)


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
    return ray._private.state.state._get_all_task_events()


def task_state(number: int) -> str:
    """Return the name of a state of a task, such as "RUNNING"."""
    return resolve_name("ray.core.generated.common_pb2:TaskStatus").Name(number)


def task_type(number: int) -> str:
    """Return "NORMAL_TASK", "ACTOR_TASK", "ACTOR_CREATION_TASK" or "DRIVER_TASK"."""
    return resolve_name("ray.core.generated.common_pb2:TaskType").Name(number)


def store_statistics() -> object:
    """Return the statistics of the object stores of all nodes, a message of node_manager_pb2."""
    get_reply = resolve_name("ray._private.internal_api:get_memory_info_reply")
    return get_reply(ray._private.state.state).store_stats


def references() -> list:
    """Return what each core worker says of its references, as `ray memory` reads it, without a dashboard."""
    get_reply = resolve_name("ray._private.internal_api:get_memory_info_reply")
    return list(get_reply(ray._private.state.state).core_workers_stats)


def uv_hook() -> str:
    """Return the name of Ray's own hook for programs that are started with `uv run` (2.46 and newer)."""
    return "ray._private.runtime_env.uv_runtime_env_hook.hook"
