# SPDX-License-Identifier: Apache-2.0
"""Each method puts its small result and returns the reference, so the driver has to get twice, one object at a time.

Source: https://docs.ray.io/en/latest/ray-core/patterns/return-ray-put.html
Cause: a task returns a reference of what it has put
Or: many small calls
"""

import ray
from measured import FIXED, measured_steps


@ray.remote
class Environment:
    def rollout(self, step):
        rewards = [float(step + i) for i in range(20)]
        if FIXED:
            return rewards
        return ray.put(rewards)  # CAUSE


def main():
    ray.init(num_cpus=4, object_store_memory=10**9)
    environments = [Environment.remote() for _ in range(4)]
    for step in measured_steps(20):
        refs = []
        for index in range(100):
            environment = environments[index % 4]
            refs.append(environment.rollout.remote(step))  # CAUSE
        results = ray.get(refs)
        if not FIXED:
            results = [ray.get(ref) for ref in results]
        assert len(results) == 100


if __name__ == "__main__":
    main()
