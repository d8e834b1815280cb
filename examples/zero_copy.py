# SPDX-License-Identifier: Apache-2.0
"""Let a reader map a tensor in the object store, and not copy it. The reader must never write to the tensor.

    python3 -m examples.zero_copy

In the tables of this suite: `store refs` before, `store refs --zero-copy` after.
"""

import ray

from examples.actors import Rollout, Trainer, print_times, start


def share(actor):
    settings = {"RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}  # of the sender and of the reader
    return ray.remote(actor).options(runtime_env={"env_vars": settings}).remote()


def send(rollout, trainer):
    return ray.get(trainer.train.remote(rollout.generate.remote()))


if __name__ == "__main__":
    default = start(Rollout, Trainer)
    changed = share(Rollout), share(Trainer)
    print_times(lambda: send(*default), lambda: send(*changed))
