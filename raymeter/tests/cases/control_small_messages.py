# SPDX-License-Identifier: Apache-2.0
"""Four workers wait for their environments at the same time, and answer with a few hundred bytes.

Source: https://docs.ray.io/en/latest/ray-core/patterns/ray-get-loop.html
Cause: none
"""

import time

import ray
from measured import measured_steps


@ray.remote
class Environment:
    def step(self, action):
        time.sleep(0.15)  # a browser
        return {"observation": f"page {action}", "reward": 0.5}


def main():
    ray.init(num_cpus=4)
    environments = [Environment.remote() for _ in range(4)]
    actions = [0, 1, 2, 3]
    for _ in measured_steps(25):
        pairs = zip(environments, actions, strict=True)
        answers = ray.get([environment.step.remote(action) for environment, action in pairs])
        actions = [len(answer["observation"]) for answer in answers]


if __name__ == "__main__":
    main()
