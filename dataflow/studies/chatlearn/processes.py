# SPDX-License-Identifier: Apache-2.0
"""Start the processes of ChatLearn's models: the replicas, and the ranks of each replica."""

from dataclasses import dataclass
from typing import Any

import ray

from dataflow.endpoints.tensors import HOST
from dataflow.studies.chatlearn.flags import chatlearn_flags
from dataflow.studies.chatlearn.layout import ModelLayout, process_name
from dataflow.studies.chatlearn.models import ChatLearnActor
from dataflow.workers.worker_group import WorkerGroup


@dataclass
class ModelProcesses:
    """The processes of a model."""

    layout: ModelLayout
    actors: list[list[Any]]  # by replica and rank


def start_processes(workers: WorkerGroup) -> dict[str, ModelProcesses]:
    """Start the actors of all models, and of the dataset if there is one, and return their processes.

    All are workers of the run, and verify messages. Raise Ray's error if one cannot be constructed. The progress table
    has one row per model. It names the process that is started first.
    """
    workers.start(ChatLearnActor, codec=HOST)
    progress = workers.driver.progress
    first_processes = list(progress.processes_written)
    models = workers.plan.task_flow.actors
    layouts = chatlearn_flags(workers.plan.options).layouts(models)
    for model, layout in layouts.items():
        start_further_processes(workers, model, layout)
    workers.call("learn_digests", workers.driver.digests)
    for index, process in enumerate(first_processes):
        progress.processes_written[index] = process
    processes: dict[str, ModelProcesses] = {}
    for model, layout in layouts.items():
        actors = find_actors(model, layout, workers.actors)
        processes[model] = ModelProcesses(layout, actors)
    return processes


def find_actors(model: str, layout: ModelLayout, actors: dict[str, Any]) -> list[list[Any]]:
    """Return the actors of a model by replica and rank."""
    found: list[list[Any]] = []
    for replica in range(layout.replicas):
        names = [process_name(model, replica, rank) for rank in range(layout.ranks)]
        found.append([actors[name] for name in names])
    return found


def start_further_processes(workers: WorkerGroup, model: str, layout: ModelLayout) -> None:
    """Start the processes of a model besides its first one, on the same node. It does not wait for them."""
    node = workers.worker_nodes[model]
    settings = actor_settings(workers, node)
    for replica in range(layout.replicas):
        for rank in range(layout.ranks):
            name = process_name(model, replica, rank)
            if name == model:
                continue
            # Ray names the process after the class.
            named_class = type(name, (ChatLearnActor,), {})
            make_remote = ray.remote(**settings)
            actor_class = make_remote(named_class)
            actor = actor_class.remote(workers.plan, model, HOST, replica, rank)
            workers.actors[name] = actor
            workers.worker_nodes[name] = node


def actor_settings(workers: WorkerGroup, node: int) -> dict[str, Any]:
    """Return Ray's settings of an actor on a node, as those of the first process of each model."""
    settings: dict[str, Any] = {"num_cpus": 0}
    settings["num_gpus"] = workers.plan.gpus_per_actor
    if not workers.nodes:
        return settings
    settings["scheduling_strategy"] = workers.nodes.affinity(node)
    if workers.plan.options.address:
        variables = workers.nodes.network_settings(node)
        settings["runtime_env"] = {"env_vars": variables}
    return settings
