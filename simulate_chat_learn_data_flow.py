"""What does one trip of the RLHF data flow cost over Ray's object store?

                  .------------- 96 MiB -------------.
                  |                                  v
    driver --> policy --> reference -- 64 MiB --> reward --> driver
        32 MiB     96 MiB                          160 MiB

The clock runs from the query in the driver's hand to the reward's output in the driver's hand. Payloads are
made before and checked after, while it stands.

    --transport ref-queue      what ChatLearn does: queue actors carry references (the default)
    --transport driver-queue   the demo's own baseline: the driver materialises and re-sends every payload
    --transport payload-queue  what people write by mistake: the payload itself goes through the queue actor
    --transport refs           references alone, no queue
    --zero-copy                with any of them: readers map tensors in shared memory instead of copying

    python3 simulate_chat_learn_data_flow.py
    python3 simulate_chat_learn_data_flow.py --transport driver-queue --iterations 5
"""

import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from common import case
from common.command_line import UsageError
from common.flows import DRIVER, Flow
from common.measurement import Wiring

TRANSPORTS = dict.fromkeys(("ref-queue", "driver-queue", "payload-queue", "refs"), "copied")


def settle(arguments: Namespace, flow: Flow, gpus: int) -> int:
    """Refuse what is another script's; how many GPUs to use."""
    if arguments.reuse_buffers:
        raise UsageError("--reuse-buffers is for the compiled graph's shm: leave it out")
    return gpus


@contextmanager
def connect(arguments: Namespace, flow: Flow, start: Callable[..., tuple[dict[str, Any], Any]]) -> Iterator[Wiring]:
    """Start the roles and yield the transport's send(query) -> results."""
    import ray
    from ray.util.queue import Queue

    from common.actors import Participant, Role

    class HostRole(Role):
        """As in ChatLearn: the producing worker copies device to host, the reading worker host to device."""

        def forward_step(self, *inputs):
            return super().forward_step(*(tensor.to(self.device) for tensor in inputs)).cpu()

        def pump(self, inbox, outbox):
            """payload-queue: this role's own loop body takes the payload itself from queue to queue."""
            output = self.forward_step(*(queue.get() for queue in inbox))
            for queue in outbox:
                queue.put(output)

    class DriverQueue:
        """The demo's stand-in for a queue: one slot in the driver, over ray.put and ray.get."""

        def put(self, data):
            # ray.put takes no bare reference, so the demo wraps it.
            self.slot = ray.put({"reference": data} if isinstance(data, ray.ObjectRef) else data.cpu())

        def get(self):
            data = ray.get(self.slot)
            if isinstance(data, dict):
                data = ray.get(data["reference"])
            return data.to(arguments.device)

    def driver_queue(query):
        for role in flow.roles:
            # Each payload into the driver; the query is there, and as in the demo it passes no queue.
            inputs = [query if edge.source == DRIVER else queues[edge].get() for edge in flow.edges_to(role.name)]
            output = roles[role.name].forward_step.remote(*inputs)  # and out again, by value
            for edge in flow.edges_from(role.name):
                queues[edge].put(output)
        return [queues[edge].get() for edge in flow.edges_to(DRIVER)]

    def ref_queue(query):
        iteration = int(query[0])
        reference = ray.put(query.cpu())
        for edge in flow.edges_from(DRIVER):
            queues[edge].put({"iter": iteration, "data": reference})
        for role in flow.roles:
            references = [queues[edge].get()["data"] for edge in flow.edges_to(role.name)]
            output = roles[role.name].forward_step.remote(*references)  # resolved in the reading actor
            for edge in flow.edges_from(role.name):
                queues[edge].put({"iter": iteration, "data": output})
        return fetch([queues[edge].get()["data"] for edge in flow.edges_to(DRIVER)])

    def payload_queue(query):
        for edge in flow.edges_from(DRIVER):
            queues[edge].put(query.cpu())
        pumps = [
            roles[role.name].pump.remote(
                [queues[edge] for edge in flow.edges_to(role.name)],
                [queues[edge] for edge in flow.edges_from(role.name)],
            )
            for role in flow.roles
        ]
        ray.get(pumps)  # raises if a role dies, where the queue alone would wait for ever
        return [queues[edge].get().to(arguments.device) for edge in flow.edges_to(DRIVER)]

    def refs(query):
        emitted = {DRIVER: ray.put(query.cpu())}
        for role in flow.roles:
            emitted[role.name] = roles[role.name].forward_step.remote(*(emitted[source] for source in role.reads))
        return fetch([emitted[source] for source in flow.returns])

    def fetch(references):
        return [tensor.to(arguments.device) for tensor in ray.get(references)]

    if arguments.zero_copy:  # what Ray and torch warn of, writing to a view, does not happen here
        warnings.filterwarnings("ignore", message="Zero-copy tensor|The given NumPy array is not writable")
    # The demo hands tensors over as they are; everybody else moves them through host memory by hand.
    roles, _ = start(Role if arguments.transport == "driver-queue" else HostRole, Participant)
    queue_class = {"driver-queue": DriverQueue, "refs": lambda: None}.get(arguments.transport, Queue)
    queues = {edge: queue_class() for edge in flow.edges}
    send = {"driver-queue": driver_queue, "ref-queue": ref_queue, "payload-queue": payload_queue, "refs": refs}
    carrier = {"refs": "reference"}.get(arguments.transport, queue_class.__name__)
    path = {str(edge): f"object store, {carrier}" for edge in flow.edges}
    yield Wiring(send[arguments.transport], path, mapped=arguments.zero_copy)


SCRIPT = case.Script(__file__, __doc__, TRANSPORTS, "ref-queue", settle, connect)

if __name__ == "__main__":
    sys.exit(case.run(SCRIPT))
