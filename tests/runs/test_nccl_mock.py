"""Run the compiled graph's --transport nccl without a GPU, over Ray's mock of NCCL, and verify every byte.

The test starts this file as a program, because the mock changes its processes for good. It shows that the graph
compiles, that its messages are right, and which channels its edges use; it says nothing about speed.
"""

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
ITERATIONS = 7
FLAGS = ["--batch-size", "4", "--prompt-seq-len", "256", "--device", "cpu", "--timeout", "60"]
NCCL = "TorchTensorType over TorchTensorAcceleratorChannel"
SHARED_MEMORY = "TorchTensorType over BufferedSharedMemoryChannel"


def test_edges_between_actors_use_nccl_and_deliver_the_right_bytes(run_script):
    finished = run_script(Path(__file__))
    assert finished.code == 0, finished.stderr
    result = json.loads(finished.output.read_text())
    assert result["wrong_bytes"] == [0] * ITERATIONS
    assert result["data_paths"] == {
        "driver -> policy": SHARED_MEMORY,
        "policy -> reference": NCCL,
        "policy -> reward": NCCL,
        "reference -> reward": NCCL,
        "reward -> driver": SHARED_MEMORY,
    }


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

    output = Path(sys.argv[sys.argv.index("--output") + 1]).resolve()
    os.chdir(ROOT)  # where Ray's workers look for modules
    (options,) = make_options("shm", parse_flags(FLAGS))
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
    output.write_text(json.dumps(result))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
