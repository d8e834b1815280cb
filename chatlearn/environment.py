"""ChatLearn's driver: an episode's messages through queue actors, and the trainers' steps behind them.

Nothing but references passes through the driver and its queues.
alibaba/ChatLearn at 85ee7dfe: runtime/executor.py, runtime/environment.py, runtime/trainer.py.
"""

import math
from collections import Counter, deque

import ray
from ray.util.queue import Queue

from chatlearn.models import Trainer
from chatlearn.operations import Operations
from common.flow.flow import DATASET, DRIVER
from common.flow.own_code import load_function
from common.payload.leaves import to_device, to_host


class Environment:
    """All messages of an episode are handed over before the first result is asked for, so they go breadth-first: all
    through one model, then all through the next one. StreamDataset reads the last queue, or the driver in its place.
    """

    def __init__(self, crew):
        self.crew, self.options, self.operations = crew, crew.plan.options, Operations(crew)
        self.training = Training(self) if self.options.sink == "trainer" else None
        self.models = [task for task in crew.flow.tasks if task.name != DATASET]
        self.results = crew.flow.edges_to(DATASET if self.training else DRIVER)
        self.edges = [edge for edge in crew.flow.edges if edge.source != DATASET]
        self.handed_over, self.waiting, self.collected = 0, [], []
        if not self.options.new_queues:
            self.make_queues()

    def make_queues(self):
        self.queues = {edge: Queue() for edge in self.edges}
        self.last = Queue()
        self.operations.count("queue_actors", len(self.queues) + 1)

    def put(self, queue, iteration, data):
        queue.put({"iter": iteration, "data": data})
        self.operations.count("driver_put")

    def get(self, queue):
        if self.options.poll_queues:
            self.filled(queue)
        self.operations.count("driver_get")
        return queue.get()["data"]

    def filled(self, queue):
        self.operations.count("driver_qsize")
        return queue.qsize() > 0

    def submit(self, query):
        if self.operations.begins() and self.options.new_queues:
            self.make_queues()
        self.handed_over += 1
        reference = ray.put(to_host(query))
        for edge in self.crew.flow.edges_from(DRIVER):
            self.put(self.queues[edge], self.handed_over, reference)
        self.waiting.append(self.handed_over)

    def go_through_models(self):
        for task in self.models:
            answers = []
            for number in self.waiting:
                inputs = [self.get(self.queues[edge]) for edge in self.crew.flow.edges_to(task.name)]
                for rank in self.ranks(task, number):
                    answer = rank.forward_step.remote(task.name, *inputs)
                    self.operations.count("model_tasks")
                for edge in self.crew.flow.edges_from(task.name):
                    self.put(self.queues[edge], number, answer)
                answers.append(answer)
            if self.options.colocated:
                ray.wait(answers, num_returns=len(answers), fetch_local=False)
        returned = [self.queues[edge] for edge in self.results]
        while self.filled(returned[0]):
            self.put(self.last, 0, [self.get(queue) for queue in returned])

    def ranks(self, task, number):
        """Of the replica whose turn it is; the turns go on across episodes."""
        places = self.crew.plan.places
        return [self.crew.actors[name] for name, place in places.items()
                if place.actor == task.actor and place.takes(number)]  # fmt: skip

    def collect(self, _):
        if self.waiting:
            self.go_through_models()
            count, self.waiting = len(self.waiting), []
            if self.training:
                self.collected = self.training.train(self.last, count)
            else:
                self.collected = self.last_queue(count)
        return next(self.collected)

    def last_queue(self, count):
        """What StreamDataset would read, message by message, fetched by the driver."""
        for _ in range(count):
            self.operations.count("stream_dataset_qsize")
            self.last.qsize()
            self.operations.count("stream_dataset_get")
            results = [self.operations.materialised(message) for message in ray.get(self.last.get()["data"])]
            count -= 1
            if not count:
                self.operations.count("stream_dataset_qsize")
                self.last.qsize()  # which tells it that there is no more
            yield [to_device(message, self.crew.plan.device) for message in results]

    def check(self):
        """Outside the clock: the bytes of samples that did not arrive at the trainers as they should."""
        if not self.training:
            return {}
        edges = self.crew.plan.flow.edges_to(DATASET)
        (rows,) = edges[0].message.rows
        sample_bytes = math.ceil(sum(edge.bytes for edge in edges) / rows)
        return {name: count * sample_bytes for name, count in self.training.check().items()}

    def spans(self):
        """--trace: of the trainers."""
        return self.training.spans() if self.training else {}


