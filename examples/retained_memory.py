# SPDX-License-Identifier: Apache-2.0
"""Let actors keep freed memory, so that the next message causes no page faults. The calls stay the same.

    python3 -m examples.retained_memory

In the tables of this suite: `store refs` before, `store refs --retain-memory` after. docs/page-faults.md explains it.
"""

import ray

from examples.actors import Rollout, Trainer, print_times, start

RETAIN_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "8000000000",
    "MALLOC_TOP_PAD_": "67108864",
    "MALLOC_ARENA_MAX": "1",
}


def retain(actor):
    # glibc reads the variables when the actor's process starts.
    return ray.remote(actor).options(runtime_env={"env_vars": RETAIN_MEMORY}).remote()


def send(rollout, trainer):
    return ray.get(trainer.train.remote(rollout.generate.remote()))


if __name__ == "__main__":
    default = start(Rollout, Trainer)
    changed = retain(Rollout), retain(Trainer)
    print_times(lambda: send(*default), lambda: send(*changed))
