"""What does one trip of the RLHF data flow cost over Ray Direct Transport?

                  .------------- 96 MiB -------------.
                  |                                  v
    driver --> policy --> reference -- 64 MiB --> reward --> driver
        32 MiB     96 MiB                          160 MiB

Ordinary actor calls whose tensors stay with their producer; only references pass through Ray. The clock runs
from the query in the driver's hand to the reward's output in the driver's hand. Payloads are made before and
checked after, while it stands. A driver that cannot send or read itself has both ends in an actor of its own,
the trainer, and the clock stops at its short answer.

    --transport gloo      two-sided, torch.distributed between CPU actors; with a trainer (the default)
    --transport nixl      one-sided reads by NIXL over UCX
    --transport nccl      two-sided, GPU to GPU; with a trainer, and a GPU for each actor
    --transport cuda-ipc  one-sided, readers map the producer's memory on the same GPU; with a trainer
    --transport mapped    one-sided, readers map the producer's shared memory: the suite's own, by Ray's extension point

    python3 ray_rdt_simulate_chat_learn_data_flow.py
    python3 ray_rdt_simulate_chat_learn_data_flow.py --transport mapped --iterations 20
"""

import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from common.flow.flow import DRIVER, Flow
from common.run import worker as case
from common.run.options import UsageError
from common.run.trips import Wiring
from common.runtime import devices
from common.trace import recorder as trace
from common.transport import ring as mapped
from common.transport import ring_cuda as mapped_cuda

TRANSPORTS = {"gloo": "copied", "nixl": "copied", "nccl": "copied", "cuda-ipc": "mapped", "mapped": "mapped"}
WITH_TRAINER = ("gloo", "nccl", "cuda-ipc")
TWO_SIDED = ("gloo", "nccl")  # their actors form a group first


def settle(arguments: Namespace, flow: Flow, gpus: int) -> int:
    """Refuse what cannot be; how many GPUs to use."""
    import torch

    transport = arguments.transport
    if arguments.zero_copy or arguments.reuse_buffers:
        raise UsageError("--zero-copy and --reuse-buffers are other scripts': leave them out")
    if transport in ("mapped", "cuda-ipc") and arguments.address:
        raise UsageError(f"{transport} is one machine's: leave --address out")
    if transport == "nixl":
        devices.need_nixl(torch.version.cuda)
    if transport == "nccl":
        devices.need_nccl(gpus, len(flow.roles) + 1)
    if transport == "cuda-ipc":
        devices.need_gpus(transport, gpus, 1)
    if transport == "cuda-ipc" or (transport == "mapped" and gpus):
        mapped_cuda.refuse_expandable_segments()
        return 1  # all on the same one
    return gpus


@contextmanager
def connect(arguments: Namespace, flow: Flow, start: Callable[..., tuple[dict[str, Any], Any]]) -> Iterator[Wiring]:
    """Start the roles and yield the transport's send(query) -> results."""
    import ray

    with warnings.catch_warnings():  # without a GPU, cupy says that it finds no NCCL
        warnings.filterwarnings("ignore", r"\s*nccl library could not be loaded")
        from ray.experimental.collective import create_collective_group

    from common.payload.participant import Participant, Role
    from common.transport import ring_rdt as mapped_rdt
    from common.transport.ring_participant import MappedParticipant

    transport = arguments.transport
    ray_name = transport.upper().replace("-", "_")
    if transport == "mapped":
        mapped_rdt.register()  # before any method is decorated, and any actor exists

    class DirectRole(Role):
        with_trainer = transport in WITH_TRAINER

        @ray.method(tensor_transport=ray_name)
        def forward_step(self, *inputs):
            return super().forward_step(*inputs)

        def register_pool(self):
            """NIXL: registered memory; without this every message is registered anew."""
            for payload in self.pool:
                ray.experimental.register_nixl_memory(payload)

    class MappedDirectRole(MappedParticipant, Role):
        @ray.method(tensor_transport=ray_name)
        def forward_step(self, *inputs):
            return super().forward_step(*inputs)

        def open_inputs(self):
            super().open_inputs()
            mapped_rdt.register(self)

    class Trainer(DirectRole):
        """The driver's two ends of the flow."""

        @ray.method(tensor_transport=ray_name)
        def emit(self, trip):
            return super().emit(trip)

        def hold(self, *results):
            self.receive(results)

    class TrainerHandle:
        """The trainer as `measure` sees it: a driver whose work is done elsewhere."""

        def __init__(self, flow, name, arguments, *_):
            share = devices.gpus_per_role(roles_gpus(), len(flow.roles) + 1)
            trainer = ray.remote(type("trainer", (Trainer,), {})).options(num_cpus=0, num_gpus=share)
            self.actor = trainer.remote(flow, name, arguments)
            if arguments.trace:
                trace.install_libraries(arguments.device)

        def __getattr__(self, method):
            return lambda *values: ray.get(getattr(self.actor, method).remote(*values))

        def emit(self, trip):
            return trip  # the trainer makes the payload when `send` asks for it

        def receive(self, results):
            pass  # the trainer has received them

        def spans(self):
            return ray.get(self.actor.spans.remote()) + trace.spans

    def roles_gpus():
        return int(ray.cluster_resources().get("GPU", 0))

    def flow_from(query):
        emitted = {DRIVER: query}
        for role in flow.roles:
            emitted[role.name] = roles[role.name].forward_step.remote(*(emitted[source] for source in role.reads))
        return [emitted[source] for source in flow.returns]

    def send(query):
        return ray.get(flow_from(ray.put(query, _tensor_transport=ray_name)))

    def send_by_trainer(trip):
        results = flow_from(driver.actor.emit.remote(trip))
        return ray.get(driver.actor.hold.remote(*results))  # its answer says that it has them

    once = {}
    with mapped.segments() if transport == "mapped" else nullcontext() as folder:
        if transport == "mapped":
            roles, driver = start(MappedDirectRole, MappedParticipant, folder)
            ray.get([role.open_inputs.remote() for role in roles.values()])
            driver.open_inputs()
            mapped_rdt.register(driver)
        else:
            roles, driver = start(DirectRole, TrainerHandle if transport in WITH_TRAINER else Participant)
    begin = time.perf_counter()
    if transport in TWO_SIDED:
        create_collective_group([driver.actor, *roles.values()], backend=transport)
        once["group creation"] = time.perf_counter() - begin
    if transport == "nixl":
        ray.get([role.register_pool.remote() for role in roles.values()])
        for payload in driver.pool:
            ray.experimental.register_nixl_memory(payload)
        once["agents, memory registration"] = time.perf_counter() - begin
    path = {str(edge): f"Ray Direct Transport, {ray_name}" for edge in flow.edges}
    ends = send_by_trainer if transport in WITH_TRAINER else send
    yield Wiring(ends, path, mapped=TRANSPORTS[transport] == "mapped", setup_seconds=once)


SCRIPT = case.Script(__file__, __doc__, TRANSPORTS, "gloo", settle, connect, host_only=("gloo",))

if __name__ == "__main__":
    sys.exit(case.run(SCRIPT))
