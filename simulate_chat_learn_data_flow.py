"""What does one trip of the RLHF data flow cost over Ray's object store?

                  .------------- 96 MiB -------------.
                  |                                  v
    driver --> policy --> reference -- 64 MiB --> reward --> driver
        32 MiB     96 MiB                          160 MiB

The clock runs from the query in the driver's hand to the reward's output in the driver's hand. Payloads are
made before and checked after, while it stands.

    python3 simulate_chat_learn_data_flow.py
    python3 simulate_chat_learn_data_flow.py --transport driver-queue --iterations 5
"""

from common.run import supervisor

if __name__ == "__main__":
    supervisor.main(__file__, __doc__)  # ends here; a worker imports what follows

import warnings

import ray
from ray.util.queue import Queue

from common.errors import RunFailed
from common.flow.flow import DRIVER
from common.payload.leaves import cut, from_arrays, from_bytes, join, map_tensors, payload_bytes, to_arrays, to_bytes
from common.payload.participant import Model, Participant
from common.run.verdict import INLINED_BYTES
from common.runtime.crew import Crew, Wiring

warnings.filterwarnings("ignore", message="Zero-copy tensor")  # of writing to a view, which nobody does here


# What a queue transport counts of an episode, in every run.
OPERATIONS = (
    "queue_actors", "driver_put", "driver_get", "driver_qsize", "driver_payload_gets", "driver_payload_bytes",
    "model_tasks", "stream_dataset_get", "stream_dataset_qsize", "trainer_queue_actors", "trainer_put", "trainer_get",
    "trainer_blocking_gets",
)  # fmt: skip


class HostModel(Model):
    """As in ChatLearn: the producing worker copies device to host, the reading worker host to device."""

    def forward_step(self, task, *inputs):
        return to_host(super().forward_step(task, *(to_device(message, self.device) for message in inputs)))

    def pump(self, task, inbox, outbox):
        """payload-queue: this actor's own loop body takes the payload itself from queue to queue."""
        output = self.forward_step(task, *(queue.get() for queue in inbox))
        for queue in outbox:
            queue.put(output)


class BytesModel(Model):
    def forward_step(self, task, *blobs):
        edges = self.wire.edges_to(task)
        inputs = [from_bytes(blob, edge.message, self.device) for blob, edge in zip(blobs, edges, strict=True)]
        return to_bytes(super().forward_step(task, *inputs))


class ArrayModel(Model):
    def forward_step(self, task, *arrays):
        return to_arrays(super().forward_step(task, *(from_arrays(message, self.device) for message in arrays)))


class Sized:
    """Says what its messages take when Ray serialises them."""

    def message_bytes(self, count):
        outboxes = {task: outbox for task, outbox in self.outboxes.items() if self.wire.edges_from(task)}
        return {
            task: [serialised_bytes(to_host(outbox.payload(outbox.stamp(number)))) for number in range(1, count + 1)]
            for task, outbox in outboxes.items()
        }


class ChatLearnDriver(Sized, Participant):
    pass


class ChatLearnModel(Sized, HostModel):
    """As in ChatLearn, a model cuts what is larger than it takes at a time, and every rank but the last is silent."""

    def forward_step(self, task, *inputs):
        output, rows = super().forward_step(task, *inputs), self.plan.options.counts("generation_batch")
        if self.place.actor in rows and not self.packed:
            # The models' own work on the pieces is left out; what they give is put together again.
            for message in inputs:
                cut(message, rows[self.place.actor])
            output = join(cut(output, rows[self.place.actor]))
        return output if self.place.answers else None


