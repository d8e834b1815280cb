# SPDX-License-Identifier: Apache-2.0
"""Run ChatLearn's driver: the messages of an episode go through queue actors, breadth first.

Only references pass through the driver and its queues.
alibaba/ChatLearn at 85ee7dfe: runtime/executor.py, runtime/environment.py.
"""

from collections.abc import Iterator
from typing import Any

import ray
from ray.util.queue import Queue

from dataflow.endpoints.tensors import HOST
from dataflow.flows.flow import DRIVER, Edge, Task
from dataflow.studies.chatlearn.counts import counts_of
from dataflow.studies.chatlearn.flags import DATASET, chatlearn_flags
from dataflow.studies.chatlearn.processes import start_processes
from dataflow.studies.chatlearn.training import Training
from dataflow.workers.worker_group import Connection, WorkerGroup


class Driver:
    """Send the messages of an episode: all go through one model, then all through the next one.

    All queries of an episode are submitted before the first `collect`, which runs the models and the trainers.
    """

    def __init__(self, workers: WorkerGroup) -> None:
        """Start the processes of models and of any trainers, and make the queues, unless each episode makes new ones.

        Raise Ray's error if the process of a model cannot be constructed. Those of trainers are not waited for.
        """
        self.workers = workers
        self.plan = workers.plan
        self.flow = workers.sent_flow
        flags = chatlearn_flags(self.plan.options)
        self.makes_new_queues = flags.episode and not flags.keep_queues
        self.processes = start_processes(workers)
        self.counts = counts_of(workers.driver)
        has_trainer = flags.sink == "trainer"
        self.training = Training(workers) if has_trainer else None
        self.reader = DATASET if self.training else DRIVER  # of the results
        self.submitted = 0
        self.waiting: list[int] = []  # numbers of messages that have not gone through the models
        self.results: Iterator[Any] = iter(())  # of the messages of this episode
        if not self.makes_new_queues:
            self.make_queues()

    def make_queues(self) -> None:
        """Make a queue per edge, and the one that StreamDataset reads."""
        edges = [edge for edge in self.flow.edges if edge.source != DATASET]
        self.queues = {edge: Queue() for edge in edges}
        self.last_queue = Queue()
        self.counts.count("queue_actors", len(self.queues) + 1)

    def put(self, queue: Any, number: int, data: Any) -> None:
        self.counts.count("driver_put")
        queue.put({"iter": number, "data": data})

    def get(self, queue: Any) -> Any:
        self.counts.count("driver_get")
        return queue.get()["data"]

    def has_messages(self, queue: Any) -> bool:
        self.counts.count("driver_qsize")
        return queue.qsize() > 0

    def get_inputs(self, edges: tuple[Edge, ...]) -> list[Any]:
        """Return a reference to the next message of each edge."""
        return [self.get(self.queues[edge]) for edge in edges]

    def submit(self, query: Any) -> None:
        """Put a query into the object store, and its reference into the queues of its readers.

        With new queues per episode, make them before its first query.
        """
        self.submitted += 1
        if self.makes_new_queues and self.submitted == self.workers.first_iteration:
            self.make_queues()
        reference = ray.put(HOST.encode(query))
        for edge in self.flow.edges_from(DRIVER):
            self.put(self.queues[edge], self.submitted, reference)
        self.waiting.append(self.submitted)

    def collect(self, _: Any) -> Any:
        """Return the results of the next message, or StreamDataset's acknowledgement of it.

        It is called once per query. The first call of an episode runs the models for all of its queries.
        """
        if self.waiting:
            self.run_models()
            self.results = self.read_episode(len(self.waiting))
            self.waiting = []
        return next(self.results)

    def read_episode(self, messages: int) -> Iterator[Any]:
        if self.training:
            return iter(self.training.train(self.last_queue, messages))
        return self.read_results(messages)

    def run_models(self) -> None:
        """Call each model once per waiting message, and put references to the results into the last queue.

        It does not wait for the results.
        """
        for task in self.flow.tasks:
            if task.name != DATASET:
                for number in self.waiting:
                    self.call_model(task, number)
        returned = self.flow.edges_to(self.reader)
        while self.has_messages(self.queues[returned[0]]):
            self.put(self.last_queue, 0, self.get_inputs(returned))

    def call_model(self, task: Task, number: int) -> None:
        """Call all ranks of the next replica with a message, and queue a reference to the answer of the last one."""
        inputs = self.get_inputs(self.flow.edges_to(task.name))
        processes = self.processes[task.actor]
        replica = processes.layout.replica_of(number)
        if processes.layout.replicas > 1:
            self.counts.note_replica(task.actor, replica)
        for process in processes.actors[replica]:
            answer = process.forward_step.remote(task.name, *inputs)
            self.counts.count("model_tasks")
        for edge in self.flow.edges_from(task.name):
            self.put(self.queues[edge], number, answer)

    def read_results(self, messages: int) -> Iterator[Any]:
        """Yield the results of each message, read from the queue as StreamDataset does."""
        edges = self.flow.edges_to(DRIVER)
        self.ask_size_as_dataset()
        for _ in range(messages):
            self.ask_size_as_dataset()
            self.counts.count("stream_dataset_get")
            references = self.last_queue.get()["data"]
            payloads = ray.get(references)
            self.counts.count("driver_payload_gets", len(payloads))
            yield HOST.decode_all(payloads, edges, self.plan.device)

    def ask_size_as_dataset(self) -> None:
        self.counts.count("stream_dataset_qsize")
        self.last_queue.qsize()

    def check(self) -> dict[str, int]:
        return self.training.check() if self.training else {}

    def spans(self) -> dict[str, Any]:
        """Return the spans of the processes that are not workers of the plan."""
        return self.training.spans() if self.training else {}


def by_ref_queue(workers: WorkerGroup) -> Connection:
    """Do as ChatLearn: queue actors carry references, and the reading actor gets the payload."""
    driver = Driver(workers)
    data_paths = {str(edge): "object store, reference by Queue" for edge in workers.sent_flow.edges}
    return Connection(
        driver.submit, driver.collect, data_paths, check=driver.check, spans=driver.spans
    )


TRANSPORTS = {"ref-queue": by_ref_queue}
