"""Run the compiled graph's --transport nccl without a GPU, over Ray's mock of NCCL, and verify every byte.

This is a program of its own, because the mock changes its processes for good. It shows that the graph compiles, that
its messages are right, and which channels its edges use; it says nothing about speed.
"""

import argparse
import json
import os
import resource
import sys
from contextlib import ExitStack
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

ITERATIONS = 7
SMALL = ["--batch-size", "4", "--prompt-seq-len", "256"]


def run(plan):
    """Return the channels of the graph's edges, and the wrong bytes of every iteration."""
    import ray
    import torch
    from ray.experimental.channel.conftest import Barrier, start_nccl_mock
    from ray.experimental.util.types import Device

    import dataflow.transports.graph as script
    from dataflow.workers.ray_workers import RayWorkers

    class MockWorkers(RayWorkers):
        def _start_actors(self, actor_class, extra):
            class MockActor(actor_class):
                def start_mock(self):
                    start_nccl_mock()

                def verify(self, first, last):
                    """The mock reports every tensor on a GPU; the verification must see where it is."""
                    with mock.patch("torch.Tensor.device", torch.device("cpu")):
                        return super().verify(first, last)

            super()._start_actors(MockActor, extra)
            ray.get([actor.start_mock.remote() for actor in self.actors.values()])

    with ExitStack() as closing:
        closing.callback(ray.shutdown)  # before the cluster is ended, or it waits for that
        workers = MockWorkers(plan, closing)
        # Two ranks meet at the barrier of their names. The mock's actors report their tensors on a GPU, and the driver
        # takes them as they are.
        pairs = combinations(range(len(workers.sent_flow.actors)), 2)
        barriers = [Barrier.options(name=f"barrier-{low}-{high}").remote() for low, high in pairs]
        mock.patch("ray.experimental.channel.torch_tensor_type.TorchTensorType.device", Device.CPU).start()
        connection = script.TRANSPORTS["nccl"](workers)
        wrong_bytes = []
        for number in range(1, 1 + ITERATIONS):
            query = workers.driver.make_payload(number)
            workers.driver.receive(connection.collect(connection.submit(query)))
            wrong = [bad for bad, _ in workers.call("verify", number, number).values()]
            wrong_bytes.append(sum(count for bad in wrong for count in bad.values()))
        del barriers
        return {"data_paths": connection.data_paths, "wrong_bytes": wrong_bytes}


def main() -> None:
    from dataflow.catalogue.catalogue import TRANSPORTS
    from dataflow.plan.command_line import make_options, parse_flags
    from dataflow.plan.plan import resolve_plan
    from dataflow.workers.cleanup import RunFolder, mark_of
    from dataflow.workers.variables import driver_environment

    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.output = arguments.output.resolve()
    os.chdir(ROOT)  # where Ray's workers look for modules
    flags = ["--device", "cpu", "--timeout", "60", *SMALL]
    (options,) = make_options("shm", parse_flags(flags))
    plan, _ = resolve_plan("graph", options)
    with RunFolder() as run_folder:
        plan = replace(
            plan, transport=TRANSPORTS["graph nccl"], gpus=len(plan.task_flow.actors), store_bytes=100 * 2**20,
            run_folder=run_folder.folder, shared_folder=run_folder.shared,
        )  # fmt: skip
        # It sets the time until a read is repeated: the mock's first messages take longer than Ray's 0.1 s.
        os.environ.update(driver_environment(plan))
        resource.setrlimit(resource.RLIMIT_RTTIME, (mark_of(run_folder.folder), resource.RLIM_INFINITY))
        result = run(plan)
    arguments.output.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
