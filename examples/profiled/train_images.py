# SPDX-License-Identifier: Apache-2.0
"""Ray Train: two workers train a small network on images of a Ray Data dataset, and send metrics after each epoch.

pip install "ray[train]==2.60.0" torch"""

import numpy as np
import ray
import torch
from ray import train
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

from examples.profiled.steps import timed_steps

IMAGES = 40_000


def make_images(batch):
    count = len(batch["id"])
    return {"image": np.ones((count, 28, 28), np.float32), "label": batch["id"] % 10}


def train_worker(config):
    model = prepare_model(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["rate"])
    images = train.get_dataset_shard("train")
    for _ in timed_steps(config["epochs"]):
        for batch in images.iter_torch_batches(batch_size=500):
            loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        train.report({"loss": float(loss.detach())})


if __name__ == "__main__":
    ray.init(num_cpus=6, include_dashboard=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    images = ray.data.range(IMAGES, override_num_blocks=8).map_batches(make_images).materialize()
    trainer = TorchTrainer(
        train_worker,
        train_loop_config={"rate": 0.1, "epochs": 6},
        scaling_config=ScalingConfig(num_workers=2),
        datasets={"train": images},
    )
    trainer.fit()
