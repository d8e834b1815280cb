"""Rank the configurations for a workload by measured times or, without any, by an interpolation between other sizes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from common.analysis.result import Result
from common.analysis.statistics import interval
from common.errors import RecordError
from common.flows.flow import Flow
from common.records import files
from common.records.environment import MACHINE_KEYS
from common.records.schema import SENDER_SIZES, Layout, Workload
from common.transports.catalogue import VARIANTS, Transport, readers_get_views
from common.units import format_bytes

NEARLY_FASTEST = 1.10  # times a single time: it may differ so much from the next one


@dataclass(frozen=True)
class Request:
    """The workload that a user asks about, and the machines."""

    workload: Workload
    flow: Flow
    copies: bool = True  # each reader needs its own copy of all bytes; False: it may get a view
    nodes: int = 1
    gpus: int = 0
    on_ray: bool = False  # only configurations that use Ray

    @property
    def forms(self) -> dict[str, Workload]:
        """Return the workload by what the name has in addition: messages of fields can be packed or jagged."""
        forms = {"": self.workload}
        if self.workload.message == "fields" and not self.workload.sizes.get("as_sent"):
            for form in ("packed", "jagged", "tensordict"):
                forms[f" --message {form}"] = structs.replace(self.workload, message=form)
        return forms


@dataclass(frozen=True)
class Choice:
    """A configuration and its seconds per iteration, from a result with exactly this workload, or interpolated."""

    name: str
    seconds: float
    result: Result | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Return the ends of the 95 % interval; of a single run or an interpolation, 10 % below and above."""
        measured = interval(self.result.run_seconds) if self.result else None
        return measured or (self.seconds / NEARLY_FASTEST, self.seconds * NEARLY_FASTEST)


def rule_out(transport: Transport, flags: Mapping[str, Any], request: Request) -> str | None:
    """Return why a configuration is impossible; None if it is possible."""
    requirements, runtime = transport.requirements, transport.runtime
    if request.on_ray and not runtime.uses_ray:
        return "without Ray"
    if requirements.single_process or "check_every" in flags:
        return "not a transport of its own"
    if request.copies and readers_get_views(transport, flags):
        return "readers get a view; possible with --reads some"
    if request.nodes > 1 and (requirements.shared_memory or not transport.can_cross_nodes):
        return "all actors must be on one machine"
    if request.gpus and requirements.host_memory_only:
        return "it moves host memory only"
    if requirements.gpus > request.gpus or (requirements.gpu_per_actor and request.gpus < len(request.flow.actors)):
        return "too few GPUs"
    return None


def name_choice(request: Request, result: Result) -> str | None:
    """Return the name of a result with exactly this workload, else None.

    Senders of parameters may cut them into messages as they like.
    """
    if not request.flow.has_parameters:
        words = [words for words, workload in request.forms.items() if workload == result.workload]
        return f"{result.name}{words[0]}" if words and result.variant else None
    measured, asked = (
        (workload.flow, {name: size for name, size in workload.sizes.items() if name not in SENDER_SIZES})
        for workload in (result.workload, request.workload)
    )
    is_other = "model_seconds" in result.configuration.flags or any(run.free_run for run in result.shown_runs)
    return result.label if measured == asked and not is_other else None


def rank(request: Request, results: Sequence[Result]) -> tuple[list[Choice], dict[str, list[str]]]:
    """Return the configurations that have a time, the fastest first, and the names of the others by their reason.

    `results` are of one machine and apart by record, because the newest of equal measurements counts.
    """
    device = "cuda" if request.gpus else "cpu"
    usable = [
        result for result in results
        if result.configuration.device == device and has_nodes(result, request.nodes)
        and result.status == "ok" and not (result.traced or result.paired)
    ]  # fmt: skip
    usable.sort(key=lambda result: result.runs[0].started_at)
    usable = [result for result in usable if result.configuration.layout.link == usable[-1].configuration.layout.link]
    measured = {name: result for result in usable if (name := name_choice(request, result))}
    choices = [
        Choice(name, result.typical_seconds, result) for name, result in measured.items()
        if not rule_out(result.transport, result.configuration.flags, request)
    ]  # fmt: skip
    known = {result.name for result in measured.values()}
    others: dict[str, list[str]] = defaultdict(list)
    for variant in VARIANTS:
        if reason := rule_out(variant.transport, variant.flags, request):
            others[f"ruled out, {reason}"].append(variant.name)
        elif variant.name not in known:
            candidates = [result for result in usable if result.variant is variant]
            seconds, missing = interpolate(request, candidates)
            if seconds:
                choices.append(Choice(variant.name, seconds))
            else:
                others[f"not measured, {missing}"].append(variant.name)
    return sorted(choices, key=lambda choice: choice.seconds), others


