# SPDX-License-Identifier: Apache-2.0
"""Pass tensors on by ray.put(..., _tensor_transport="nixl") and ray.get. A step that hangs prints where, and fails."""

import faulthandler

import ray
import torch
from ray.experimental import register_nixl_memory

HANGS_SECONDS = 60


@ray.remote(num_cpus=0, enable_tensor_transport=True)
class Model:
    def __init__(self, mebibytes):
        self.tensor = torch.ones(mebibytes * 2**20, dtype=torch.uint8)
        register_nixl_memory(self.tensor)

    def forward(self, *messages):
        faulthandler.dump_traceback_later(HANGS_SECONDS)
        for tensor in ray.get([reference for (reference,) in messages]):
            assert tensor[-1] == 1
        answer = [ray.put(self.tensor, _tensor_transport="nixl")]
        faulthandler.cancel_dump_traceback_later()
        return answer


ray.init(include_dashboard=False)
query = torch.ones(32 * 2**20, dtype=torch.uint8)
register_nixl_memory(query)
for _ in range(4):  # with new actors, because runs hung in their first steps
    policy, reference, reward = models = [Model.remote(size) for size in (96, 64, 160)]
    ray.get([model.__ray_ready__.remote() for model in models])
    for _ in range(4):
        faulthandler.dump_traceback_later(HANGS_SECONDS + 5, exit=True)
        first = policy.forward.remote([ray.put(query, _tensor_transport="nixl")])
        answer = reward.forward.remote(first, reference.forward.remote(first))
        assert ray.get(ray.get(answer)[0])[-1] == 1
        faulthandler.cancel_dump_traceback_later()
