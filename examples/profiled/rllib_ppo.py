# SPDX-License-Identifier: Apache-2.0
"""RLlib's PPO on CartPole with two environment runners: pip install "ray[rllib]==2.60.0"."""

import ray
from ray.rllib.algorithms.ppo import PPOConfig

from examples.profiled.steps import timed_steps

if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=2)
    config.training(train_batch_size=4000, minibatch_size=128, num_epochs=2)
    algorithm = config.build_algo()
    for _ in timed_steps(6):
        results = algorithm.train()
    print(f"mean return {results['env_runners']['episode_return_mean']:.0f}")
    algorithm.stop()
