"""Rank the configurations for a workload by measured times or, without any, by an interpolation between other sizes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.analysis.result import Result
from common.analysis.statistics import typical_seconds
from common.errors import RecordError
from common.flows.flow import Flow
from common.records import files
from common.records.environment import MACHINE_KEYS
from common.records.schema import Configuration, Layout, Workload
from common.transports.catalogue import VARIANTS, Variant
from common.units import format_bytes

NEARLY_FASTEST = 1.10  # times the fastest: such a choice is right


@dataclass(frozen=True)
class Request:
    """The workload that a user asks about, and the machines."""

    workload: Workload
    flow: Flow
    copies: bool = True  # each reader needs its own copy of all bytes; False: it may get a view
    nodes: int = 1
    gpus: int = 0

    def configure(self, variant: Variant) -> Configuration:
        """Return the configuration of a variant on these nodes and GPUs."""
        transport, device = variant.transport, "cuda" if self.gpus else "cpu"
        layout = Layout("spread", existing_cluster=True) if self.nodes > 1 else Layout()
        return Configuration(transport.runtime.name, transport.name, dict(variant.flags), device, layout)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Choice:
    """A configuration that is possible."""

    variant: Variant
    seconds: float | None  # per iteration; None: not measured
    is_measured: bool  # with exactly this workload; False: interpolated
    note: str = ""  # a limit of the interpolation, or why there is none


def rule_out(variant: Variant, request: Request) -> str | None:
    """Return why a configuration is impossible; None if it is possible."""
    requirements, runtime = variant.transport.requirements, variant.transport.runtime
    if requirements.single_process or "check_every" in variant.flags:
        return "not a transport of its own"
    if request.copies and variant.gives_views:
        return "readers get a view; possible with --reads some"
    if request.nodes > 1 and (requirements.single_host or requirements.shared_memory or runtime.single_host):
        return "all actors must be on one machine"
    if request.gpus and requirements.host_memory_only:
        return "it moves host memory only"
    if requirements.gpus > request.gpus or (requirements.gpu_per_actor and request.gpus < len(request.flow.actors)):
        return "too few GPUs"
    return None


def rank(request: Request, results: Sequence[Result]) -> list[Choice]:
    """Return the possible configurations, the fastest first and those without seconds last.

    `results` are of one machine and apart by record, because the newest of equal measurements counts.
    """
    usable = [result for result in results if result.status == "ok" and not (result.traced or result.paired)]
    choices = []
    for variant in VARIANTS:
        if not rule_out(variant, request):
            candidates = [result for result in usable if result.configuration == request.configure(variant)]
            measured = [result for result in candidates if result.workload == request.workload]
            if measured:
                newest = max(measured, key=lambda result: result.runs[0].started_at)
                choices.append(Choice(variant, typical_seconds(newest.seconds_by_run), is_measured=True))
            else:
                seconds, note = interpolate(request, candidates)
                choices.append(Choice(variant, seconds, False, note))
    return sorted(choices, key=lambda choice: choice.seconds or float("inf"))


def interpolate(request: Request, results: Sequence[Result]) -> tuple[float | None, str]:
    """Return the seconds per iteration and a limit of this prediction, or None and the reason.

    The logarithm of the time is linear in the logarithm of the bytes per iteration, between points that were measured
    with this configuration and flows of the same shape. Tensors beyond the first of a message have a measured cost.
    """
    if _has_other_form(request.workload):
        return None, "packed messages and messages as sent by ChatLearn are not interpolated"
    whole: dict[int, list[float]] = {}  # bytes per iteration -> log seconds, with one tensor per message
    cut: dict[tuple[int, int], list[float]] = {}  # additional tensors and bytes -> log seconds, with --fields
    for result in results:
        workload, tensors = result.workload, _additional_tensors(result.flow)
        if _has_other_form(workload) or result.spilled_bytes or _shape(workload) != _shape(request.workload):
            continue
        log_seconds = np.log(typical_seconds(result.seconds_by_run))
        if not tensors:
            whole.setdefault(workload.bytes_per_iteration, []).append(log_seconds)
        elif "fields" in workload.sizes:
            cut.setdefault((tensors, workload.bytes_per_iteration), []).append(log_seconds)
    if not whole:
        return None, "no flow of this shape was measured"
    sizes, size, tensors = sorted(whole), request.workload.bytes_per_iteration, _additional_tensors(request.flow)
    if not sizes[0] <= size <= sizes[-1]:
        return None, f"measured only from {format_bytes(sizes[0])} to {format_bytes(sizes[-1])} per iteration"
    seconds = float(np.exp(np.interp(np.log(size), np.log(sizes), [np.mean(whole[point]) for point in sizes])))
    if not tensors:
        return seconds, ""
    most, point = max((point for point in cut if point[1] in whole), default=(0, 0))
    if not most:
        return None, "the cost per tensor was not measured (--sweep fields=1:64:8x)"
    added = float(np.exp(np.mean(cut[most, point])) - np.exp(np.mean(whole[point])))
    limit = f"{tensors:,} additional tensors, and at most {most:,} were measured" if tensors > most else ""
    return seconds + tensors * max(0.0, added) / most, limit


def _has_other_form(workload: Workload) -> bool:
    return workload.message == "packed" or bool(workload.sizes.get("as_sent"))


def _shape(workload: Workload) -> list[tuple[int, int]]:
    """Return the edges with numbers for names: equal if the actors of two flows are connected in the same way."""
    names = list(dict.fromkeys(name for edge in workload.edges for name in (edge.source, edge.reader)))
    return [(names.index(edge.source), names.index(edge.reader)) for edge in workload.edges]


def _additional_tensors(flow: Flow) -> int:
    """Return the tensors beyond the first of each message, summed over the edges."""
    return sum(len(edge.message.tensor_bytes) - 1 for edge in flow.edges)


@dataclass(frozen=True)
class Check:
    """The configuration that is predicted to be the fastest, the one that was, and the quotient of their times."""

    request: Request
    predicted: str
    fastest: str
    times_fastest: float

    @property
    def is_right(self) -> bool:
        return self.times_fastest <= NEARLY_FASTEST


def check_predictions(held_out: Sequence[Result], results: Sequence[Result]) -> tuple[list[Check], int]:
    """Return a check per held-out workload, with and without copies, and the number of those without two predictions.

    `results` of held-out workloads are not used.
    """
    workloads = {result.workload: result.flow for result in held_out}
    others = [result for result in results if result.workload not in workloads]
    checks = []
    for workload, flow in workloads.items():
        for request in (Request(workload, flow, copies=True), Request(workload, flow, copies=False)):
            measured = {c.variant.name: c.seconds or 0.0 for c in rank(request, held_out) if c.is_measured}
            predicted = [c.variant.name for c in rank(request, others) if c.seconds and c.variant.name in measured]
            if len(predicted) > 1:
                fastest = min(predicted, key=measured.__getitem__)
                times = measured[predicted[0]] / measured[fastest]
                checks.append(Check(request, predicted[0], fastest, times))
    return checks, 2 * len(workloads) - len(checks)


def load_by_machine(paths: Sequence[Path]) -> dict[str, list[Result]]:
    """Return a result per record with an ok run, by `machine_key`. Files that are no records are ignored."""
    by_machine: dict[str, list[Result]] = {}
    for path in dict.fromkeys(path.resolve() for path in files.record_files(paths)):
        with suppress(RecordError):
            result = Result((files.load(path),))
            if result.environments:
                by_machine.setdefault(machine_key(result.environments[0]), []).append(result)
    return by_machine


def machine_key(environment: Mapping[str, Any]) -> str:
    """Return a text that is equal for equal machines and versions. Only torch knows the version of NCCL."""
    return repr([environment.get(key) or None for key in MACHINE_KEYS if key != "nccl"])
