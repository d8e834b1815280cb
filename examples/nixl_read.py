# SPDX-License-Identifier: Apache-2.0
"""Let the reader in a compiled graph fetch a tensor by NIXL from the memory of its producer. The graph has the address.

The trainer gets a copy that it may keep, as over the object store. It needs nixl, and one machine.
"""

from itertools import count

import ray
from ray.dag import InputNode

from common.cluster import remove_semaphores
from dataflow.flows.flow import Edge
from dataflow.flows.message import flat_message
from dataflow.transports.nixl_memory import Agent, KeptTargets, Reader, Sender
from examples import actors

EDGE = Edge("rollout", "trainer", flat_message(64 * 2**20))


class Rollout(actors.Rollout):
    def begin(self):
        agent = Agent(EDGE.source)
        self.sender = Sender(agent, EDGE.source, [[self.tokens]], [EDGE], timeout=60)
        return agent.metadata(), self.sender.handle()

    def write(self, number):
        self.sender.acquire(number)  # waits until the last message has been read
        self.tokens[0] = number
        return self.sender.handle()


class Trainer(actors.Trainer):
    def begin(self, metadata_and_handle):
        metadata, handle = metadata_and_handle
        agent = Agent(EDGE.reader)
        agent.add(metadata)
        self.reader = Reader(agent, EDGE, EDGE.source, KeptTargets(agent, EDGE.message), timeout=60)
        self.reader.try_to_read(handle)  # if this machine does not allow it, the error says so here

    def read(self, handle):
        return self.train(self.reader.read(handle))


if __name__ == "__main__":
    with remove_semaphores():  # Ray 2.60 leaves those of the channels
        pair = rollout, trainer = actors.start(Rollout, Trainer)
        ray.get(trainer.begin.remote(rollout.begin.remote()))
        actors.measure(
            "object store", lambda: ray.get(trainer.train.remote(rollout.generate.remote())), pair
        )
        with InputNode() as number:
            graph = trainer.read.bind(rollout.write.bind(number)).experimental_compile()
        numbers = count(1)
        actors.measure("graph", lambda: ray.get(graph.execute(next(numbers))), pair)
        graph.teardown()
        ray.shutdown()
