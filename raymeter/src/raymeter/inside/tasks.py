# SPDX-License-Identifier: Apache-2.0
"""Read what Ray itself has recorded of all tasks, when the driver ends.

Ray keeps, for each task, the times of its states and of what its worker did (seen in 2.44 to 2.60): the arguments
were deserialised, the task was executed, its results were stored. Workers report it after at most
RAY_task_events_report_interval_ms. The copy of a result into the store is in no other place.
"""

import functools
import json
import time
import zlib

from . import ray_internals

REPORT_SECONDS = (
    0.4  # longer than the interval at which workers report, which raymeter sets to 200 ms
)
OWN_INTERVAL = "200"
OTHER_REPORT_SECONDS = 1.5  # of a cluster that raymeter has not started
MAX_TASKS = 50_000
GPU = "GPU"
STATES = {  # of TaskStatus in Ray's common.proto; other states are left out
    "PENDING_ARGS_AVAIL": "submitted",
    "PENDING_NODE_ASSIGNMENT": "waits_for_node",
    "PENDING_OBJ_STORE_MEM_AVAIL": "waits_for_store",
    "SUBMITTED_TO_WORKER": "sent_to_worker",
    "RUNNING": "running",
    "FINISHED": "finished",
    "FAILED": "failed",
}
PHASES = {
    "task:deserialize_arguments": "deserialise",
    "task:execute": "execute",
    "task:store_outputs": "store",
}


def wait_for_reports(is_own_cluster):
    time.sleep(REPORT_SECONDS if is_own_cluster else OTHER_REPORT_SECONDS)


def read_tasks():
    """Return a dict per task of this job, and how many tasks are left out: of many, those in the middle are kept.

    A dict has ids, name, process, and the times of its states and of its phases in seconds.
    """
    job = ray_internals.worker.current_job_id.binary()
    events = [event for event in ray_internals.task_events() if event.job_id == job]
    left_out = max(0, len(events) - MAX_TASKS)
    if left_out:
        events.sort(key=first_time)
    first = left_out // 2
    kept = events[first : first + MAX_TASKS]
    return [describe_task(event) for event in kept], left_out


def first_time(event):
    """Return the time of the first state of a task; tasks without one are the first."""
    return min(event.state_updates.state_ts_ns.values(), default=0)


def describe_cluster():
    """Return how many CPUs, how much memory, and how many GPUs of each node Ray gives to tasks at the same time."""
    nodes = ray_internals.resources_of_nodes()
    return {
        "event": "cluster",
        "cpus": ray_internals.cluster_cpus(),
        "memory": ray_internals.cluster_memory(),
        "gpus": [resources[GPU] for resources in nodes if GPU in resources],
    }


def sum_of(runtime_env):
    """Return a number that is equal for equal runtime environments; 0 for an empty one. No value of it is stored."""
    if runtime_env in ("", "{}"):
        return 0
    return zlib.crc32(runtime_env.encode())


@functools.lru_cache(maxsize=1000)
def sums_of_parts(runtime_env):
    """Return such a number for each part of a runtime environment, as "pip"; {} if it is empty or can't be read."""
    try:
        parts = json.loads(runtime_env or "{}")
        return {name: zlib.crc32(json.dumps(part).encode()) for name, part in parts.items()}
    except (ValueError, AttributeError):
        return {}


def describe_task(event):
    """Return the event of a task with its states (seconds since 1970) and phases (start and end) that Ray knows."""
    info = event.task_info
    updates = event.state_updates
    task = {
        "event": "task",
        "task": event.task_id.hex(),
        "name": info.name,
        "type": ray_internals.task_type(info.type),
        "parent": info.parent_task_id.hex(),
        "actor": info.actor_id.hex(),
        "pid": updates.worker_pid,
        "node": updates.node_id.hex(),
        "attempt": event.attempt_number,
        "cpus": info.required_resources.get("CPU", 0.0),
        "gpus": info.required_resources.get(GPU, 0.0),
        "resources": [name for name in info.required_resources if name != "CPU"],
        "runtime_env": sum_of(info.runtime_env_info.serialized_runtime_env),
        "parts_of_env": sums_of_parts(info.runtime_env_info.serialized_runtime_env),
    }
    for key, nanoseconds in updates.state_ts_ns.items():
        state = STATES.get(ray_internals.task_state(key))
        if state:
            task[state] = nanoseconds / 1e9
    for phase in event.profile_events.events:
        name = PHASES.get(phase.event_name)
        if name:
            task[name] = [phase.start_time / 1e9, phase.end_time / 1e9]
    return task
