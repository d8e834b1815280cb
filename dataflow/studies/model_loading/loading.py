"""Publish the weights of a model once, and load them in processes that have only imported Ray and torch.

python3 -m dataflow.studies.model_loading.loading RUN_FOLDER     the folder has "plan", and gets result.json
"""

import json
import os
import pickle
import shutil
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import ray
import safetensors.torch
import torch

from dataflow.endpoints.payload import digest, make_field
from dataflow.endpoints.tensors import from_array, pack, packed_views, to_array, unpack
from dataflow.errors import RunFailed
from dataflow.flows.message import Field, Message
from dataflow.records.machine import describe_environment
from dataflow.studies.model_loading.page_cache import drop_from_page_cache
from dataflow.workers.ray_workers import start_cluster

Tensors = dict[str, torch.Tensor]
warnings.filterwarnings("ignore", message="Zero-copy tensor")  # Ray warns about writes to views; there are none


class Model(torch.nn.Module):
    """A module that computes nothing and has these parameters, without memory until they are assigned."""

    def __init__(self, fields: Sequence[Field]) -> None:
        super().__init__()
        self.fields = tuple(fields)
        for field in fields:
            tensor = torch.empty(field.shape, dtype=getattr(torch, field.dtype), device="meta")
            self.register_parameter(field.name, torch.nn.Parameter(tensor, requires_grad=False))


def save_file(module: Model, folder: Path) -> str:
    torch.save(module.state_dict(), path := f"{folder}/weights.pt")
    return path


def load_file(path: str, fields: Sequence[Field]) -> Tensors:
    return torch.load(path, weights_only=True)


def map_file(path: str, fields: Sequence[Field]) -> Tensors:
    return torch.load(path, weights_only=True, mmap=True)


def save_safetensors(module: Model, folder: Path) -> str:
    safetensors.torch.save_file(module.state_dict(), path := f"{folder}/weights.safetensors")
    return path


def load_safetensors(path: str, fields: Sequence[Field]) -> Tensors:
    return safetensors.torch.load_file(path)


def put_module(module: Model, folder: Path) -> list[Any]:
    return [ray.put(module)]


def get_module(references: list[Any], fields: Sequence[Field]) -> Model:
    return ray.get(references[0])


def put_arrays(module: Model, folder: Path) -> list[Any]:
    return [ray.put({name: to_array(tensor) for name, tensor in module.state_dict().items()})]


def get_arrays(references: list[Any], fields: Sequence[Field]) -> Tensors:
    """Map the arrays in the object store as tensors, without a copy: docs/model-loading.md names the source."""
    arrays = ray.get(references[0])
    return {field.name: from_array(arrays[field.name], field.dtype) for field in fields}


def write_shared(module: Model, folder: Path) -> str:
    message = Message(module.fields)
    path = f"/dev/shm/{folder.name}/weights"
    memory = torch.from_numpy(np.memmap(path, np.uint8, "w+", shape=(message.packed_bytes,)).view(np.ndarray))
    pack(module.state_dict(), message, packed_views(memory, message))
    return path


def map_shared(path: str, fields: Sequence[Field]) -> Tensors:
    memory = torch.from_numpy(np.memmap(path, np.uint8, "r").view(np.ndarray))
    return unpack(memory, Message(tuple(fields)))


class Worker:
    """A process that loads the model."""

    def __init__(self, fields: Sequence[Field]) -> None:
        torch.set_num_threads(1)
        self.fields = fields

    def load(self, function: str, published: Any) -> float:
        """Return the seconds until a module has all its parameters, which a function above has loaded."""
        start = time.perf_counter()
        self.module = loaded = globals()[function](published, self.fields)
        if not isinstance(loaded, Model):
            self.module = Model(self.fields)
            self.module.load_state_dict(loaded, assign=True)
        return time.perf_counter() - start

    def read(self) -> tuple[int, float]:
        """Return the hash of all bytes, and the seconds for reading them."""
        start = time.perf_counter()
        return read_all(self.module), time.perf_counter() - start


def read_all(module: Model) -> int:
    return digest([to_array(parameter) for parameter in module.parameters()], skip=0)


def memory_bytes() -> int:
    """Return the memory of this process and all that descend from it; shared pages count once."""
    total = 0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


def copy_to_disk(path: str, number: int) -> str:
    """Return a copy of the file whose pages are not cached. A file of its own, because mapped pages stay cached."""
    copy = f"{path}.{number}"
    shutil.copyfile(path, copy)
    if not drop_from_page_cache(copy):
        raise RunFailed("a copy of the file stays in the page cache: leave the cold ways out")
    return copy


def measure(folder: Path) -> None:
    """Publish and load as the plan in the folder says, and write the result into the folder."""
    plan, way, workers = pickle.loads((folder / "plan").read_bytes())
    fields = [replace(f, name=f.name.replace(".", "_")) for m in plan.task_flow.messages if m.is_parameters
              for f in m.fields]  # fmt: skip
    start_cluster(plan)
    module = Model(fields)
    module.load_state_dict({f.name: from_array(make_field(f, "model", 0)[0], f.dtype) for f in fields}, assign=True)
    expected = read_all(module)
    start = time.perf_counter()
    published = globals()[way["publish"]](module, folder)
    publish_seconds = time.perf_counter() - start
    loads, actors = [], []
    for number in range(1, workers + 1):
        actor = ray.remote(num_cpus=0)(Worker).remote(fields)
        actors.append(actor)  # it stays, so that later workers can share its pages
        ray.get(actor.__ray_ready__.remote())
        source = copy_to_disk(published, number) if way["is_cold"] else published
        before = memory_bytes()
        load_seconds = ray.get(actor.load.remote(way["load"], source))
        reads = [ray.get(actor.read.remote()) for _ in range(2)]
        if any(digest != expected for digest, _ in reads):
            raise RunFailed(f"worker {number}: the loaded bytes differ from the published ones")
        loads.append({
            "load_seconds": load_seconds, "first_read_seconds": reads[0][1], "second_read_seconds": reads[1][1],
            "added_bytes": max(0, memory_bytes() - before),
        })  # fmt: skip
    result = {"publish_seconds": publish_seconds, "loads": loads, "environment": describe_environment()}
    (folder / "result.json").write_text(json.dumps(result))


def main() -> None:
    folder = Path(sys.argv[1])
    try:
        measure(folder)
    except RunFailed as error:
        (folder / "error").write_text(str(error))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    from dataflow.studies.model_loading import (
        loading,  # Ray sends classes of __main__ by value, and those of modules by name
    )

    loading.main()
