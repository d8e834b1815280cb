"""Record when each process did what. --trace wraps the functions below; without --trace nothing is wrapped.

The clock is time.perf_counter: on Linux CLOCK_MONOTONIC, which all processes of a machine share.
"""

import functools
import resource
import sys
import threading
import time
from pkgutil import resolve_name
from typing import Any

# Methods of an endpoint and their stages. They are wrapped per object: Ray gives the classes of actors other methods.
ENDPOINT_METHODS = (
    ("make_payload", "make"), ("pack", "pack"), ("receive", "sequence number"), ("unpack", "unpack"),
    ("split_samples", "unpack"), ("copy_out", "copy"), ("compute", "compute"),
)  # fmt: skip
# Module, function and stage. The time of a span inside another one counts only for the inner one: "write" of an object
# is put_object without the serialisation in it. "wait" is messages, scheduling, wake-ups, and work of Ray's C++ code
# that Python does not see. "transfer" is a library's send or receive, which includes the wait for the other side.
POINTS = (
    ("dataflow.endpoints.tensors", "synchronise", "synchronise"),
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
    ("torch.distributed", "irecv", "transfer"),
    ("multiprocessing.queues", "SimpleQueue.put", "write"),
    ("multiprocessing.queues", "SimpleQueue.get", "wait"),
    ("multiprocessing.queues", "_ForkingPickler.loads", "deserialise"),
    ("os", "write", "write"),  # torch mapped: a sequence number into a pipe, and out of it
    ("os", "read", "wait"),
    ("torch", "Tensor.copy_", "copy"),
    ("torch", "_foreach_copy_", "copy"),
)
ON_GPUS = (("torch", "Tensor.cpu", "device to host"), ("torch", "Tensor.to", "host to device"))

installed = False
# Thread, stage, start and end in seconds of the clock, and the page faults of the process outside of inner spans.
spans: list[tuple[int, str, float, float, int]] = []
open_spans = threading.local()  # .faults: for each open span of this thread, the page faults of the spans inside it


def install(endpoint: Any) -> None:
    """Wrap the methods of an endpoint and, once per process, the functions of the imported libraries."""
    global installed
    for name, stage in ENDPOINT_METHODS:
        if hasattr(endpoint, name):  # the driver has no compute
            setattr(endpoint, name, _timed(getattr(endpoint, name), stage))
    for part in endpoint.parts:
        for name, stage in part.traced.items():
            setattr(part, name, _timed(getattr(part, name), stage))
    if installed:
        return
    installed = True
    for module, path, stage in POINTS + (ON_GPUS if endpoint.device.type == "cuda" else ()):
        if module.partition(".")[0] in sys.modules:
            owner, name = find_owner(module, path)
            setattr(owner, name, _timed(getattr(owner, name), stage))


def find_owner(module: str, path: str) -> tuple[Any, str]:
    """Return the module or class that holds the function `path` of a module, and the function's name there."""
    parent, _, name = path.rpartition(".")
    return resolve_name(f"{module}:{parent}"), name


def _timed(function: Any, stage: str) -> Any:
    @functools.wraps(function)
    def timed(*arguments: Any, **options: Any) -> Any:
        inner_faults = open_spans.__dict__.setdefault("faults", [])
        inner_faults.append(0)
        start, faults_before = time.perf_counter(), count_faults()
        try:
            return function(*arguments, **options)
        finally:
            faults = count_faults() - faults_before
            spans.append((threading.get_ident(), stage, start, time.perf_counter(), faults - inner_faults.pop()))
            if inner_faults:
                inner_faults[-1] += faults

    return timed


def count_faults() -> int:
    """Return the minor page faults of this process so far: of all threads, because Ray copies with several."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
