# SPDX-License-Identifier: Apache-2.0
"""A test makes an actor in each step that ends its process, so that the next step needs a new one.

Source: https://docs.ray.io/en/latest/ray-core/fault_tolerance/actors.html
Cause: none
Harmful: actors made in each step
"""

import os

import ray
from measured import measured_steps


@ray.remote
class Sandbox:
    def run(self, number):
        return number + 1

    def crash(self):
        os._exit(1)


def main():
    ray.init(num_cpus=2)
    for step in measured_steps(5):
        sandbox = Sandbox.remote()
        ray.get(sandbox.run.remote(step))
        try:
            ray.get(sandbox.crash.remote())
        except ray.exceptions.RayActorError:
            continue
        raise ValueError("the sandbox has not crashed")


if __name__ == "__main__":
    main()
