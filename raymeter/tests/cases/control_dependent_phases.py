# SPDX-License-Identifier: Apache-2.0
"""Each phase of a step has a function, and needs what the one before it has left in an attribute, or returns.

Source: https://docs.ray.io/en/latest/ray-core/patterns/ray-get-loop.html
Cause: none
Harmful: one call after the other; one task at a time
"""

import time

import ray
from measured import measured_steps


@ray.remote
class Model:
    def forward(self, batch):
        time.sleep(0.05)
        return [sum(batch)] * 4


class PPO:
    def __init__(self):
        self.reference, self.critic, self.reward = [Model.remote() for _ in range(3)]

    def log_probs(self, batch):
        return ray.get(self.reference.forward.remote(batch))

    def values(self):
        return ray.get(self.critic.forward.remote(self.batch))

    def rewards(self, values):
        self.batch.extend(ray.get(self.reward.forward.remote(values)))

    def step(self, batch):
        self.batch = self.log_probs(batch)
        self.rewards(self.values())
        if len(self.batch) != 8:
            raise ValueError(f"the batch is {self.batch}")


def main():
    ray.init(num_cpus=4)
    ppo = PPO()
    for step in measured_steps(15):
        ppo.step([step, step + 1])


if __name__ == "__main__":
    main()
