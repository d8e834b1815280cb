# SPDX-License-Identifier: Apache-2.0
"""RLlib's IMPALA on CartPole with two environment runners and a remote learner: pip install "ray[rllib]==2.60.0"."""

import ray
from ray.rllib.algorithms.impala import IMPALAConfig

from examples.profiled.steps import timed_steps

if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    config = IMPALAConfig().environment("CartPole-v1")
    config.env_runners(num_env_runners=2, rollout_fragment_length=50)
    config.learners(num_learners=1)
    config.training(train_batch_size_per_learner=500)
    # Without these, a call of train() takes ten seconds, whatever it does.
    config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=2000)
    algorithm = config.build_algo()
    for _ in timed_steps(6):
        algorithm.train()
    algorithm.stop()
