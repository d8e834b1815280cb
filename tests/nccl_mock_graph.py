"""The compiled graph's --transport nccl without a GPU, over Ray's mock of NCCL, checked byte for byte.

A program of its own, because the mock changes the processes it runs in for good. It shows that the graph compiles
and is right, and by which channels its edges travel; it says nothing of speed. With --direct the graph is the
demo's: the reader of two NCCL edges takes both as arguments of one method, without pass_through.
"""

import argparse
import json
import sys
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import ray_cg_simulate_chat_learn_data_flow as script
from common.flow.demo_sizes import Sizes
from common.flow.flow import DRIVER, online_dpo
from common.run import options as command_line
from common.runtime import ray_cluster as cluster

TRIPS = 7
ARGUMENTS = command_line.parse_arguments("", ("nccl",), "nccl", ["--device", "cpu", "--timeout", "60"])
FLOW = online_dpo(Sizes(batch_size=4, prompt_seq_len=256))


def start_on_mock(role_class, direct):
    """The roles as `measure` starts them, with the mock in each."""
    import ray
    import torch
    from ray.experimental.channel.conftest import start_nccl_mock

    class MockRole(role_class):
        def start_mock(self):
            start_nccl_mock()

        def verify(self, trip):
            """The mock says of every tensor that it is on a GPU; the check shall see where it is."""
            with mock.patch("torch.Tensor.device", torch.device("cpu")):
                return super().verify(trip)

    actor = ray.remote(num_cpus=0, num_gpus=1)(MockRole)
    handles = {role.name: actor.remote(FLOW, role.name, ARGUMENTS) for role in FLOW.roles}
    ray.get([handle.start_mock.remote() for handle in handles.values()])
    if not direct:
        return handles
    as_it_is = SimpleNamespace(bind=lambda tensor: tensor)
    return {
        name: SimpleNamespace(forward_step=handle.forward_step, pass_through=as_it_is)
        for name, handle in handles.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    # Of a message over NCCL Ray reads the tensors first and the frame around them after, which the sender writes when
    # every reader has its tensors. If the frame is not there within this time (0.1 s by default), Ray reads the message
    # from its beginning again and waits for ever. The mock's first messages take longer than that.
    cluster.configure(ARGUMENTS)
    with cluster.connect(ARGUMENTS, 100 * 2**20, gpus=len(FLOW.roles)):
        import ray
        from ray.experimental.channel.conftest import Barrier
        from ray.experimental.util.types import Device

        from common.payload.participant import Participant

        # Two ranks meet at the barrier of their names. The mock's actors say that their tensors are on a GPU; the
        # driver takes them for what they are.
        pairs = combinations(range(len(FLOW.roles)), 2)
        barriers = [Barrier.options(name=f"barrier-{low}-{high}").remote() for low, high in pairs]
        mock.patch("ray.experimental.channel.torch_tensor_type.TorchTensorType.device", Device.CPU).start()

        driver = Participant(FLOW, DRIVER, ARGUMENTS)
        handles = {}

        def start(role_class, _driver_class):
            handles.update(start_on_mock(role_class, asked.direct))
            return handles, driver

        with script.connect(ARGUMENTS, FLOW, start) as wiring:
            digests = {name: ray.get(handle.own_digests.remote()) for name, handle in handles.items()}
            digests[DRIVER] = driver.digests
            driver.expect(digests)
            ray.get([handle.expect.remote(digests) for handle in handles.values()])
            wrong_bytes = []
            for trip in range(1, TRIPS + 1):
                driver.receive(wiring.send(driver.emit(trip)))
                checks = ray.get([handle.verify.remote(trip) for handle in handles.values()])
                wrong_bytes.append(sum(wrong for wrong, _ in [*checks, driver.verify(trip)]))
            asked.output.write_text(json.dumps({"path": wiring.path, "wrong_bytes": wrong_bytes}))
        del barriers


if __name__ == "__main__":
    main()
