"""Run ChatLearn's driver: the messages of an episode through queue actors, and the trainer's steps behind them.

Only references pass through the driver and its queues.
alibaba/ChatLearn at 85ee7dfe: runtime/executor.py, runtime/environment.py, runtime/trainer.py.
"""

import math

import ray
from ray.util.queue import Queue

from dataflow.endpoints.tensors import HOST
from dataflow.flows.flow import DRIVER
from dataflow.studies.chatlearn import DATASET
from dataflow.studies.chatlearn.models import ChatLearnActor, Trainer, count_wrong
from dataflow.workers.worker_group import Connection, WorkerGroup


class Driver:
    """Send the messages of an episode breadth first: all go through one model, then all through the next one.

    All queries of an episode are submitted before the first `collect`, which runs the models and the trainer.
    """

    def __init__(self, workers):
        self.workers, self.plan, self.flow = workers, workers.plan, workers.sent_flow
        self.options = self.plan.options
        self.makes_new_queues = self.options.episode and not self.options.keep_queues
        self.training = Training(workers) if self.options.sink == "trainer" else None
        self.models = [task for task in self.flow.tasks if task.name != DATASET]
        self.submitted, self.waiting = (
            0,
            [],
        )  # waiting: numbers of messages that have not gone through the models
        if not self.makes_new_queues:
            self.make_queues()

    def make_queues(self):
        self.queues = {edge: Queue() for edge in self.flow.edges if edge.source != DATASET}
        self.last_queue = Queue()

    def submit(self, query):
        """Put a query into the object store, and its reference into the queues of its readers."""
        self.submitted += 1
        if self.makes_new_queues and self.submitted == self.workers.first_iteration:
            self.make_queues()
        reference = ray.put(HOST.encode(query))
        for edge in self.flow.edges_from(DRIVER):
            self.queues[edge].put({"iter": self.submitted, "data": reference})
        self.waiting.append(self.submitted)

    def collect(self, _):
        """Return the results of the next message, or StreamDataset's acknowledgement of it."""
        if self.waiting:
            self.run_models()
            read_queue = self.training.train if self.training else self.read_results
            self.results = iter(read_queue(self.last_queue, len(self.waiting)))
            self.waiting = []
        return next(self.results)

    def run_models(self):
        """Call each model with all waiting messages, and put references to the results into the last queue."""
        for task in self.models:
            for number in self.waiting:
                inputs = [self.queues[edge].get()["data"] for edge in self.flow.edges_to(task.name)]
                answer = self.workers.actors[task.actor].forward_step.remote(task.name, *inputs)
                for edge in self.flow.edges_from(task.name):
                    self.queues[edge].put({"iter": number, "data": answer})
        queues = [
            self.queues[edge] for edge in self.flow.edges_to(DATASET if self.training else DRIVER)
        ]
        while queues[0].qsize():
            self.last_queue.put({"iter": 0, "data": [queue.get()["data"] for queue in queues]})

    def read_results(self, queue, messages):
        """Yield the results of each message, read from the queue as StreamDataset does."""
        queue.qsize()
        for _ in range(messages):
            queue.qsize()
            yield HOST.decode_all(
                ray.get(queue.get()["data"]), self.flow.edges_to(DRIVER), self.plan.device
            )


class Training:
    """Run the steps of the trainer behind StreamDataset."""

    def __init__(self, workers):
        self.options = options = workers.plan.options
        self.dataset = workers.actors[DATASET]
        step_seconds = options.model_times.get("trainer", 0.0)
        self.trainer = ray.remote(num_cpus=0)(Trainer).remote(options.threads, step_seconds)
        edges = workers.plan.task_flow.edges_to(DATASET)
        (self.batch_size,) = edges[0].message.sample_counts
        self.sample_bytes = math.ceil(sum(edge.bytes for edge in edges) / self.batch_size)

    def train(self, queue, messages):
        """Train on the samples of an episode, and return StreamDataset's acknowledgement of each message."""
        self.samples = messages * self.batch_size  # of this episode
        self.dataset.begin_episode.remote(queue)
        batches, _ = Queue(), Queue()  # ChatLearn's queue of results stays empty
        for _ in range(math.ceil(self.samples / self.options.train_global_batch)):
            self.step(batches)
        return ray.get(self.dataset.end_episode.remote())

    def step(self, queue):
        """Train on one global batch: the trainer gets a list of references to micro-batches."""
        references = []
        for _ in range(self.options.train_global_batch // self.options.train_micro_batch):
            references.append(self.dataset.next.remote())
            ray.get(self.dataset.has_next.remote())
        queue.put(references)
        ray.get(self.trainer.train_step.remote(queue.get()))

    def spans(self):
        return {"trainer": ray.get(self.trainer.spans.remote())}

    def check(self):
        """Return the bytes of samples that StreamDataset lost, or that the trainer did not receive exactly once."""
        kept, received = ray.get(
            [actor.sample_digests.remote() for actor in (self.dataset, self.trainer)]
        )
        wrong = {
            DATASET: abs(self.samples - kept.total()),
            f"{DATASET} -> trainer": count_wrong(kept, received),
        }
        return {name: count * self.sample_bytes for name, count in wrong.items() if count}


def by_ref_queue(workers: WorkerGroup) -> Connection:
    """Do as ChatLearn: queue actors carry references, and the reading actor gets the payload."""
    workers.start(ChatLearnActor, codec=HOST)
    driver = Driver(workers)
    training = driver.training
    functions: dict = {"check": training.check, "spans": training.spans} if training else {}
    data_paths = {str(edge): "object store, reference by Queue" for edge in workers.sent_flow.edges}
    return Connection(driver.submit, driver.collect, data_paths, **functions)


TRANSPORTS = {"ref-queue": by_ref_queue}
