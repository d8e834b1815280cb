# SPDX-License-Identifier: Apache-2.0
"""Tasks ask a service for rewards, and each reserves half of the CPUs meanwhile, so that two run at the same time.

Source: https://docs.ray.io/en/latest/ray-core/scheduling/resources.html
Cause: tasks ask for more CPUs than they use
"""

import time

import ray
from measured import FIXED, measured_steps

CPUS = 1 if FIXED else 4


@ray.remote
def ask_service(question):
    time.sleep(0.06)
    return f"the answer to {question}"


def main():
    ray.init(num_cpus=8)
    for _ in measured_steps(40):
        answers = ray.get(
            [
                ask_service.options(num_cpus=CPUS).remote(question)  # CAUSE
                for question in range(6)
            ]
        )
        if len(answers) != 6:
            raise ValueError("an answer is missing")


if __name__ == "__main__":
    main()
