# SPDX-License-Identifier: Apache-2.0
"""Ray Data joins 200,000 orders with 20,000 customers, with as many partitions as its documentation uses."""

import ray

from examples.profiled.steps import timed_steps


def make_orders(batch):
    return {"customer": batch["id"] % 20_000, "price": batch["id"] % 97}


def make_customers(batch):
    return {"customer": batch["id"], "region": batch["id"] % 7}


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    orders = ray.data.range(200_000, override_num_blocks=8).map_batches(make_orders).materialize()
    customers = ray.data.range(20_000, override_num_blocks=4).map_batches(make_customers)
    customers = customers.materialize()
    for _ in timed_steps(5):
        joined = orders.join(customers, join_type="inner", num_partitions=4, on=("customer",))
        count = joined.count()
    print(f"{count} rows")
