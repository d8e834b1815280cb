# SPDX-License-Identifier: Apache-2.0
"""Loading a model: how long a fresh process needs for the weights, and how much memory it adds.

    driver --> publisher: the weights in a file, in Ray's store or in shared memory --> loader-1 --> loader-2 --> driver

The messages are acknowledgements. The model is loaded in the first iteration, in one process after the other; the later
iterations only pass messages.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from msgspec import Struct

from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, model_fields
from dataflow.plan.flag import flag
from dataflow.study import Study
from dataflow.units import format_bytes

PUBLISHER = "publisher"
WAYS = ("torch-load", "torch-mmap", "safetensors", "ray-module", "ray-arrays", "shared-memory")


@dataclass(frozen=True, kw_only=True)
class LoadingFlags:
    # fmt: off
    load_by: str | None = flag("model loading", None, "torch.load of a file, with mmap too; safetensors; a module or a "
        "dict of arrays in Ray's store; or shared memory", str, choices=WAYS, configuration=True)
    # fmt: on


class Load(Struct):
    """The load of one process."""

    load_seconds: float  # until the module has all parameters
    first_read_seconds: float  # of all bytes, and their hash
    second_read_seconds: float
    added_bytes: int  # memory of all processes together, from before the load to after the reads


def model_loading(model: str = "bert-base", model_scale: float = 1.0) -> Flow:
    """Return a publisher, and three processes that load one after the other; raise ValueError for an unknown model."""
    fields = tuple(
        replace(field, name=field.name.replace(".", "_"))
        for field in model_fields(model, model_scale)
    )
    size = format_bytes(sum(field.bytes for field in fields))
    names = (PUBLISHER, "loader-1", "loader-2", "loader-3")
    tasks = tuple(
        Task(name, (before,), ACKNOWLEDGEMENT, work=fields)
        for before, name in pairwise((DRIVER, *names))
    )
    title = f"Loading {model}: {size} in {len(fields):,} tensors"
    return Flow("model-loading", title, ACKNOWLEDGEMENT, tasks, returns=names[-1:])


def find_errors(transport: Any, options: Any, flow: Flow) -> Iterator[str]:
    """Yield one line for each rule of --load-by that is broken: what is wrong, and what to do."""
    load_by = options.study.model_loading.load_by
    if bool(load_by) != (flow.name == "model-loading"):
        yield "--flow model-loading and --load-by need each other: give both"
    if load_by and transport.label != "store refs":
        yield f"--load-by: {transport.label} does not pass references: use store refs"
    if load_by and options.address:  # its processes have no mark of the run
        yield f"--address {options.address}: --load-by cannot see the memory of an existing cluster: leave it out"


STUDY = Study(
    flows={"model-loading": model_loading},
    flags=LoadingFlags,
    find_errors=find_errors,
    is_used=lambda plan: bool(plan.options.study.model_loading.load_by),
    part="loading:LoadingPart",
    collect="loading:find_loads",
)
