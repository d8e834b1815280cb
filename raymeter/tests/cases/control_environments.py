# SPDX-License-Identifier: Apache-2.0
"""Two kinds of tasks have environments of their own, which stay the same, so their workers are there in each step.

Source: https://docs.ray.io/en/latest/ray-core/handling-dependencies.html#runtime-environments
Cause: none
Harmful: a new runtime_env in each step
"""

import os
import time

import ray
from measured import measured_steps


@ray.remote
def play():
    time.sleep(0.08)
    return os.environ["GAME"]


def main():
    ray.init(num_cpus=2)
    games = [
        play.options(runtime_env={"env_vars": {"GAME": "chess"}}),
        play.options(runtime_env={"env_vars": {"GAME": "go"}}),
    ]
    for _ in measured_steps(12):
        names = ray.get([game.remote() for game in games])
        if names != ["chess", "go"]:
            raise ValueError(f"the games are {names}")


if __name__ == "__main__":
    main()
