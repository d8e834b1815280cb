# SPDX-License-Identifier: Apache-2.0
"""verl's single controller on CPU actors: rollout and update with a batch of 256 x 2,048 tokens.

pip install --no-deps verl==0.9.1
pip install "transformers>=5.5.3,<5.11" tensordict torchdata codetiming hydra-core datasets peft accelerate"""

import ray
import torch
from verl import DataProto
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray.base import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

from examples.profiled.steps import timed_steps

FIELDS = {
    "input_ids": torch.int64,
    "attention_mask": torch.int64,
    "position_ids": torch.int64,
    "responses": torch.int64,
    "old_log_probs": torch.float32,
}


@ray.remote
class Rollout(Worker):
    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def generate_sequences(self, prompts):
        count = len(prompts)
        fields = {}
        for name, dtype in FIELDS.items():
            fields[name] = torch.randint(0, 50_000, (count, 2048)).to(dtype)
        return DataProto.from_dict(fields)


@ray.remote
class Actor(Worker):
    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def update_actor(self, batch):
        return DataProto.from_dict({"loss": torch.zeros(len(batch))})


def start_group(worker):
    """Return two workers of a class, as verl's trainers start them."""
    pool = RayResourcePool([2], use_gpu=False, max_colocate_count=1)
    return RayWorkerGroup(pool, RayClassWithInitArgs(worker), device_name="cpu")


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    rollout = start_group(Rollout)
    actor = start_group(Actor)
    for _ in timed_steps(20):
        prompts = DataProto.from_dict({"input_ids": torch.randint(0, 50_000, (256, 512))})
        batch = rollout.generate_sequences(prompts)
        actor.update_actor(batch)
