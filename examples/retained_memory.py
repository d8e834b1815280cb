"""Let actors keep freed memory, so that the next message causes no page faults. The calls stay the same.

    python3 -m examples.retained_memory

In the tables of this suite: `store refs` before, `store refs --retain-memory` after. docs/page-faults.md explains it.
"""

import ray

from dataflow.workers.variables import RETAIN_MEMORY
from examples.actors import Rollout, Trainer, print_times, start


def retain(actor):
    # glibc reads the variables when the actor's process starts.
    return ray.remote(actor).options(runtime_env={"env_vars": RETAIN_MEMORY}).remote()


def send(rollout, trainer):
    return ray.get(trainer.train.remote(rollout.generate.remote()))


if __name__ == "__main__":
    default = start(Rollout, Trainer)
    changed = retain(Rollout), retain(Trainer)
    print_times(lambda: send(*default), lambda: send(*changed))
