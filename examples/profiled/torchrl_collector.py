# SPDX-License-Identifier: Apache-2.0
"""torchrl: two Ray collectors send rollouts of 300 images each to the trainer, and get new weights.

pip install "ray[default]" torchrl gymnasium"""

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torchrl.collectors import Collector
from torchrl.collectors.distributed import RayCollector
from torchrl.envs import GymWrapper
from torchrl.modules import QValueActor

from examples.profiled.steps import timed_steps

FRAMES = 600
STEPS = 10
RAY = {"num_cpus": 4, "include_dashboard": False, "log_to_driver": False}


class RandomImages(gymnasium.Env):
    """A game with images of 3 x 84 x 84 bytes, and 100 frames per episode."""

    observation_space = Box(0, 255, (3, 84, 84), np.uint8)
    action_space = Discrete(6)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.frames = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.frames += 1
        return self.observation_space.sample(), 1.0, self.frames == 100, False, {}


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3 * 84 * 84, 6)

    def forward(self, images):
        return self.linear(images.flatten(-3).float() / 255)


def make_environment():
    return GymWrapper(RandomImages())


if __name__ == "__main__":
    policy = QValueActor(Network(), in_keys=["observation"], spec=make_environment().action_spec)
    collector = RayCollector(
        [make_environment, make_environment],
        policy,
        collector_class=Collector,
        frames_per_batch=FRAMES,
        total_frames=FRAMES * STEPS,
        sync=True,
        num_collectors=2,
        ray_init_config=RAY,
        remote_configs={"num_cpus": 1, "num_gpus": 0},
    )
    batches = iter(collector)
    for _ in timed_steps(STEPS - 1):
        batch = next(batches)
        loss = policy(batch)["action_value"].square().mean()
        loss.backward()
        collector.update_policy_weights_()
    collector.shutdown()
