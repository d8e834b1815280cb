"""Name the workload and the configuration of a record as on the command line, and make its flow again."""

from contextlib import suppress

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
    plain_fields = form == "fields" and not sizes.get("as_sent") and "fields" not in sizes
    flags = {
        f"--message {form}": form not in ("flat", "fields"),
        "--as-sent": sizes.get("as_sent"),
        f"--fields {sizes.get('fields')}": "fields" in sizes,
        **{_size_flag(name, sizes[name]): sizes[name] for name in SENDER_SIZES if name in sizes},
        "--message fields": plain_fields and workload.flow in FLOWS_OF_FIELDS,  # others always have fields
        "--address": layout.existing_cluster,
        "--placement spread": layout.placement == "spread" and not layout.place,
        f"--placement {layout.place}": layout.place,
        f"over {layout.link}": layout.link,
        "--device cuda": configuration.device == "cuda",
    }
    return " ".join([configuration.name, *(flag for flag, is_set in flags.items() if is_set)])


def _size_flag(name: str, value: object) -> str:
    text = value if isinstance(value, str) else format_bytes(int(str(value or 0))).replace(" ", "")
    return f"--{name.replace('_', '-')} {text}"


def flow_of(workload: Workload) -> Flow:
    """Return the flow as its user draws it: from the catalogue if it has the record's edges, else flat messages.

    A flow in a file is never executed, because the file may have changed.
    """
    with suppress(TypeError, ValueError):  # a flow of another version
        if ".py:" not in workload.flow:
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
