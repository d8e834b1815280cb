# SPDX-License-Identifier: Apache-2.0
"""The driver asks three models, each in a function that waits for its answer, although they need only the batch.

Source: https://docs.ray.io/en/latest/ray-core/patterns/ray-get-loop.html
Cause: one call after the other
Or: one task at a time
"""

import time

import ray
from measured import FIXED, measured_steps


@ray.remote
class Model:
    def forward(self, batch):
        time.sleep(0.05)
        return [sum(batch)] * 4


class PPO:
    def __init__(self):
        self.reference, self.critic, self.reward = [Model.remote() for _ in range(3)]

    def log_probs(self, batch):
        return ray.get(self.reference.forward.remote(batch))  # CAUSE

    def values(self, batch):
        return ray.get(self.critic.forward.remote(batch))  # CAUSE

    def rewards(self, batch):
        return ray.get(self.reward.forward.remote(batch))  # CAUSE

    def step(self, batch):
        if FIXED:
            models = [self.reference, self.critic, self.reward]
            return ray.get([model.forward.remote(batch) for model in models])
        return self.log_probs(batch), self.values(batch), self.rewards(batch)  # CAUSE


def main():
    ray.init(num_cpus=4)
    ppo = PPO()
    for step in measured_steps(15):
        ppo.step([step, step + 1])  # CAUSE


if __name__ == "__main__":
    main()
