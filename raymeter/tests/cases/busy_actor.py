# SPDX-License-Identifier: Apache-2.0
"""Eight actors ask another one for rewards. It serves one call at a time, although it only waits for a service.

Source: https://docs.ray.io/en/latest/ray-core/patterns/concurrent-operations-async-actor.html
Cause: one call at a time in an actor
"""

import time

import ray
from measured import FIXED, measured_steps


@ray.remote
class Reward:
    def score(self, answer):  # CAUSE
        time.sleep(0.02)  # a request to a service
        return answer % 3


@ray.remote
class Rollout:
    def __init__(self, reward):
        self.reward = reward

    def generate(self, step):
        return ray.get(self.reward.score.remote(step))


def main():
    ray.init(num_cpus=16)
    reward = Reward.options(max_concurrency=8 if FIXED else 1).remote()  # CAUSE
    rollouts = [Rollout.remote(reward) for _ in range(8)]
    for step in measured_steps(15):
        ray.get([rollout.generate.remote(step) for rollout in rollouts])


if __name__ == "__main__":
    main()
