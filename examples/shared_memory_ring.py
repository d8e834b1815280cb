# SPDX-License-Identifier: Apache-2.0
"""Write messages into shared memory that the reader maps, and send only a handle: docs/in-your-code.md explains it.

Over the object store, the trainer gets a copy; here, a view that it must not write to, nor keep after `release`.
"""

import os
import tempfile

import ray

from dataflow.flows.flow import Edge
from dataflow.flows.message import flat_message
from dataflow.transports.shared_ring import Ring, View
from examples import actors

EDGE = Edge("rollout", "trainer", flat_message(64 * 2**20))
SLOTS = 3


class Rollout(actors.Rollout):
    def begin(self, folder):
        self.ring = Ring(folder, EDGE.source, EDGE.bytes, SLOTS, [EDGE.reader], timeout=60)

    def write(self):
        return self.ring.write(self.tokens)  # waits until the reader has released the slot


class Trainer(actors.Trainer):
    def begin(self, folder):
        self.view = View(folder, EDGE, SLOTS, 1, [EDGE.reader])

    def read(self, handle):
        result = self.train(self.view.open(handle))
        self.view.release()
        return result


if __name__ == "__main__":
    pair = rollout, trainer = actors.start(Rollout, Trainer)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix=f"ring-{os.getpid()}-") as folder:
        for actor in pair:  # the writer first
            ray.get(actor.begin.remote(folder))
        actors.measure(
            "object store", lambda: ray.get(trainer.train.remote(rollout.generate.remote())), pair
        )
        actors.measure("ring", lambda: ray.get(trainer.read.remote(rollout.write.remote())), pair)
