"""Run ChatLearn's driver: the messages of an episode through queue actors, and the trainers' steps behind them.

Only references pass through the driver and its queues.
alibaba/ChatLearn at 85ee7dfe: runtime/executor.py, runtime/environment.py, runtime/trainer.py.
"""

import math
from collections import Counter, deque

import ray
from ray.util.queue import Queue

from dataflow.endpoints.codecs import HOST
from dataflow.flows.flow import DRIVER
from dataflow.studies.chatlearn.flags import DATASET
from dataflow.studies.chatlearn.models import ChatLearnActor, Trainer
from dataflow.studies.chatlearn.trainer import count_wrong
from dataflow.workers.worker_group import Connection, WorkerGroup


class Driver:
    """Send the messages of an episode breadth first: all go through one model, then all through the next one.

    All queries of an episode are submitted before the first `collect`, which runs the models and the trainers.
    """

    def __init__(self, workers):
        self.workers, self.plan, self.flow = workers, workers.plan, workers.sent_flow
        self.options = self.plan.options
        self.makes_new_queues = self.options.episode and not self.options.keep_queues
        self.training = Training(workers) if self.options.sink == "trainer" else None
        self.models = [task for task in self.flow.tasks if task.name != DATASET]
        self.submitted, self.waiting = 0, []  # waiting: numbers of messages that have not gone through the models
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
                for name, worker in self.plan.workers.items():
                    if worker.actor == task.actor and worker.receives(number):
                        answer = self.workers.actors[name].forward_step.remote(task.name, *inputs)
                for edge in self.flow.edges_from(task.name):
                    self.queues[edge].put({"iter": number, "data": answer})  # of the last rank
        queues = [self.queues[edge] for edge in self.flow.edges_to(DATASET if self.training else DRIVER)]
        while queues[0].qsize():
            self.last_queue.put({"iter": 0, "data": [queue.get()["data"] for queue in queues]})

    def read_results(self, queue, messages):
        """Yield the results of each message, read from the queue as StreamDataset does."""
        queue.qsize()
        for _ in range(messages):
            queue.qsize()
            yield HOST.decode_all(ray.get(queue.get()["data"]), self.flow.edges_to(DRIVER), self.plan.device)


class Training:
    """Run the steps of the trainers behind StreamDataset. A trainer is one actor per data-parallel rank."""

    def __init__(self, workers):
        self.options = options = workers.plan.options
        self.dataset = workers.actors[DATASET]
        actor, seconds = ray.remote(num_cpus=0)(Trainer), options.model_times.get("trainer", 0.0)
        trainers, ranks = range(options.trainers), range(options.data_parallel)
        self.trainers = [[actor.remote(options.threads, seconds) for _ in ranks] for _ in trainers]
        edges = workers.plan.task_flow.edges_to(DATASET)
        (self.batch_size,) = edges[0].message.sample_counts
        self.sample_bytes = math.ceil(sum(edge.bytes for edge in edges) / self.batch_size)
        self.messages: deque[int] = deque(maxlen=options.relay_episodes)  # of each episode whose samples are trained on

    def train(self, queue, messages):
        """Train on the samples of an episode, and return StreamDataset's acknowledgement of each message."""
        self.messages.append(messages)
        samples = sum(self.messages) * self.batch_size
        self.dataset.begin_episode.remote(queue, samples - messages * self.batch_size)
        queues = [Queue() for _ in range(1 + len(self.trainers))]  # ChatLearn's queue of results stays empty
        for _ in range(math.ceil(samples / self.options.train_global_batch)):
            self.step(queues[1:])
        return ray.get(self.dataset.end_episode.remote())

    def step(self, queues):
        """Train on one global batch: each data-parallel rank gets a list of references to micro-batches."""
        lists: list[list] = [[] for _ in range(self.options.data_parallel)]
        for index in range(self.options.train_global_batch // self.options.train_micro_batch):
            lists[index % len(lists)].append(self.dataset.next.remote())
            ray.get(self.dataset.has_next.remote())
        for queue in queues:
            for references in lists:
                queue.put(references)
        steps = []
        for queue, ranks in zip(queues, self.trainers, strict=True):
            steps += [rank.train_step.remote(queue.get()) for rank in ranks]
        ray.get(steps)

    def spans(self):
        return {
            f"trainer {index}, rank {number}": ray.get(rank.spans.remote())
            for index, ranks in enumerate(self.trainers, 1)
            for number, rank in enumerate(ranks)
        }

    def check(self):
        """Return the bytes of samples that StreamDataset lost, or that a trainer did not receive exactly once."""
        kept = ray.get(self.dataset.sample_digests.remote())
        wrong = {DATASET: abs(sum(self.messages) * self.batch_size - kept.total())}
        for index, ranks in enumerate(self.trainers, 1):
            received: Counter = sum(ray.get([rank.sample_digests.remote() for rank in ranks]), Counter())
            wrong[f"{DATASET} -> trainer {index}"] = count_wrong(kept, received)
        return {name: count * self.sample_bytes for name, count in wrong.items() if count}


def by_ref_queue(workers: WorkerGroup) -> Connection:
    """Do as ChatLearn: queue actors carry references, and the reading actor gets the payload."""
    workers.start(ChatLearnActor, codec=HOST)
    driver = Driver(workers)
    functions: dict = {}
    if driver.training:
        functions = {"check": driver.training.check, "spans": driver.training.spans}
    data_paths = {str(edge): "object store, reference by Queue" for edge in workers.sent_flow.edges}
    return Connection(driver.submit, driver.collect, data_paths, **functions)


TRANSPORTS = {"ref-queue": by_ref_queue}
