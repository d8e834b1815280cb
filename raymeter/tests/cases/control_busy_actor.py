# SPDX-License-Identifier: Apache-2.0
"""Four actors ask another one for rewards, which computes them: several threads of it would compute no faster.

Source: https://docs.ray.io/en/latest/ray-core/actors/async_api.html
Cause: none
Harmful: one call at a time in an actor
"""

import time

import ray
from measured import measured_steps

ROUNDS = 400_000


@ray.remote
class Reward:
    def score(self, answer):
        """Compute with Python's lock, as one thread at a time can."""
        for _ in range(ROUNDS):
            answer = (answer * 31 + 7) % 65_521
        return answer


@ray.remote
class Rollout:
    def __init__(self, reward):
        self.reward = reward

    def generate(self, step):
        time.sleep(0.01)  # the engine that writes an answer
        return ray.get(self.reward.score.remote(step))


def main():
    ray.init(num_cpus=8)
    reward = Reward.remote()
    rollouts = [Rollout.remote(reward) for _ in range(4)]
    for step in measured_steps(15):
        ray.get([rollout.generate.remote(step) for rollout in rollouts])


if __name__ == "__main__":
    main()