class Environment:
    """ChatLearn's driver. All messages of an episode are handed over before the first result is asked for, so they go
    breadth-first: all through one model, then all through the next one. What it does to queues is counted as it is
    done. Its last queue is read as ChatLearn's StreamDataset reads it.

    alibaba/ChatLearn at 85ee7dfe, runtime/executor.py and runtime/environment.py.
    """

    def __init__(self, crew):
        self.crew, self.flow, self.options = crew, crew.flow, crew.plan.options
        self.handed_over = self.episode = 0
        self.waiting, self.episodes = [], []
        self.operations = dict.fromkeys(OPERATIONS, 0)
        if not self.options.new_queues:
            self.make_queues()

    def make_queues(self):
        self.queues = {edge: Queue() for edge in self.flow.edges}
        self.last = Queue()
        self.operations["queue_actors"] += len(self.queues) + 1

    def put(self, queue, iteration, data):
        queue.put({"iter": iteration, "data": data})
        self.operations["driver_put"] += 1

    def get(self, queue):
        if self.options.poll_queues:
            self.filled(queue)
        self.operations["driver_get"] += 1
        return queue.get()["data"]

    def filled(self, queue):
        self.operations["driver_qsize"] += 1
        return queue.qsize() > 0

    def submit(self, query):
        if self.episode != self.crew.episode:
            self.episode = self.crew.episode
            self.episodes.append(self.operations)
            self.operations = dict.fromkeys(OPERATIONS, 0)
            if self.options.new_queues:
                self.make_queues()
        self.handed_over += 1
        reference = ray.put(to_host(query))
        for edge in self.flow.edges_from(DRIVER):
            self.put(self.queues[edge], self.handed_over, reference)
        self.waiting.append(self.handed_over)

    def go_through_models(self):
        for task in self.flow.tasks:
            answers = []
            for number in self.waiting:
                inputs = [self.get(self.queues[edge]) for edge in self.flow.edges_to(task.name)]
                for rank in self.ranks(task, number):
                    answer = rank.forward_step.remote(task.name, *inputs)
                    self.operations["model_tasks"] += 1
                for edge in self.flow.edges_from(task.name):
                    self.put(self.queues[edge], number, answer)
                answers.append(answer)
            if self.options.colocated:
                ray.wait(answers, num_returns=len(answers), fetch_local=False)
        returned = [self.queues[edge] for edge in self.flow.edges_to(DRIVER)]
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
            self.left, self.waiting = len(self.waiting), []
        self.more()
        self.operations["stream_dataset_get"] += 1
        references = self.last.get()["data"]
        self.left -= 1
        if not self.left:
            self.more()
        results = fetch(self.crew, references)
        self.operations["driver_payload_gets"] += len(results)
        self.operations["driver_payload_bytes"] += sum(map(payload_bytes, results))
        return results

    def more(self):
        self.operations["stream_dataset_qsize"] += 1
        return self.last.qsize() > 0

    def facts(self):
        """Of one timed episode; the others that are as long must have been alike."""
        length = self.options.trips_in_a_row
        timed = [*self.episodes, self.operations][1:]
        first = 1 + -(-self.options.warmup // self.options.in_flight)
        whole = [found for found in timed[first:] if found["stream_dataset_get"] == length]
        for found in whole:
            if found != whole[0]:
                unlike = [name for name in OPERATIONS if found[name] != whole[0][name]]
                raise RunFailed(f"episodes differ in {', '.join(unlike)}: {found} and {whole[0]}")
        sizes = {task: found for own in self.crew.ask("message_bytes", length).values() for task, found in own.items()}
        return {"operations": whole[0] if whole else {}, "message_bytes": sizes}


def to_host(message):
    return map_tensors(lambda tensor: tensor.cpu(), message)


def serialised_bytes(message):
    context = ray._private.worker.global_worker.get_serialization_context()
    return context.serialize(message).total_bytes


def to_device(message, device):
    return map_tensors(lambda tensor: tensor.to(device), message)


def by_driver_queue(crew: Crew) -> Wiring:
    """The demo's own stand-in for a queue: one slot in the driver, over ray.put and ray.get."""
    crew.start(Model)  # the demo hands tensors over as they are; the driver moves them between host and device
    flow, device, slots = crew.flow, crew.plan.device, {}

    def put(edge, data):
        # ray.put takes no bare reference, so the demo wraps it.
        slots[edge] = ray.put({"reference": data} if isinstance(data, ray.ObjectRef) else to_host(data))

    def get(edge):
        data = ray.get(slots[edge])
        if isinstance(data, dict) and "reference" in data:
            data = ray.get(data["reference"])
        return to_device(data, device)

    def submit(query):
        for task in flow.tasks:
            # Each payload into the driver; the query is there, and as in the demo it passes no queue.
            inputs = [query if edge.source == DRIVER else get(edge) for edge in flow.edges_to(task.name)]
            output = crew.actors[task.actor].forward_step.remote(task.name, *inputs)  # and out again, by value
            for edge in flow.edges_from(task.name):
                put(edge, output)

    def collect(_):
        return [get(edge) for edge in flow.edges_to(DRIVER)]

    path = {str(edge): "argument of a call" if edge.source == DRIVER else "object store, driver" for edge in flow.edges}
    return Wiring(submit, collect, path)


def by_ref_queue(crew: Crew) -> Wiring:
    """What ChatLearn does: queue actors for each edge carry references, resolved in the reading actor."""
    crew.start(ChatLearnModel, ChatLearnDriver)
    environment = Environment(crew)
    paths = {str(edge): "object store, reference by Queue" for edge in crew.flow.edges}
    return Wiring(environment.submit, environment.collect, paths, facts=environment.facts)


def by_payload_queue(crew: Crew) -> Wiring:
    """What people write by mistake: the payload itself goes into the queue actor and out again."""
    crew.start(HostModel)
    flow = crew.flow
    queues = {edge: Queue() for edge in flow.edges}

    def submit(query):
        for edge in flow.edges_from(DRIVER):
            queues[edge].put(to_host(query))
        return [
            crew.actors[task.actor].pump.remote(
                task.name,
                [queues[edge] for edge in flow.edges_to(task.name)],
                [queues[edge] for edge in flow.edges_from(task.name)],
            )
            for task in flow.tasks
        ]

    def collect(pumps):
        ray.get(pumps)  # raises if an actor dies, where the queue alone would wait for ever
        return [to_device(queues[edge].get(), crew.plan.device) for edge in flow.edges_to(DRIVER)]

    return Wiring(submit, collect, {str(edge): "object store, payload by Queue" for edge in flow.edges})


def by_refs(crew: Crew) -> Wiring:
    """References from call to call, no queue."""
    crew.start(HostModel)
    return Wiring(lambda query: call_tasks(crew, to_host(query)), lambda refs: fetch(crew, refs), paths_of_calls(crew))


def by_bytes(crew: Crew) -> Wiring:
    """The same with plain Python bytes, which Ray does not pickle."""
    crew.start(BytesModel)
    edges = crew.flow.edges_to(DRIVER)

    def collect(references):
        blobs = ray.get(references)
        return [from_bytes(blob, edge.message, crew.plan.device) for blob, edge in zip(blobs, edges, strict=True)]

    return Wiring(lambda query: call_tasks(crew, to_bytes(query)), collect, paths_of_calls(crew))


def by_numpy(crew: Crew) -> Wiring:
    """The same with numpy arrays, which Ray lays into the store as they are and readers map."""
    crew.start(ArrayModel)

    def collect(references):
        return [from_arrays(arrays, crew.plan.device) for arrays in ray.get(references)]

    return Wiring(lambda query: call_tasks(crew, to_arrays(query)), collect, paths_of_calls(crew))


def call_tasks(crew, message):
    # Small arguments travel with the call, as Ray's users write it; large ones are put once for all readers.
    emitted = {DRIVER: message if crew.flow.query.bytes <= INLINED_BYTES else ray.put(message)}
    for task in crew.flow.tasks:
        inputs = (emitted[edge.source] for edge in crew.flow.edges_to(task.name))
        emitted[task.name] = crew.actors[task.actor].forward_step.remote(task.name, *inputs)
    return [emitted[source] for source in crew.flow.returns]


def fetch(crew, references):
    return [to_device(message, crew.plan.device) for message in ray.get(references)]


def paths_of_calls(crew):
    """Ray keeps small messages in its calls and answers, and puts the others into the store."""
    ways = {True: "inlined in a call", False: "object store, reference"}
    return {str(edge): ways[edge.bytes <= INLINED_BYTES] for edge in crew.flow.edges}
