# SPDX-License-Identifier: Apache-2.0
"""Leave a tensor with its producer, and let the reader fetch it by torch.distributed (Ray Direct Transport).

    python3 -m examples.direct_transport

In the tables of this suite: `store refs` before, `rdt gloo` after. With GPUs, the backend is nccl. The driver is not in
the group: ray.get(reference, _use_object_store=True) reads a tensor through the object store.
"""

import ray
from ray.experimental.collective import create_collective_group

from examples.actors import Rollout, Trainer, print_times


def before(rollout, trainer):
    return ray.get(trainer.train.remote(rollout.generate.remote()))


def after(rollout, trainer):
    # It must not change before it is fetched.
    tokens = rollout.generate.options(tensor_transport="gloo").remote()
    return ray.get(trainer.train.remote(tokens))


if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False)
    actors = [
        ray.remote(enable_tensor_transport=True)(actor).remote() for actor in (Rollout, Trainer)
    ]
    create_collective_group(actors, backend="gloo")
    print_times(lambda: before(*actors), lambda: after(*actors))
