# SPDX-License-Identifier: Apache-2.0
"""Pass the reference of a message from actor to actor, so that the message itself does not go to the driver.

    python3 -m examples.references

In the tables of this suite: `store driver-queue` before, `store refs` after.
"""

import ray

from examples.actors import Rollout, Trainer, print_times, start


def before(rollout, trainer):
    tokens = ray.get(rollout.generate.remote())  # into the driver, and out of it again
    return ray.get(trainer.train.remote(tokens))


def after(rollout, trainer):
    return ray.get(trainer.train.remote(rollout.generate.remote()))


if __name__ == "__main__":
    actors = start(Rollout, Trainer)
    print_times(lambda: before(*actors), lambda: after(*actors))
