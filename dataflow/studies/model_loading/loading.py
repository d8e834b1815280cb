"""Publish the weights of a model once, and load them in fresh processes."""

import os
import pickle
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
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
from dataflow.studies import Collector, Part
from dataflow.studies.model_loading import PUBLISHER, Load, Loading
from dataflow.studies.model_loading.page_cache import drop_from_page_cache
from dataflow.workers.cleanup import SHARED_MEMORY, find_marked

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

    @property
    def digest(self) -> int:
        return digest([to_array(parameter) for parameter in self.parameters()], skip=0)


def save_file(module: Model, path: str) -> str:
    torch.save(module.state_dict(), path)
    return path


def save_safetensors(module: Model, path: str) -> str:
    safetensors.torch.save_file(module.state_dict(), path)
    return path


def put_arrays(module: Model, path: str) -> ray.ObjectRef:
    return ray.put({name: to_array(tensor) for name, tensor in module.state_dict().items()})


def get_arrays(reference: ray.ObjectRef, fields: Sequence[Field]) -> Tensors:
    """Map the arrays in the object store as tensors, without a copy: docs/model-loading.md names the source."""
    arrays = ray.get(reference)
    return {field.name: from_array(arrays[field.name], field.dtype) for field in fields}


def write_shared(module: Model, path: str) -> str:
    message, path = Message(module.fields), f"{SHARED_MEMORY}/{Path(path).parent.name}/weights"
    memory = torch.from_numpy(np.memmap(path, np.uint8, "w+", shape=(message.packed_bytes,)).view(np.ndarray))
    pack(module.state_dict(), message, packed_views(memory, message))
    return path


def map_shared(path: str, fields: Sequence[Field]) -> Tensors:
    return unpack(torch.from_numpy(np.memmap(path, np.uint8, "r").view(np.ndarray)), Message(tuple(fields)))


# Functions that publish a module and return what the others need, and functions that load it.
FUNCTIONS: dict[str, tuple[Callable[[Model, str], Any], Callable[[Any, Sequence[Field]], Tensors | Model]]] = {
    "torch-load": (save_file, lambda path, fields: torch.load(path, weights_only=True)),
    "torch-mmap": (save_file, lambda path, fields: torch.load(path, weights_only=True, mmap=True)),
    "safetensors": (save_safetensors, lambda path, fields: safetensors.torch.load_file(path)),
    "ray-module": (lambda module, path: ray.put(module), lambda reference, fields: ray.get(reference)),
    "ray-arrays": (put_arrays, get_arrays),
    "shared-memory": (write_shared, map_shared),
}


def memory_bytes(folder: Path) -> int:
    """Return the memory of all processes of the run (Pss: shared pages count once)."""
    total = 0
    for pid in {os.getpid(), *(process.pid for process in find_marked(folder))}:
        with suppress(psutil.Error):  # it has ended
            total += psutil.Process(pid).memory_full_info().pss
    return total


def copy_to_disk(path: str, name: str) -> str:
    """Return a copy of the file whose pages are not cached. A file of its own, because mapped pages stay cached."""
    copy = f"{path}.{name}"
    shutil.copyfile(path, copy)
    if not drop_from_page_cache(copy):
        raise RunFailed(f"files in {Path(path).parent} stay in the page cache: use another way, or set TMPDIR to a "
                        "folder on a disk with a short name")  # fmt: skip
    return copy


class LoadingPart(Part):
    name = "model_loading"
    measured: float | Load | None = None  # seconds of the publisher, or the load of another actor

    def run(self, task: str, number: int) -> None:
        """Publish or load the model in the first iteration."""
        if number == 1:
            plan, fields = self.endpoint.plan, self.endpoint.tasks[task].work
            step = self.publish if task == PUBLISHER else self.load
            self.measured = step(plan.run_folder, plan.options.load_by, fields)

    def publish(self, folder: Path, way: str, fields: Sequence[Field]) -> float:
        """Return the seconds for publishing. The file `published` says where the weights are, and has their digest."""
        module = Model(fields)
        module.load_state_dict({f.name: from_array(make_field(f, "model", 0)[0], f.dtype) for f in fields}, assign=True)
        start = time.perf_counter()
        published = FUNCTIONS[way.removesuffix("-cold")][0](module, f"{folder}/weights")
        seconds = time.perf_counter() - start
        (folder / "published").write_bytes(ray.cloudpickle.dumps((published, module.digest)))
        return seconds

    def load(self, folder: Path, way: str, fields: Sequence[Field]) -> Load:
        published, expected = pickle.loads((folder / "published").read_bytes())
        if way.endswith("-cold"):
            published = copy_to_disk(published, self.endpoint.name)
        before = memory_bytes(folder)
        times = [time.perf_counter()]
        loaded = FUNCTIONS[way.removesuffix("-cold")][1](published, fields)
        if isinstance(loaded, Model):
            self.module = loaded
        else:
            self.module = Model(fields)  # it stays, so that later processes can share its pages
            self.module.load_state_dict(loaded, assign=True)
        times.append(time.perf_counter())
        for _ in range(2):
            if self.module.digest != expected:
                raise RunFailed(f"{self.endpoint.name}: the loaded bytes differ from the published ones")
            times.append(time.perf_counter())
        load, first_read, second_read = (end - begin for begin, end in pairwise(times))
        return Load(load, first_read, second_read, max(0, memory_bytes(folder) - before))

    def end_group(self, number: int) -> float | Load | None:
        measured, self.measured = self.measured, None
        return measured


class LoadingCollector(Collector):
    def add(self, values: Mapping[str, Any], is_timed: bool) -> Mapping[str, int]:
        if values[PUBLISHER]:  # in the first iteration
            self.loading = Loading(values[PUBLISHER], [load for load in values.values() if isinstance(load, Load)])
        return {}

    def result(self, driver_seconds: Callable[[str, float], float]) -> tuple[Loading, str | None]:
        return self.loading, None
