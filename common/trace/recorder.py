"""When what was done, in each process: --trace wraps the functions below, and nothing is wrapped without it.

The clock is time.perf_counter, on Linux CLOCK_MONOTONIC, which all processes of a machine share.
"""

import functools
import importlib
import sys
import threading
import time
from typing import Any

# Of each participant itself: Ray gives actors' classes methods of their own, so the class is not the place.
OWN_POINTS = (
    ("emit", "make"), ("pack", "pack"), ("receive", "stamp"), ("unpack", "unpack"), ("copy_out", "copy"),
    ("compute", "compute"), ("train", "train"),
)  # fmt: skip
# module, function, stage. A stage inside another one counts as itself alone: writing an object to the
# store, say, is put_object without the serialising in it. `wait` is the one stage in which nothing is
# done: messages, scheduling and wake-ups, and what Ray's C++ does where Python cannot see it. `transfer` is a
# library's send or receive, which waits for its other end as well.
POINTS = (
    ("common.runtime.gpus", "synchronise", "synchronise"),
    ("ray._private.serialization", "SerializationContext.serialize", "serialise"),
    ("ray._private.worker", "Worker.put_object", "write"),
    ("ray._private.worker", "Worker.get_objects", "wait"),
    ("ray._private.worker", "Worker.deserialize_objects", "deserialise"),
    ("ray.actor", "ActorMethod._remote", "submit"),
    ("ray.actor", "ActorClass._remote", "submit"),
    ("ray.dag.compiled_dag_node", "CompiledDAG.execute", "submit"),
    ("ray.dag.compiled_dag_node", "ExecutableTask.exec_operation", "loop"),
    ("ray.experimental.channel.shared_memory_channel", "Channel.write", "write"),
    ("ray.experimental.rdt.rdt_manager", "RDTManager.get_rdt_objects", "wait"),
    ("ray.experimental.rdt.rdt_manager", "RDTManager.fetch_and_get_rdt_objects", "wait"),
    ("ray.experimental.rdt.rdt_manager", "RDTManager.trigger_out_of_band_tensor_transfer", "submit"),
    ("ray.experimental.rdt.nixl_tensor_transport", "NixlTensorTransport.extract_tensor_transport_metadata", "write"),
    ("ray.experimental.rdt.nixl_tensor_transport", "NixlTensorTransport.fetch_multiple_tensors", "copy"),
    ("ray.experimental.rdt.nixl_tensor_transport", "NixlTensorTransport.wait_fetch_complete", "copy"),
    ("ray.experimental.rdt.nixl_tensor_transport", "NixlTensorTransport.actor_has_tensor_transport", "submit"),
    ("torch.distributed", "isend", "transfer"),
    ("torch.distributed", "Work.wait", "transfer"),
    ("torch.distributed", "recv", "transfer"),
    ("multiprocessing.queues", "SimpleQueue.put", "write"),
    ("multiprocessing.queues", "SimpleQueue.get", "wait"),
    ("multiprocessing.queues", "_ForkingPickler.loads", "deserialise"),
    ("os", "write", "write"),  # torch mapped: a number into a pipe, and out of it
    ("os", "read", "wait"),
    ("torch", "Tensor.copy_", "copy"),
)
ON_GPUS = (("torch", "Tensor.cpu", "device to host"), ("torch", "Tensor.to", "host to device"))

installed = False
spans: list[tuple[int, str, float, float]] = []  # thread, stage, start and end in seconds of the clock


def install(participant: Any) -> None:
    """Wrap the participant's own points, and those of the libraries that its process uses."""
    for name, stage in OWN_POINTS:
        if not hasattr(participant, name):  # the driver computes nothing
            continue
        setattr(participant, name, _timed(getattr(participant, name), stage))
    install_libraries(participant.device.type)


def install_libraries(device: str) -> None:
    """Wrap the libraries' points; once, though several roles may live in a process."""
    global installed
    if installed:
        return
    installed = True
    for module, path, stage in POINTS + (ON_GPUS if device == "cuda" else ()):
        if module.partition(".")[0] in sys.modules:
            owner: Any = importlib.import_module(module)
            *parents, name = path.split(".")
            for parent in parents:
                owner = getattr(owner, parent)
            setattr(owner, name, _timed(getattr(owner, name), stage))


def _timed(function: Any, stage: str) -> Any:
    @functools.wraps(function)
    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            spans.append((threading.get_ident(), stage, start, time.perf_counter()))

    return timed
