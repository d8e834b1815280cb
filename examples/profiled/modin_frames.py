# SPDX-License-Identifier: Apache-2.0
"""modin on Ray: clean and group a million taxi rides, in each of five rounds. pip install "modin[ray]" """

import modin.config
import modin.pandas as pd
import numpy as np
import ray

from examples.profiled.steps import timed_steps

RIDES = 1_000_000

if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    modin.config.Engine.put("ray")
    modin.config.NPartitions.put(2)
    random = np.random.default_rng(0)
    rides = pd.DataFrame(
        {
            "zone": random.integers(0, 250, RIDES),
            "distance": random.exponential(3.0, RIDES),
            "minutes": random.exponential(12.0, RIDES),
            "price": random.exponential(15.0, RIDES),
        }
    )
    for _ in timed_steps(5):
        long = rides[rides["distance"] > 0.5]
        speed = long["distance"] / long["minutes"]
        long = long.assign(speed=speed)
        means = long.groupby("zone").mean()
        rest = rides["price"].apply(lambda price: round(price, 1)).sum()
    print(f"{len(means)} zones, {rest:.0f}")
