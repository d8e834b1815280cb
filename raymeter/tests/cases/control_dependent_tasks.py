# SPDX-License-Identifier: Apache-2.0
"""Each call of a simulator needs the state that the last one returned, so the calls can't run at the same time.

Source: https://docs.ray.io/en/latest/ray-core/patterns/ray-get-loop.html
Cause: none
Harmful: one task at a time
"""

import time

import ray
from measured import measured_steps


@ray.remote
class Simulator:
    def advance(self, state):
        time.sleep(0.03)
        return state + 1


def main():
    ray.init(num_cpus=4)
    simulator = Simulator.remote()
    for _ in measured_steps(20):
        state = 0
        for _ in range(5):
            state = ray.get(simulator.advance.remote(state))
        if state != 5:
            raise ValueError(f"the state is {state}, not 5")


if __name__ == "__main__":
    main()
