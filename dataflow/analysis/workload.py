# SPDX-License-Identifier: Apache-2.0
"""Name the workload and the configuration of a record as on the command line, and make its flow again."""

from contextlib import suppress
from functools import lru_cache
from typing import Any

from dataflow.catalogue.catalogue import configuration_name
from dataflow.errors import RecordError
from dataflow.flows.catalogue import FLOWS_OF_FIELDS, build_flow
from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import flat_message
from dataflow.plan.options import SENDER_SIZES
from dataflow.records.schema import Configuration, Workload, record_edges
from dataflow.units import format_bytes


def label_of(workload: Workload, configuration: Configuration) -> str:
    """Return the name of a configuration with the flags for message form, layout and device."""
    layout = configuration.layout
    flags = {
        "message": _shown_form(workload),
        "as_sent": workload.sizes.get("as_sent"),
        "fields": workload.sizes.get("fields"),
        "changing_sizes": workload.sizes.get("changing_sizes"),
        **_sender_sizes(workload),
        "address": layout.existing_cluster,
        "placement": layout.place or ("spread" if layout.placement == "spread" else ""),
        "device": "cuda" if configuration.device == "cuda" else "",
    }
    shown = configuration.flags | {name: value for name, value in flags.items() if value}
    name = configuration_name(configuration.runtime, configuration.transport, shown)
    return f"{name} over {layout.link}" if layout.link else name


def _shown_form(workload: Workload) -> str:
    """Return the form of the messages, or an empty string if the flow has this form without the flag."""
    if workload.message == "flat":
        return ""
    sizes = workload.sizes
    is_always_fields = (
        workload.flow not in FLOWS_OF_FIELDS or sizes.get("as_sent") or "fields" in sizes
    )
    if workload.message == "fields" and is_always_fields:
        return ""
    return workload.message


def _sender_sizes(workload: Workload) -> dict[str, str]:
    """Return the sizes that change what senders do, as on the command line."""
    shown = {}
    for name, size in workload.sizes.items():
        if not size or name not in SENDER_SIZES:
            continue
        shown[name] = size if isinstance(size, str) else format_bytes(int(size)).replace(" ", "")
    return shown


def flow_of(workload: Workload) -> Flow:
    """Return the flow as its user draws it: from the catalogue if it has the record's edges, else flat messages."""
    with suppress(TypeError, ValueError):  # a flow of another version
        if ".py:" not in workload.flow:  # a file is never executed, because it may have changed
            message = None if workload.message == "flat" else workload.message
            sizes = tuple(workload.sizes.items())
            flow = _build_once(workload.flow, sizes, message)
            if record_edges(flow) == workload.edges:
                return flow
    try:
        return _flow_of_edges(workload)
    except (LookupError, ValueError) as error:
        edges = f"the edges of a record of {workload.flow!r}"
        raise RecordError(
            f"{edges} contradict each other ({error}), so something has changed it: leave it out"
        ) from None


@lru_cache(maxsize=500)
def _build_once(name: str, sizes: tuple[tuple[str, Any], ...], message: str | None) -> Flow:
    """Return a flow of the catalogue, which many records have. Raise TypeError or ValueError if sizes are wrong."""
    return build_flow(name, dict(sizes), message)


def _flow_of_edges(workload: Workload) -> Flow:
    """Return the flow of a record's edges, with flat messages; raise LookupError or ValueError if they make none."""
    messages = {edge.source: flat_message(edge.bytes) for edge in workload.edges}
    reads: dict[str, list[str]] = {}
    for edge in workload.edges:
        reads.setdefault(edge.reader, []).append(edge.source)
    returns = reads.pop(DRIVER)
    tasks = []
    for reader, sources in reads.items():
        task = Task(reader, tuple(sources), messages[reader])
        tasks.append(task)
    name = workload.flow
    return Flow(name, name, messages[DRIVER], tuple(tasks), tuple(returns))
