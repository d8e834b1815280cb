# SPDX-License-Identifier: Apache-2.0
"""The loop of through_driver.py with the change that its profile asks for: the driver passes references on."""

import ray

from examples.profiled.through_driver import Rollout, Trainer

if __name__ == "__main__":
    ray.init(num_cpus=2)
    rollouts = [Rollout.remote() for _ in range(2)]
    trainer = Trainer.remote()
    for _ in range(20):
        batches = [rollout.generate.remote() for rollout in rollouts]
        loss = ray.get(trainer.train.remote(*batches))
    print(f"loss {loss}")
