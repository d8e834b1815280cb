# SPDX-License-Identifier: Apache-2.0
"""Let the reader fetch into memory that it keeps (Ray Direct Transport over NIXL), so that no page of it is new.

    python3 -m examples.receive_in_place

In the tables of this suite: `store refs` before, `rdt nixl-pull --reuse-buffers` after. It needs nixl.
"""

import ray
import torch
from ray.experimental import register_nixl_memory, set_target_for_ref, wait_tensor_freed

from examples.actors import Rollout, Trainer, print_times


class Producer(Rollout):
    def put(self, last, waits=True):
        if waits:  # otherwise, a reader of the last message can get the values of this one
            wait_tensor_freed(self.tokens, timeout=60)
        register_nixl_memory(self.tokens)  # once; otherwise, Ray registers it for each message
        self.tokens[-1] = last
        return [ray.put(self.tokens, _tensor_transport="nixl")]


class Reader(Trainer):
    def __init__(self):
        self.tokens = torch.ones(8 * 2**20, dtype=torch.int64)
        register_nixl_memory(self.tokens)

    def pull(self, references):
        set_target_for_ref(references[0], [self.tokens])
        return self.train(ray.get(references[0]))


if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False)
    producer, reader = (
        ray.remote(enable_tensor_transport=True)(actor).remote() for actor in (Producer, Reader)
    )
    print_times(
        lambda: ray.get(reader.train.remote(producer.generate.remote())),
        lambda: ray.get(reader.pull.remote(producer.put.remote(8 * 2**20 - 1))),
    )
