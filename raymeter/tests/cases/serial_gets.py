# SPDX-License-Identifier: Apache-2.0
"""ray.get stands in the loop that submits tasks, so eight calls of a service wait for each other. Messages are tiny.

Source: https://docs.ray.io/en/latest/ray-core/patterns/ray-get-loop.html
Cause: one task at a time
"""

import time

import ray
from measured import FIXED, measured_steps


@ray.remote
def ask(question):
    time.sleep(0.04)  # a reward model behind a network
    return {"question": question, "reward": 0.5}


def main():
    ray.init(num_cpus=8)
    for _ in measured_steps(12):
        if FIXED:
            ray.get([ask.remote(question) for question in range(8)])
        else:
            [ray.get(ask.remote(question)) for question in range(8)]  # CAUSE


if __name__ == "__main__":
    main()