def has_nodes(result: Result, count: int) -> bool:
    """Return whether the actors ran on so many nodes: on one, of a private cluster, and on more, of an existing one."""
    layout = result.configuration.layout
    if count == 1:
        return layout == Layout()
    return layout.existing_cluster and len(set(result.shown_runs[0].nodes.values())) == count


def interpolate(request: Request, results: Sequence[Result]) -> tuple[float | None, str]:
    """Return the seconds per iteration, or None and what was not measured.

    The logarithm of the time is linear in the logarithm of the bytes per iteration, between points that were measured
    with this configuration and flows of the same shape. Tensors beyond the first of a message have a measured cost.
    """
    shape = _shape(request.workload)
    if not results:
        return None, "no record" + (f" of {request.nodes} nodes" if request.nodes > 1 else "")
    if shape is None:
        return None, "only messages of fields are interpolated, and not those as sent by ChatLearn"
    logs: dict[tuple[int, int], list[float]] = defaultdict(list)  # additional tensors, bytes -> log seconds
    for result in results:
        workload, tensors = result.workload, _additional_tensors(result.flow)
        if _shape(workload) == shape and not result.spilled_bytes and (not tensors or "fields" in workload.sizes):
            logs[tensors, workload.bytes_per_iteration].append(np.log(result.typical_seconds))
    points = {point: float(np.mean(values)) for point, values in logs.items()}
    sizes = sorted(size for tensors, size in points if not tensors)
    if not sizes:
        return None, "no flow of this shape was measured"
    size, tensors = request.workload.bytes_per_iteration, _additional_tensors(request.flow)
    if not sizes[0] <= size <= sizes[-1]:
        return None, f"measured only from {format_bytes(sizes[0])} to {format_bytes(sizes[-1])} per iteration"
    seconds = float(np.exp(np.interp(np.log(size), np.log(sizes), [points[0, measured] for measured in sizes])))
    if not tensors:
        return seconds, ""
    most, cut_size = max(point for point in points if point[1] in sizes)
    if tensors > most:
        return None, f"the cost of {tensors:,} additional tensors: at most {most:,} (--sweep fields=8:512:8x)"
    added = float(np.exp(points[most, cut_size]) - np.exp(points[0, cut_size]))
    return seconds + tensors * max(0.0, added) / most, ""


def _shape(workload: Workload) -> list[tuple[int, int]] | None:
    """Return the edges with numbers for names, to compare flows; None for messages that are packed or as sent."""
    if workload.message in ("packed", "jagged", "tensordict") or workload.sizes.get("as_sent"):
        return None
    names = list(dict.fromkeys(name for edge in workload.edges for name in (edge.source, edge.reader)))
    return [(names.index(edge.source), names.index(edge.reader)) for edge in workload.edges]


def _additional_tensors(flow: Flow) -> int:
    """Return the tensors beyond the first of each message, summed over the edges."""
    return sum(len(edge.message.tensor_bytes) - 1 for edge in flow.edges)


def load_by_machine(paths: Sequence[Path]) -> dict[str, list[Result]]:
    """Return a result per record with an ok run, by `machine_key`.

    Files that are no records are ignored, and those in a folder `evidence`, which may have other settings.
    """
    by_machine: dict[str, list[Result]] = defaultdict(list)
    for path in dict.fromkeys(path.resolve() for path in files.record_files(paths)):
        with suppress(RecordError):
            result = Result((files.load(path),))
            if result.environments and "evidence" not in path.parts:
                by_machine[machine_key(result.environments[0])].append(result)
    return by_machine


def machine_key(environment: Mapping[str, Any]) -> str:
    """Return a text that is equal for equal machines and versions. Only torch knows the version of NCCL."""
    return repr([environment.get(key) or None for key in MACHINE_KEYS if key != "nccl"])
