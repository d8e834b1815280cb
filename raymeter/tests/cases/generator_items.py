# SPDX-License-Identifier: Apache-2.0
"""A model streams its tokens one by one: each item of a generator is an object and a message of its own.

Source: ray-project/ray#59681, ray-project/ray#52745
Cause: many small items of a generator
Or: many small calls
"""

import ray
from measured import FIXED, measured_steps

TOKENS = 500
TOKENS_PER_ITEM = 50 if FIXED else 1


@ray.remote
class Model:
    def generate(self):
        for _ in range(TOKENS // TOKENS_PER_ITEM):
            yield ["token"] * TOKENS_PER_ITEM  # CAUSE


def main():
    ray.init(num_cpus=2)
    model = Model.remote()
    for _ in measured_steps(10):
        tokens = []
        stream = model.generate.options(num_returns="streaming").remote()
        for item in stream:  # CAUSE
            tokens += ray.get(item)  # CAUSE


if __name__ == "__main__":
    main()
