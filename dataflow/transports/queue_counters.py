"""Count the operations of queue transports, and the bytes of their messages as Ray serialises them."""

from collections import ChainMap, Counter, defaultdict
from functools import partial

import ray

from dataflow.endpoints.tensors import map_tensors, payload_bytes, to_host
from dataflow.errors import RunFailed


class QueueCounters:
    """Count what is done with queues and payloads, per group of iterations."""

    def __init__(self, workers, unequal_groups=0):
        """`unequal_groups`: the first timed groups, which may have other counts than those after them."""
        self.workers, self.unequal_groups = workers, unequal_groups
        self.groups = defaultdict(Counter)  # first iteration of a group -> counts; 0: before the first iteration

    def count(self, name, number=1):
        self.groups[self.workers.first_iteration][name] += number

    def receive(self, payload):
        """Count a payload that the driver has read, and return it on the driver's device."""
        self.count("driver_payload_gets")
        self.count("driver_payload_bytes", payload_bytes(payload))
        device = self.workers.plan.device
        return map_tensors(lambda tensor: tensor.to(device), payload)

    def facts(self):
        """Return fields of the run. Raise RunFailed if two timed groups of the same length have different counts."""
        options = self.workers.plan.options
        timed = [counts for first, counts in self.groups.items() if first >= self.workers.first_timed]
        groups = [counts for counts in timed if counts["iterations"] == options.group_size][self.unequal_groups :]
        different = {name for counts in groups for name in counts | groups[0] if counts[name] != groups[0][name]}
        if different:
            raise RunFailed(f"groups of iterations differ in {', '.join(sorted(different))}")
        operations = dict(groups[0]) if groups else {}
        sizes = self.workers.run_in_all(partial(message_bytes, count=options.group_size))
        return {"queue_operations": operations, "message_bytes": dict(ChainMap(*sizes.values()))}


def message_bytes(endpoint, count):
    """Return, for each task of an endpoint, the bytes of its messages 1 to `count` as Ray serialises them."""
    serialize = ray._private.worker.global_worker.get_serialization_context().serialize
    return {
        task: [serialize(to_host(endpoint.make_payload(number, task))).total_bytes for number in range(1, count + 1)]
        for task in endpoint.outboxes
        if endpoint.sent_flow.edges_from(task)
    }
