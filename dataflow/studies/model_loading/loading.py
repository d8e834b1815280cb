# SPDX-License-Identifier: Apache-2.0
"""Publish the weights of a model once, and load them in fresh processes."""

import os
import pickle
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import ray
import safetensors.torch
import torch
from torch.nn import Module, Parameter, ParameterDict

from dataflow.endpoints.payload import digest, make_field
from dataflow.endpoints.tensors import from_array, pack, split_buffer, to_array, unpack
from dataflow.errors import RunFailed
from dataflow.flows.message import Field, Message
from dataflow.studies.model_loading import PUBLISHER, Load
from dataflow.study import Part
from dataflow.workers.cleanup import SHARED_MEMORY, find_marked

Tensors = dict[str, torch.Tensor]
# Ray warns about writes to views; there are none.
warnings.filterwarnings("ignore", message="Zero-copy tensor")


def make_module(fields: Sequence[Field], tensors: Tensors) -> Module:
    """Return a module of these tensors. Before it gets them, it is on torch's meta device, which has no memory."""
    parameters = {}
    for field in fields:
        dtype = getattr(torch, field.dtype)
        empty = torch.empty(field.shape, dtype=dtype, device="meta")
        parameters[field.name] = Parameter(empty, requires_grad=False)
    module = ParameterDict(parameters)
    module.load_state_dict(tensors, assign=True)
    return module


def digest_of(module: Module) -> int:
    """Return the hash of all bytes of a module, which are read once."""
    arrays = [to_array(parameter) for parameter in module.parameters()]
    return digest(arrays, skip=0)


def map_file(path: str, mode: Any, size: int | None = None) -> torch.Tensor:
    """Return the bytes of a mapped file, with a new size for the mode "w+"."""
    mapped = np.memmap(path, np.uint8, mode, shape=size)
    return torch.from_numpy(mapped.view(np.ndarray))


def publish_module(module: Module, way: str, folder: Path, message: Message) -> Any:
    """Return by what another process loads the module: a reference for the ways ray-*, else the path of a file.

    Raise ValueError for an unknown way, and OSError or the error of a library if the file cannot be written.
    """
    path = f"{folder}/weights"
    tensors = module.state_dict()
    if way == "ray-module":
        return ray.put(module)
    if way == "ray-arrays":
        return ray.put({name: to_array(tensor) for name, tensor in tensors.items()})
    if way == "shared-memory":
        path = f"{SHARED_MEMORY}/{folder.name}/weights"
        buffer = map_file(path, mode="w+", size=message.packed_bytes)
        parts = split_buffer(buffer, message)
        pack(tensors, message, parts)
    elif way == "safetensors":
        safetensors.torch.save_file(tensors, path)
    elif way in ("torch-load", "torch-mmap"):  # they read the same file
        torch.save(tensors, path)
    else:
        raise ValueError(f"{way} is no way to load a module")
    return path


def load_module(published: Any, way: str, message: Message) -> Module:
    """Return the published module. An unknown way is read with torch.load: `publish_module` has rejected it before.

    docs/studies/model-loading.md names the source of ray-arrays, which maps them.
    """
    if way == "ray-module":
        return ray.get(published)
    if way == "ray-arrays":
        arrays = ray.get(published)
        tensors = {
            field.name: from_array(arrays[field.name], field.dtype) for field in message.fields
        }
    elif way == "shared-memory":
        tensors = unpack(map_file(published, mode="r"), message)
    elif way == "safetensors":
        tensors = safetensors.torch.load_file(published)
    else:
        tensors = torch.load(published, weights_only=True, mmap=way == "torch-mmap")
    return make_module(message.fields, tensors)


def memory_bytes(folder: Path) -> int:
    """Return the memory of all processes of the run (Pss: shared pages count once)."""
    total = 0
    pids = {process.pid for process in find_marked(folder)}
    pids.add(os.getpid())
    for pid in pids:
        with suppress(psutil.Error):  # it has ended
            total += psutil.Process(pid).memory_full_info().pss
    return total


class LoadingPart(Part):
    name = "model_loading"
    measured: float | Load | None = None  # seconds of the publisher, or the load of another actor

    def run(self, task: str, number: int) -> None:
        """Publish or load the model in the first iteration."""
        if number == 1:
            plan = self.endpoint.plan
            message = Message(self.endpoint.tasks[task].work)
            step = self.publish if task == PUBLISHER else self.load
            self.measured = step(plan.run_folder, plan.options.study.model_loading.load_by, message)

    def publish(self, folder: Path, way: str, message: Message) -> float:
        """Return the seconds for publishing. The file `published` says where the weights are, and has their digest."""
        tensors = {}
        for field in message.fields:
            (array,) = make_field(field, "model", slot=0)
            tensors[field.name] = from_array(array, field.dtype)
        module = make_module(message.fields, tensors)
        start = time.perf_counter()
        published = publish_module(module, way, folder, message)
        seconds = time.perf_counter() - start
        data = ray.cloudpickle.dumps((published, digest_of(module)))
        (folder / "published").write_bytes(data)
        return seconds

    def load(self, folder: Path, way: str, message: Message) -> Load:
        """Return the times of a load and of two reads, and by how much the memory of all processes grew.

        Raise RunFailed if the bytes are not the published ones.
        """
        published, expected = pickle.loads((folder / "published").read_bytes())
        before = memory_bytes(folder)
        times = [time.perf_counter()]
        # It stays, so that later processes can share its pages.
        self.module = load_module(published, way, message)
        times.append(time.perf_counter())
        for _ in range(2):
            if digest_of(self.module) != expected:
                raise RunFailed(
                    f"{self.endpoint.name}: the loaded bytes differ from the published ones"
                )
            times.append(time.perf_counter())
        load, first_read, second_read = (end - begin for begin, end in pairwise(times))
        added_bytes = memory_bytes(folder) - before
        return Load(load, first_read, second_read, max(0, added_bytes))

    def end_group(self, number: int) -> float | Load | None:
        return self.measured


def find_loads(
    plan: Any, groups: Sequence[tuple[Mapping[str, Any], bool]], _: Any
) -> tuple[dict[str, Any], None]:
    """Return what was measured in the first iteration: the seconds of the publisher, and the load of each process."""
    values, _ = groups[0]
    loads = [load for load in values.values() if isinstance(load, Load)]
    return {"publish_seconds": values[PUBLISHER], "loads": loads}, None
