# SPDX-License-Identifier: Apache-2.0
"""daft on Ray: join 500,000 orders with 50,000 customers, and sum by region. pip install daft "ray[default]" """

import daft
import numpy as np
import ray
from daft import col

from examples.profiled.steps import timed_steps

ORDERS = 500_000
CUSTOMERS = 50_000

if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    daft.set_runner_ray()
    random = np.random.default_rng(0)
    orders = daft.from_pydict(
        {
            "customer": random.integers(0, CUSTOMERS, ORDERS),
            "price": random.exponential(15.0, ORDERS),
        }
    )
    customers = daft.from_pydict(
        {"customer": np.arange(CUSTOMERS), "region": random.integers(0, 7, CUSTOMERS)}
    )
    orders = orders.into_partitions(4).collect()
    customers = customers.collect()
    for _ in timed_steps(5):
        joined = orders.join(customers, on="customer")
        by_region = joined.groupby("region").agg(col("price").sum()).collect()
    print(f"{len(by_region)} regions")
