# SPDX-License-Identifier: Apache-2.0
"""Send the first tensor to a new actor by NIXL (Ray Direct Transport). It may never arrive in Ray 2.60.

Ray makes an actor's RDTManager on first use, without a lock, so two threads can each make one: the tensor arrives in
one, and the actor waits in the other. The slow constructor shows it. If one was made before, the tensor arrives."""

import time

import ray
import torch
from ray.experimental.rdt.rdt_manager import RDTManager


@ray.remote(num_cpus=0, enable_tensor_transport=True, concurrency_groups={"ask": 1})
class Reader:
    def __init__(self, is_repaired):
        self.made = []
        construct = RDTManager.__init__

        def construct_slowly(manager):
            self.made.append(time.sleep(0.5))
            construct(manager)

        RDTManager.__init__ = construct_slowly
        if is_repaired:
            ray.experimental.wait_tensor_freed(torch.empty(0))  # any tensor will do

    def read(self, tensor):
        return tensor[-1].item()

    @ray.method(concurrency_group="ask")
    def count(self):
        return f"managers: {len(self.made)}"


ray.init(include_dashboard=False, log_to_driver=False)
for name, reader in {"slowed": Reader.remote(False), "repaired": Reader.remote(True)}.items():
    tensor = ray.put(torch.ones(2**20), _tensor_transport="nixl")
    arrived, _ = ray.wait([reader.read.remote(tensor)], timeout=60)
    print(name, "arrived" if arrived else "did not arrive", ray.get(reader.count.remote()))
