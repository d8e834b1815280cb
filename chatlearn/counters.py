"""Count what is done with queues and payloads, per group of iterations."""

import time
from collections import Counter, defaultdict

from common.endpoints.tensors import payload_bytes
from common.errors import RunFailed

OPERATIONS = (
    "queue_actors", "driver_put", "driver_get", "driver_qsize", "driver_payload_gets", "driver_payload_bytes",
    "model_tasks", "stream_dataset_get", "stream_dataset_qsize", "trainer_queue_actors", "trainer_put", "trainer_get",
    "trainer_blocking_gets",
)  # fmt: skip


class QueueCounters:
    """Count the operations of a worker group by name."""

    def __init__(self, workers):
        self.workers = workers
        self.groups = defaultdict(Counter)  # first iteration of a group -> counts; 0: before the first iteration

    def count(self, name, number=1):
        self.groups[self.workers.first_iteration][name] += number

    def begin_iteration(self) -> bool:
        """Count an iteration, and return whether it is the first one of a group."""
        self.count("iterations")
        return self.groups[self.workers.first_iteration]["iterations"] == 1

    def payload_read(self, payload):
        """Count a payload that the driver has read, and return it. The time for counting its bytes is overhead."""
        start = time.perf_counter()
        self.count("driver_payload_gets")
        self.count("driver_payload_bytes", payload_bytes(payload))
        self.workers.driver.overhead_seconds += time.perf_counter() - start
        return payload

    def facts(self):
        """Return fields of the run. Raise RunFailed if two timed groups of the same length have different counts."""
        options = self.workers.plan.options
        timed = [counts for first, counts in self.groups.items() if first > 1 + options.warmup]
        groups = [counts for counts in timed if counts["iterations"] == options.group_size]
        if options.chatlearn:  # the first episodes have fewer samples to train on than the later ones
            groups = groups[options.chatlearn.relay_episodes - 1 :]
        different = {name for counts in groups for name in OPERATIONS if counts[name] != groups[0][name]}
        if different:
            raise RunFailed(f"groups of iterations differ in {', '.join(sorted(different))}")
        operations = {name: groups[0][name] for name in OPERATIONS} if groups else {}
        workers = self.workers.call("message_bytes", options.group_size).values()
        message_bytes = {task: sizes for worker in workers for task, sizes in worker.items()}
        return {"queue_operations": operations, "message_bytes": message_bytes}
