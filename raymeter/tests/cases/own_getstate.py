# SPDX-License-Identifier: Apache-2.0
"""A batch class writes its tensors into bytes with torch.save when it is pickled, so no setting of Ray helps it.

Source: verl-project/verl#3425, verl-project/verl-omni#259
Cause: the class pickles itself
Harmful: tensors in the pickle
"""

import io

import ray
import torch
from measured import FIXED, measured_steps


class Batch:
    def __init__(self, tensors):
        self.tensors = tensors

    def __getstate__(self):  # CAUSE
        if FIXED:
            return {name: tensor.numpy() for name, tensor in self.tensors.items()}
        buffer = io.BytesIO()
        torch.save(self.tensors, buffer)  # CAUSE
        return buffer.getvalue()

    def __setstate__(self, state):
        if FIXED:
            self.tensors = {name: torch.from_numpy(array) for name, array in state.items()}
        else:
            self.tensors = torch.load(io.BytesIO(state))


@ray.remote
class Rollout:
    def generate(self, step):  # CAUSE
        tokens = torch.full((1024, 4096), step)  # 32 MiB
        return Batch({"tokens": tokens, "labels": tokens + 1})  # CAUSE


@ray.remote
class Trainer:
    def train(self, batch):
        return float(batch.tensors["tokens"][0].sum())


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    rollout = Rollout.remote()
    trainer = Trainer.remote()
    for step in measured_steps(15):
        ray.get(trainer.train.remote(rollout.generate.remote(step)))  # CAUSE


if __name__ == "__main__":
    main()
