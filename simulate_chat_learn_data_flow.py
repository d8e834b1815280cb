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
    --transport bytes          the same with plain Python bytes, which Ray does not pickle
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

from common.flow.flow import DRIVER, Flow
from common.run import worker as case
from common.run.options import UsageError
from common.run.trips import Wiring
from common.run.verdict import INLINED_BYTES

TRANSPORTS = dict.fromkeys(("ref-queue", "driver-queue", "payload-queue", "refs", "bytes"), "copied")


def settle(arguments: Namespace, flow: Flow, gpus: int) -> int:
    """Refuse what is another script's; how many GPUs to use."""
    if arguments.zero_copy and arguments.transport == "bytes":
        raise UsageError("--zero-copy maps tensors, not bytes: leave it out, or give --transport refs")
    if arguments.reuse_buffers:
        raise UsageError("--reuse-buffers is for the compiled graph's shm: leave it out")
    return gpus


@contextmanager
def connect(arguments: Namespace, flow: Flow, start: Callable[..., tuple[dict[str, Any], Any]]) -> Iterator[Wiring]:
    """Start the roles and yield the transport's send(query) -> results."""
    import ray
    import torch
    from ray.util.queue import Queue

    from common.payload.participant import Participant, Role

    class HostRole(Role):
        """As in ChatLearn: the producing worker copies device to host, the reading worker host to device."""

        def forward_step(self, *inputs):
            return super().forward_step(*(tensor.to(self.device) for tensor in inputs)).cpu()

        def pump(self, inbox, outbox):
            """payload-queue: this role's own loop body takes the payload itself from queue to queue."""
            output = self.forward_step(*(queue.get() for queue in inbox))
            for queue in outbox:
                queue.put(output)

    class BytesRole(Role):
        def forward_step(self, *messages):
            return to_bytes(super().forward_step(*map(from_bytes, messages)))

    def to_bytes(tensor):
        return tensor.cpu().numpy().tobytes()

    def from_bytes(message):
        return torch.frombuffer(message, dtype=torch.uint8 if len(message) % 8 else torch.int64).to(arguments.device)

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
        return fetch(call_roles(query.cpu()))

    def send_bytes(query):
        return [from_bytes(message) for message in ray.get(call_roles(to_bytes(query)))]

    def call_roles(message):
        # Small arguments travel with the call, as Ray's users write it; large ones are put once for all readers.
        emitted = {DRIVER: message if flow.query_bytes <= INLINED_BYTES else ray.put(message)}
        for role in flow.roles:
            emitted[role.name] = roles[role.name].forward_step.remote(*(emitted[source] for source in role.reads))
        return [emitted[source] for source in flow.returns]

    def fetch(references):
        return [tensor.to(arguments.device) for tensor in ray.get(references)]

    # What Ray and torch warn of, writing to a view or to bytes, does not happen here.
    warnings.filterwarnings("ignore", message="Zero-copy tensor|The given (NumPy array|buffer) is not writable")
    # The demo hands tensors over as they are; everybody else moves them through host memory by hand.
    role_class = {"driver-queue": Role, "bytes": BytesRole}.get(arguments.transport, HostRole)
    roles, _ = start(role_class, Participant)
    no_queue = dict.fromkeys(("refs", "bytes"), lambda: None)
    queue_class = ({"driver-queue": DriverQueue} | no_queue).get(arguments.transport, Queue)
    queues = {edge: queue_class() for edge in flow.edges}
    ways = (ref_queue, driver_queue, payload_queue, refs, send_bytes)
    send = dict(zip(TRANSPORTS, ways, strict=True))
    carrier = "reference" if arguments.transport in no_queue else queue_class.__name__
    path = {str(edge): f"object store, {carrier}" for edge in flow.edges}
    yield Wiring(send[arguments.transport], path, mapped=arguments.zero_copy)


SCRIPT = case.Script(__file__, __doc__, TRANSPORTS, "ref-queue", settle, connect)

if __name__ == "__main__":
    sys.exit(case.run(SCRIPT))