class Training:
    """The trainers of an episode: each a number of data-parallel ranks, each of those of tensor and pipeline ranks."""

    def __init__(self, environment):
        self.environment, self.options = environment, environment.options
        self.dataset = environment.crew.actors[DATASET]
        actor, options = ray.remote(num_cpus=0)(Trainer), self.options
        self.trainers = [
            [
                [
                    actor.remote(options.threads, options.model_times.get("trainer", 0.0))
                    for _ in range(options.train_ranks)
                ]
                for _ in range(options.data_parallel)
            ]
            for _ in range(options.trainer_count)
        ]
        if options.relay_sample:
            path = str(environment.crew.plan.here / options.relay_sample)
            self.dataset.sample_by.remote(load_function(path), path.rpartition(":")[0])
        self.epochs = 0
        (self.rows,) = environment.crew.plan.flow.edges_to(DATASET)[0].message.rows
        self.messages = deque(maxlen=options.relay_episodes)  # of the episodes whose samples are trained on

    def train(self, queue, messages):
        """All epochs over an episode's samples; then the words that answer the driver, a list a message."""
        options, operations = self.options, self.environment.operations.now
        self.messages.append(messages)
        self.dataset.open_episode.remote(queue, messages)
        samples = ray.get(self.dataset.sampled.remote()) if options.relay_sample else sum(self.messages) * self.rows
        steps = math.ceil(samples / options.train_global_batch)
        for epoch in range(options.epochs):
            queues = [Queue() for _ in range(1 + len(self.trainers))]
            operations["trainer_queue_actors"] += len(queues)
            self.dataset.open_epoch.remote(epoch)
            for _ in range(steps):
                self.step(queues[1:], operations)
            self.epochs += 1
        words, done = ray.get(self.dataset.close_episode.remote())
        operations.update(done)
        return iter([[word] for word in words])

    def step(self, queues, operations):
        """One global batch: references to its micro-batches, a list for each data-parallel rank of each trainer."""
        options = self.options
        lists = [[] for _ in range(options.data_parallel)]
        for index in range(options.train_global_batch // options.train_micro_batch):
            lists[index % len(lists)].append(self.dataset.next.remote())
            operations["trainer_blocking_gets"] += 1
            ray.get(self.dataset.has_next.remote())
        for queue in queues:
            for references in lists:
                operations["trainer_put"] += 1
                queue.put(references)
        steps = []
        for queue, ranks_of in zip(queues, self.trainers, strict=True):
            for ranks in ranks_of:
                operations["trainer_get"] += 1
                references = queue.get()
                steps += [rank.train_step.remote(references) for rank in ranks]
        ray.get(steps)

    def spans(self):
        ranks = {
            f"trainer {index + 1}, rank {data}.{rank}": actor
            for index, ranks_of in enumerate(self.trainers)
            for data, ranks in enumerate(ranks_of)
            for rank, actor in enumerate(ranks)
        }
        return {name: ray.get(actor.spans.remote()) for name, actor in ranks.items()}

    def check(self):
        """Each sample exactly once an epoch at the ranks of each trainer, every byte of it; how many were not.

        The samples are StreamDataset's; whether these are as many as the messages had rows is asked first.
        """
        expected, wrong = ray.get(self.dataset.sample_digests.remote()), {}
        lost = sum(self.messages) * self.rows - sum(expected.values())
        if lost and not self.options.relay_sample:
            wrong[DATASET] = abs(lost)
        expected = Counter({sample: count * self.epochs for sample, count in expected.items()})
        self.epochs = 0
        for index, ranks_of in enumerate(self.trainers):
            found = [ray.get([rank.sample_digests.remote() for rank in ranks]) for ranks in ranks_of]
            alike = all(own == ranks[0] for ranks in found for own in ranks)
            arrived = sum((ranks[0] for ranks in found), Counter())
            bad = max(sum((expected - arrived).values()), sum((arrived - expected).values()), int(not alike))
            if bad:
                wrong[f"stream-dataset -> trainer {index + 1}"] = bad
        return wrong
