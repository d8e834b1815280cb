"""Name the workload and the configuration of a record as on the command line, and make its flow again."""

from contextlib import suppress

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
    form, sizes, layout = workload.message, workload.sizes, configuration.layout
    always_fields = (
        workload.flow not in FLOWS_OF_FIELDS or sizes.get("as_sent") or "fields" in sizes
    )
    flags = {
        "message": form if form != "flat" and not (form == "fields" and always_fields) else "",
        "as_sent": sizes.get("as_sent"),
        "fields": sizes.get("fields"),
        **{name: size if isinstance(size, str) else format_bytes(int(size)).replace(" ", "")
           for name, size in sizes.items() if size and name in SENDER_SIZES},
        "address": layout.existing_cluster,
        "placement": layout.place or ("spread" if layout.placement == "spread" else ""),
        "device": "cuda" if configuration.device == "cuda" else "",
    }  # fmt: skip
    shown = configuration.flags | {name: value for name, value in flags.items() if value}
    name = configuration_name(configuration.runtime, configuration.transport, shown)
    return f"{name} over {layout.link}" if layout.link else name


def flow_of(workload: Workload) -> Flow:
    """Return the flow as its user draws it: from the catalogue if it has the record's edges, else flat messages."""
    with suppress(TypeError, ValueError):  # a flow of another version
        if ".py:" not in workload.flow:  # a file is never executed, because it may have changed
            message = None if workload.message == "flat" else workload.message
            flow = build_flow(workload.flow, workload.sizes, message)
            if record_edges(flow) == workload.edges:
                return flow
    try:
        messages = {edge.source: flat_message(edge.bytes) for edge in workload.edges}
        reads: dict[str, tuple[str, ...]] = {}
        for edge in workload.edges:
            reads[edge.reader] = (*reads.get(edge.reader, ()), edge.source)
        returns = reads.pop(DRIVER)
        tasks = tuple(Task(reader, sources, messages[reader]) for reader, sources in reads.items())
        return Flow(workload.flow, workload.flow, messages[DRIVER], tasks, returns)
    except (LookupError, ValueError) as error:
        raise RecordError(f"the edges of a record of {workload.flow!r} contradict each other ({error}), so something "
                          "has changed it: leave it out") from None  # fmt: skip
