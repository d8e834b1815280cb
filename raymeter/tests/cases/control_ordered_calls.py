# SPDX-License-Identifier: Apache-2.0
"""The driver submits six calls of an actor at once, and each needs the state that the last one has left.

Source: https://docs.ray.io/en/latest/ray-core/actors/task-orders.html
Cause: none
Harmful: one call at a time in an actor
"""

import time

import ray
from measured import measured_steps

ACTIONS = (3, 1, 4, 1, 5, 9)


@ray.remote
class Environment:
    def reset(self):
        self.state = 0

    def advance(self, action):
        time.sleep(0.02)  # a simulator that runs elsewhere
        self.state = 10 * self.state + action
        return self.state


def main():
    ray.init(num_cpus=4)
    environment = Environment.remote()
    for _ in measured_steps(20):
        environment.reset.remote()
        states = ray.get([environment.advance.remote(action) for action in ACTIONS])
        if states[-1] != 314_159:
            raise ValueError(f"the state is {states[-1]}, not 314159")


if __name__ == "__main__":
    main()
