"""The compiled graph's --transport nccl without a GPU, over Ray's mock of NCCL, checked byte for byte.

A program of its own, because the mock changes the processes it runs in for good. It shows that the graph compiles
and is right, and by which channels its edges travel; it says nothing of speed. With --direct the graph is the
demo's: the reader of two NCCL edges takes both as arguments of one method, without pass_through.
"""

import argparse
import json
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from common.plan.command_line import parse
from common.record.rows import transports
from common.run.settle import settle
from common.runtime.settings import variables
from common.runtime.workplace import MARK, Workplace

TRIPS = 7
SMALL = ["--batch-size", "4", "--prompt-seq-len", "256"]


def run(plan, direct):
    """What the graph's edges are, and the wrong bytes of every trip."""
    import ray
    import torch
    from ray.experimental.channel.conftest import Barrier, start_nccl_mock
    from ray.experimental.util.types import Device

    import ray_cg_simulate_chat_learn_data_flow as script
    from common.runtime.ray_crew import RayCrew

    class MockCrew(RayCrew):
        def launch(self, model_class, *extra):
            class MockModel(model_class):
                def start_mock(self):
                    start_nccl_mock()

                def verify(self, first, last):
                    """The mock says of every tensor that it is on a GPU; the check shall see where it is."""
                    with mock.patch("torch.Tensor.device", torch.device("cpu")):
                        return super().verify(first, last)

            super().launch(MockModel, *extra)
            ray.get([actor.start_mock.remote() for actor in self.actors.values()])

    with ExitStack() as closing:
        closing.callback(ray.shutdown)  # before the cluster is ended, or it waits for that
        crew = MockCrew(plan, closing)
        # Two ranks meet at the barrier of their names. The mock's actors say that their tensors are on a GPU; the
        # driver takes them for what they are.
        pairs = combinations(range(len(crew.flow.actors)), 2)
        barriers = [Barrier.options(name=f"barrier-{low}-{high}").remote() for low, high in pairs]
        mock.patch("ray.experimental.channel.torch_tensor_type.TorchTensorType.device", Device.CPU).start()
        if direct:
            as_it_is = SimpleNamespace(bind=lambda _, message: message)
            bind = script.bind
            script.bind = lambda flow, actors, hint: bind(
                flow,
                {
                    name: SimpleNamespace(forward_step=actor.forward_step, pass_through=as_it_is)
                    for name, actor in actors.items()
                },
                hint,
            )
        wiring = script.by_nccl(crew)
        wrong_bytes = []
        for number in range(1, 1 + TRIPS):
            crew.driver.receive(wiring.collect(wiring.submit(crew.driver.emit(number))))
            wrong = [bad for bad, _ in crew.ask("verify", number, number).values()]
            wrong_bytes.append(sum(count for bad in wrong for count in bad.values()))
        del barriers
        return {"path": wiring.path, "wrong_bytes": wrong_bytes}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    asked.output = asked.output.resolve()
    os.chdir(Path(__file__).resolve().parents[2])  # where Ray's workers look for modules
    plan, _ = settle("graph", parse("", "graph", ["--transport", "shm", "--device", "cpu", "--timeout", "60", *SMALL]))
    plan = replace(plan, row=transports("graph")["nccl"], gpus=len(plan.flow.actors), store_bytes=100 * 2**20)
    with Workplace() as place:
        plan = replace(plan, folder=place.folder, shared=place.shared)
        # Its time until a read is tried again is one of them: the mock's first messages take longer than Ray's 0.1 s.
        os.environ.update(variables(plan) | {MARK: place.folder.name})
        found = run(plan, asked.direct)
    asked.output.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
