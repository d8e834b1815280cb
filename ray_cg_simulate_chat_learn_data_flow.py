"""What does one trip of the RLHF data flow cost as one Ray compiled graph?

                  .------------- 96 MiB -------------.
                  |                                  v
    driver --> policy --> reference -- 64 MiB --> reward --> driver
        32 MiB     96 MiB                          160 MiB

The clock runs from the query in the driver's hand to the reward's output in the driver's hand. Payloads are
made before and checked after, while it stands.

    --transport nccl       GPU to GPU; the default where every role can have a GPU of its own
    --transport shm        TorchTensorType over a shared-memory channel; the default elsewhere
    --transport pickle     the same channel without the type hint: what the hint is worth
    --transport bytes      plain Python bytes, which Ray does not pickle: what its own benchmarks send
    --transport zero-copy  arrays out, mapped as tensors by the readers: nothing is copied on reading
    --transport mapped     payloads stay where their producer wrote them; the graph carries handles

    python3 ray_cg_simulate_chat_learn_data_flow.py
    python3 ray_cg_simulate_chat_learn_data_flow.py --transport zero-copy --iterations 20
"""

import sys
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
from common.transport import ring as mapped
from common.transport import ring_cuda as mapped_cuda
from common.transport.graph_proof import edge_paths, refuse_fallback

TRANSPORTS = {
    "nccl": "copied",
    "shm": "copied",
    "pickle": "copied",
    "bytes": "copied",
    "zero-copy": "mapped",
    "mapped": "mapped",
}
# Two buffers a channel: a reader may hold the view of one trip until it is handed the next one,
# while that one is written beside it. With one buffer, a held view would block the writer.
BUFFERS = 2
CHANNEL_HEADROOM_BYTES = 64 * 1024  # for what is not payload: the pickled frame of a tensor is under 1 KiB


def settle(arguments: Namespace, flow: Flow, gpus: int) -> int:
    """Take the default transport for this machine, and refuse what cannot be; how many GPUs to use."""
    if arguments.transport is None:
        arguments.transport = "nccl" if gpus >= len(flow.roles) else "shm"
    if arguments.zero_copy:
        raise UsageError("--zero-copy is the object store's: in the compiled graph give --transport zero-copy")
    if arguments.reuse_buffers and arguments.transport != "shm":
        raise UsageError("--reuse-buffers is for what the shm hint copies: give --transport shm, or leave it out")
    if arguments.transport == "mapped" and arguments.address:
        raise UsageError("mapped memory is one machine's: leave --address out")
    if arguments.transport == "mapped" and arguments.device == "cuda":
        mapped_cuda.refuse_expandable_segments()
        return 1  # all on the same one
    if arguments.transport == "nccl":
        devices.need_nccl(gpus, len(flow.roles))
    return gpus


def bind(flow: Flow, roles: dict[str, Any], transport: str) -> Any:
    """The flow as a graph of the roles' methods, not yet compiled.

    Returns:
        A DAGNode whose results are the outputs that return to the driver, in the flow's order.
    """
    from ray.dag import InputNode, MultiOutputNode

    hint = {"nccl": "nccl", "shm": "shm"}.get(transport)
    with InputNode() as query:
        emitted = {DRIVER: query}
        if hint:
            query.with_tensor_transport("shm")  # the driver is never an NCCL rank
        for role in flow.roles:
            inputs = [emitted[source] for source in role.reads]
            if transport == "nccl" and len(inputs) > 1:
                # Ray cannot compile a task that joins accelerator edges; it can compile methods that
                # receive one each and pass it on, inside the reading actor.
                inputs = [roles[role.name].pass_through.bind(tensor) for tensor in inputs]
            emitted[role.name] = roles[role.name].forward_step.bind(*inputs)
            if hint:
                returns = role.name in flow.returns
                emitted[role.name].with_tensor_transport("shm" if returns else hint)
        return MultiOutputNode([emitted[source] for source in flow.returns])


@contextmanager
def connect(arguments: Namespace, flow: Flow, start: Callable[..., tuple[dict[str, Any], Any]]) -> Iterator[Wiring]:
    """Start the roles, compile the graph and yield the transport's send(query) -> results."""
    import numpy as np
    import ray
    import torch
    from ray.dag.context import DAGContext

    from common.payload.participant import Participant, Role
    from common.transport import warm_receive as receive_buffers
    from common.transport.ring_participant import MappedParticipant, MappedRole

    def from_array(array):
        if not isinstance(array, np.ndarray):
            raise TypeError(f"expected an array, got {type(array).__name__}")
        with warnings.catch_warnings():  # torch warns that nobody may write to a channel: nobody does
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(array).to(arguments.device)

    def from_bytes(message):
        return from_array(np.frombuffer(message, np.uint8 if len(message) % 8 else np.int64))

    # What travels instead of a tensor: arrays, which Ray maps instead of copying, or bytes.
    encode, decode = {
        "zero-copy": (lambda tensor: tensor.cpu().numpy(), from_array),
        "bytes": (lambda tensor: tensor.cpu().numpy().tobytes(), from_bytes),
    }.get(arguments.transport, (None, None))

    class GraphRole(Role):
        def __init__(self, flow, name, arguments):
            # Ray ignores the argument of experimental_compile; the process that writes a channel decides.
            DAGContext.get_current().buffer_size_bytes = flow.emits_bytes(name) + CHANNEL_HEADROOM_BYTES
            super().__init__(flow, name, arguments)
            if arguments.reuse_buffers:
                receive_buffers.install()

        def pass_through(self, tensor):
            return tensor

    class EncodedRole(GraphRole):
        def forward_step(self, *messages):
            return encode(super().forward_step(*map(decode, messages)))

    def send(query):
        return ray.get(graph.execute(query))

    def send_encoded(query):
        return [decode(message) for message in ray.get(graph.execute(encode(query)))]

    def send_handle(query):
        return [driver.view(handle) for handle in ray.get(graph.execute(driver.handle_of(query)))]

    with mapped.segments() if arguments.transport == "mapped" else nullcontext() as folder:
        if arguments.transport == "mapped":
            roles, driver = start(MappedRole, MappedParticipant, folder)
            ray.get([role.open_inputs.remote() for role in roles.values()])
            driver.open_inputs()
        else:
            roles, driver = start(EncodedRole if encode else GraphRole, Participant)
        if arguments.reuse_buffers:
            receive_buffers.install()
    # Everybody has mapped what he reads: the folder is gone already, and the memory ends with the processes.
    graph = bind(flow, roles, arguments.transport).experimental_compile(_max_inflight_executions=BUFFERS)
    try:
        paths = edge_paths(graph, flow, roles)
        refuse_fallback(paths, flow, arguments.transport)
        if arguments.transport == "mapped":
            memory = "CUDA IPC" if arguments.device == "cuda" else "/dev/shm"
            paths = {edge: f"mapped {memory}, handle by {path}" for edge, path in paths.items()}
        way = send_handle if arguments.transport == "mapped" else send_encoded if encode else send
        yield Wiring(way, paths, mapped=TRANSPORTS[arguments.transport] == "mapped")
    finally:
        graph.teardown()


SCRIPT = case.Script(__file__, __doc__, TRANSPORTS, None, settle, connect)

if __name__ == "__main__":
    sys.exit(case.run(SCRIPT))
