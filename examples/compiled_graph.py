"""Compile calls that repeat into a graph, whose channels are made once. The type hint "shm" avoids pickling.

    python3 -m examples.compiled_graph

In the tables of this suite: `store refs` before, `graph shm` after.
"""

from functools import cache

import ray
from ray.dag import InputNode

from examples.actors import Rollout, Trainer, print_times, start


def before(rollout, trainer):
    return ray.get(trainer.train.remote(rollout.generate.remote("prompt")))


@cache
def compile_graph(rollout, trainer):
    with InputNode() as prompt:
        tokens = rollout.generate.bind(prompt).with_tensor_transport("shm")
        return trainer.train.bind(tokens).experimental_compile(_buffer_size_bytes=65 * 2**20)


def after(graph):
    return ray.get(graph.execute("prompt"))


if __name__ == "__main__":
    *actors, rollout, trainer = start(Rollout, Trainer, Rollout, Trainer)
    print_times(lambda: before(*actors), lambda: after(compile_graph(rollout, trainer)))
    for actor in (rollout, trainer):  # graph.teardown() can hang in Ray 2.60 with the type hint
        ray.kill(actor)
