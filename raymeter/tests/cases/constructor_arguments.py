# SPDX-License-Identifier: Apache-2.0
"""Each trial creates three evaluators with the same model, which each constructor call stores again.

Source: ray-project/ray#61379, ray-project/ray#61996
Cause: the same content is sent again
"""

import numpy as np
import ray
from measured import FIXED, measured_steps


@ray.remote(num_cpus=0)
class Evaluator:
    def __init__(self, model):
        self.model = model

    def evaluate(self, row):
        return float(self.model[row].sum())


def main():
    ray.init(num_cpus=4, object_store_memory=6 * 10**9)
    for trial in measured_steps(4):
        model = np.full((40_960, 4096), trial, np.float32)  # 640 MiB
        argument = ray.put(model) if FIXED else model
        evaluators = [Evaluator.remote(argument) for _ in range(3)]  # CAUSE
        ray.get([evaluator.evaluate.remote(trial) for evaluator in evaluators])
        for evaluator in evaluators:
            ray.kill(evaluator)


if __name__ == "__main__":
    main()
