# SPDX-License-Identifier: Apache-2.0
"""A model is evaluated after each round of training, from the file that training has written: they can't run together.

Source: https://docs.ray.io/en/latest/ray-core/patterns/ray-get-loop.html
Cause: none
Harmful: one call after the other; one task at a time
"""

import tempfile
import time
from pathlib import Path

import ray
from measured import measured_steps


@ray.remote
class Trainer:
    def __init__(self, path):
        self.path = path
        self.rounds = 0

    def train(self, batch):
        time.sleep(0.07)
        self.rounds += 1
        self.path.write_text(str(self.rounds))
        return sum(batch)


@ray.remote
class Evaluator:
    def __init__(self, path):
        self.path = path

    def evaluate(self, batch):
        time.sleep(0.06)
        return int(self.path.read_text()) + len(batch)


def main():
    ray.init(num_cpus=2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "checkpoint")
        trainer = Trainer.remote(path)
        evaluator = Evaluator.remote(path)
        batch = [1, 2, 3]
        for step in measured_steps(14):
            loss = ray.get(trainer.train.remote(batch))
            score = ray.get(evaluator.evaluate.remote(batch))
            if score + loss != step + 1 + len(batch) + sum(batch):
                raise ValueError(f"the score of step {step} is {score}")


if __name__ == "__main__":
    main()
