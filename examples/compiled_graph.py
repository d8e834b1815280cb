# SPDX-License-Identifier: Apache-2.0
"""Compile calls that repeat into a graph, whose channels are made once. The type hint "shm" avoids pickling.

    python3 -m examples.compiled_graph

In the tables of this suite: `store refs` before, `graph shm` after.
"""

from functools import cache

import ray
from ray.dag import DAGContext, InputNode

from common.cluster import remove_semaphores
from examples.actors import Rollout, Trainer, print_times, start


def before(rollout, trainer):
    return ray.get(trainer.train.remote(rollout.generate.remote("prompt")))


@cache
def compile_graph(rollout, trainer):
    with InputNode() as prompt:
        tokens = rollout.generate.bind(prompt).with_tensor_transport("shm")
        # Each channel gets two buffers. A buffer grows at its first larger message.
        return trainer.train.bind(tokens).experimental_compile(_max_inflight_executions=2)


def after(graph):
    return ray.get(graph.execute("prompt"))


if __name__ == "__main__":
    with remove_semaphores():  # Ray 2.60 leaves those of the channels
        *actors, rollout, trainer = start(Rollout, Trainer, Rollout, Trainer)
        print_times(lambda: before(*actors), lambda: after(compile_graph(rollout, trainer)))
        # With the type hint, the trainer does not stop by itself, and is killed after this time.
        DAGContext.get_current().teardown_timeout = 1  # second
        compile_graph(rollout, trainer).teardown(kill_actors=True)
        ray.shutdown()
