# SPDX-License-Identifier: Apache-2.0
"""An async server scores eight batches of tensors at once, and unpickles each of them in its event loop.

Source: ray-project/ray#12317, ray-project/ray#26229
Cause: tensors in the pickle
"""

import asyncio

import ray
import torch
from measured import FIXED, measured_steps


@ray.remote
class Server:
    async def score(self, batch):
        observations = torch.as_tensor(batch["observations"])
        await asyncio.sleep(0.01)  # another service
        return float(observations[0, 0])


def main():
    ray.init(num_cpus=4, object_store_memory=2 * 10**9)
    server = Server.remote()
    batches = [torch.ones(1024, 4096) for _ in range(8)]  # 16 MiB each
    for _ in measured_steps(15):
        scores = []
        for batch in batches:
            batch += 1.0
            observations = batch.numpy() if FIXED else batch
            scores.append(server.score.remote({"observations": observations}))  # CAUSE
        ray.get(scores)


if __name__ == "__main__":
    main()
