# SPDX-License-Identifier: Apache-2.0
"""Run ChatLearn's episodes in one process: queues are lists, remote calls are calls, and operations are counted."""

from collections import Counter
from types import SimpleNamespace
from typing import ClassVar

import ray
import torch

from dataflow.endpoints.progress_table import ProgressTable
from dataflow.endpoints.tensors import Codec, map_tensors
from dataflow.measure.driver_report import DriverReport
from dataflow.measure.loop import Measurement
from dataflow.measure.warm_up import WarmUp, iteration_groups
from dataflow.records.schema import Run
from dataflow.studies.chatlearn import driver as driver_module
from dataflow.studies.chatlearn import trainer as trainer_module
from dataflow.workers.worker_group import WorkerGroup

BATCH_SIZE = 8
SMALL = ("--transport", "ref-queue", "--batch-size", str(BATCH_SIZE), "--prompt-len", "uniform:4:8",
         "--response-len", "6", "--warmup", "2")  # fmt: skip


class LocalActor:
    """An object whose methods are called as those of a Ray actor."""

    def __init__(self, target):
        self.target = target

    def __getattr__(self, name):
        return SimpleNamespace(remote=getattr(self.target, name))


class LocalWorkers(WorkerGroup):
    def _start_actors(self, actor_class, extra):
        self.actors = {
            name: LocalActor(actor_class(self.plan, name, *extra))
            for name in self.plan.worker_names[1:]
        }

    def _run_in_actors(self, function):
        return {name: function(actor.target) for name, actor in self.actors.items()}


class ListQueue(list):
    operations: ClassVar[Counter] = Counter()  # of all queues of a run

    def __init__(self):
        self.operations["made"] += 1

    def put(self, item):
        self.operations["put"] += 1
        self.append(item)

    def qsize(self):
        self.operations["qsize"] += 1
        return len(self)

    def get(self):
        self.operations["get"] += 1
        return self.pop(0)


class LocalRun:
    """A run that was measured in this process."""

    def __init__(self, plan, connection, run, workers):
        self.plan = plan
        self.connection = connection
        self.run = run
        self.actors = {name: actor.target for name, actor in workers.actors.items()}
        self.queue_operations = dict(ListQueue.operations)  # as the queues counted them

    @property
    def measured(self):
        return self.run.measured["chatlearn"]

    @property
    def operations(self):
        return self.measured["operations"]

    @property
    def episodes(self):
        """The number of messages of each episode, the untimed ones included."""
        groups = iteration_groups(self.plan, WarmUp(is_fixed=True))
        return [len(numbers) for numbers, _ in groups]

    def expect_ok(self):
        assert (self.run.status, self.run.reason) == ("ok", None)
        return self


def copy_payloads(self, payloads, edges, device):
    """Return copies, as a transport gives each of its readers."""
    return [map_tensors(torch.clone, payload) for payload in payloads]


def make_runner(make_plan, monkeypatch, folder):
    """Return a function that runs episodes in this process: run(*flags) -> LocalRun."""

    def remote(**_):
        return lambda kind: SimpleNamespace(remote=lambda *arguments: LocalActor(kind(*arguments)))

    monkeypatch.setattr(ray, "put", lambda value: value)
    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(ray, "remote", remote)
    monkeypatch.setattr(Codec, "decode_all", copy_payloads)
    monkeypatch.setattr(driver_module, "Queue", ListQueue)
    monkeypatch.setattr(trainer_module, "Queue", ListQueue)

    def run(*flags):
        plan = make_plan("store", *SMALL, *flags, run_folder=folder)
        (folder / "progress").unlink(missing_ok=True)
        ProgressTable(folder, plan.worker_names, plan.total_iterations)
        workers = LocalWorkers(plan)
        ListQueue.operations.clear()
        connection = driver_module.by_ref_queue(workers)
        report = DriverReport(Run(data_paths=connection.data_paths))
        Measurement(plan, workers, connection, report).measure()
        return LocalRun(plan, connection, report.run, workers)

    return run


def episode_flags(count, episodes=3):
    """Return the flags of so many timed episodes of `count` messages."""
    iterations = str(episodes * count)
    return ("--episode", str(count), "--in-flight", str(count), "--iterations", iterations)
