# SPDX-License-Identifier: Apache-2.0
"""Let the reader fetch into memory that it keeps (Ray Direct Transport over NIXL), so that no page of it is new.

    python3 -m examples.receive_in_place

Over the object store, it gets a copy that it may keep; here, the next message overwrites the last one. It needs nixl.
"""

import ray
from ray.experimental import register_nixl_memory, set_target_for_ref, wait_tensor_freed

from examples.actors import COUNT, Rollout, Trainer, measure


class Producer(Rollout):
    def put(self, last, waits=True):
        if waits:  # otherwise, a reader of the last message can get the values of this one
            wait_tensor_freed(self.tokens, timeout=60)
        register_nixl_memory(self.tokens)  # once; otherwise, Ray registers it for each message
        self.tokens[-1] = last
        return [ray.put(self.tokens, _tensor_transport="nixl")]


class Reader(Trainer):
    def __init__(self):
        self.tokens = Rollout().tokens
        register_nixl_memory(self.tokens)

    def pull(self, references):
        set_target_for_ref(references[0], [self.tokens])
        return self.train(ray.get(references[0]))


if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False)
    remote = ray.remote(enable_tensor_transport=True)
    pair = producer, reader = remote(Producer).remote(), remote(Reader).remote()
    measure("object store", lambda: ray.get(reader.train.remote(producer.generate.remote())), pair)
    measure("in place", lambda: ray.get(reader.pull.remote(producer.put.remote(COUNT - 1))), pair)
