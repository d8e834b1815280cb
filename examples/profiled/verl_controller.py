"""verl's single controller on CPU actors: ten steps of rollout and update with a batch of 256 x 2,048 tokens.

pip install --no-deps verl==0.9.1
pip install "transformers>=5.5.3,<5.11" tensordict torchdata codetiming hydra-core datasets peft accelerate
"""

import ray
import torch
from verl import DataProto
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray.base import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

FIELDS = {"input_ids": torch.int64, "attention_mask": torch.int64, "position_ids": torch.int64,
          "responses": torch.int64, "old_log_probs": torch.float32}  # fmt: skip


@ray.remote
class Rollout(Worker):
    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def generate_sequences(self, prompts):
        return DataProto.from_dict(
            {name: torch.ones(len(prompts), 2048, dtype=of) for name, of in FIELDS.items()}
        )


@ray.remote
class Actor(Worker):
    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def update_actor(self, batch):
        return DataProto.from_dict({"loss": torch.zeros(len(batch))})


if __name__ == "__main__":
    ray.init(
        num_cpus=64, include_dashboard=False, log_to_driver=False
    )  # verl asks for ten per process
    rollout, actor = (
        RayWorkerGroup(
            RayResourcePool([2], use_gpu=False), RayClassWithInitArgs(worker), device_name="cpu"
        )
        for worker in (Rollout, Actor)
    )
    for _ in range(10):
        prompts = DataProto.from_dict({"input_ids": torch.ones(256, 512, dtype=torch.int64)})
        actor.update_actor(rollout.generate_sequences(prompts))
    print("ten steps")
