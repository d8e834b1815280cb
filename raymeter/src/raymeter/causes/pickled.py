"""Find messages whose bytes lie inside of the pickle, or which are pickled slowly, and what in them brings this.

Ray keeps only buffers outside of the pickle (protocol 5): contiguous numpy arrays, and Arrow tables. Readers look at
them in the object store. Everything else is copied into the pickle by the sender, and out of it by each reader.

What a change saves is measured: the sender has serialised one message of each kind in the other ways that fit it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from raymeter.causes.savings import save_reading, save_sending, total
from raymeter.findings import Finding
from raymeter.profile.events import Alternative, Field, OwnPickling
from raymeter.profile.groups import Group, group_messages, in_steps
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.units import format_bytes, significant

MIN_SHARE = 0.3  # of the bytes that a cause must bring
VIEW_FACTOR = 1.5  # of the memory that views look at, and their own bytes
MANY_BUFFERS = 500
SLOW_BYTES_PER_SECOND = 400e6  # of pickling Python objects; arrays are copied at several GB/s
MIN_SAVED_SHARE = 0.15  # of sending and reading a message, by the alternative

ZERO_COPY = "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"
ZERO_COPY_SINCE = (2, 53)


@dataclass(frozen=True)
class Kind:
    """Why a message is pickled, and the alternative that was measured for it."""

    cause: str
    alternative: str  # a name in inside/alternatives.py
    change: str
    fits: Callable[[Group], bool]


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return at most one finding for each group of messages: the first kind that fits and saves enough."""
    findings = []
    for group in group_messages(in_steps(program.messages, steps)):
        finding = examine(program, steps, group)
        if finding is not None:
            findings.append(finding)
    return findings


def examine(program: Program, steps: Steps, group: Group) -> Finding | None:
    """Return the best finding of a group: of the kinds that fit, the one that saves most."""
    measured = next((m.sent.alternatives for m in group.messages if m.sent.alternatives), {})
    found = [
        make_finding(program, steps, group, kind, measured) for kind in KINDS if kind.fits(group)
    ]
    known = [finding for finding in found if finding is not None]
    if known:
        return max(known, key=lambda finding: finding.seconds)
    return examine_objects(program, steps, group)


def make_finding(
    program: Program, steps: Steps, group: Group, kind: Kind, measured: dict[str, Alternative]
) -> Finding | None:
    """Return what an alternative would save; None if it was not measured, or saves little."""
    now = measured.get("as it is")
    other = measured.get(kind.alternative)
    if now is None or other is None:
        return None
    send_share = saved_share(now.serialise + copy_of(now), other.serialise + copy_of(other))
    read_share = saved_share(now.deserialise, other.deserialise)
    if send_share + read_share < MIN_SAVED_SHARE:
        return None
    savings = []
    for message in group.messages:
        savings += save_sending(program, message, send_share)
        savings += save_reading(message, read_share)
    return build_finding(steps, group, kind.cause, change_of(program, group, kind), savings)


def saved_share(now: float, other: float) -> float:
    """Return the share of a time that is saved, from 0 to 1."""
    return max(0.0, 1 - other / now) if now > 0 else 0.0


def copy_of(measured: Alternative) -> float:
    """Return about how long the copy into the store takes: as fast as the fastest pickling that was measured."""
    return measured.bytes / 4e9


def build_finding(steps: Steps, group: Group, cause: str, change: str, savings: list) -> Finding:
    own = own_pickling(group)
    line = group.line or (own.line if own else "")
    title = f"{describe_group(group)}: {cause}"
    settings = {ZERO_COPY: "1"} if ZERO_COPY in change else {}
    return Finding(
        cause=cause,
        title=title,
        line=line,
        change=change,
        seconds=total(savings) / steps.count,
        savings=savings,
        messages=[(message.sent.process, message.sent.number) for message in group.messages],
        settings=settings,
        section=cause.replace(" ", "-"),
        other_lines=[own.line] if own and own.line != line else [],
    )


def describe_group(group: Group) -> str:
    """Return what is sent, with its size and the field that has most of its bytes."""
    field = main_field(group)
    text = f"{format_bytes(group.bytes)} ({group.type})"
    if field is not None and field.path:
        text += f", most of it in {field.path}"
    return text


def examine_objects(program: Program, steps: Steps, group: Group) -> Finding | None:
    """Return a finding for Python objects that are pickled slowly, for which no alternative was measured."""
    seconds = sum(message.sent.seconds for message in group.messages)
    size = sum(message.sent.bytes for message in group.messages)
    if group.inband_share < MIN_SHARE or size / max(1e-9, seconds) > SLOW_BYTES_PER_SECOND:
        return None
    savings = []
    for message in group.messages:
        savings += save_sending(program, message, 0.9)
        savings += save_reading(message, 0.9)
    rate = significant(size / max(1e-9, seconds) / 1e6, 2)
    change = f"Python objects are pickled one by one, here {rate} MB/s. Send arrays, or a table, with the same content."
    return build_finding(steps, group, "Python objects in the pickle", change, savings)


def main_field(group: Group) -> Field | None:
    return group.fields[0] if group.fields else None


def own_pickling(group: Group) -> OwnPickling | None:
    return next((m.sent.own_pickling for m in group.messages if m.sent.own_pickling), None)


def share_of(group: Group, is_meant: Callable[[Field], bool]) -> float:
    """Return the share of the described bytes in fields that are meant."""
    known = sum(max(field.bytes, field.storage_bytes) for field in group.fields)
    meant = sum(max(field.bytes, field.storage_bytes) for field in group.fields if is_meant(field))
    return meant / known if known else 0.0


def pickles_itself(group: Group) -> bool:
    own = own_pickling(group)
    return own is not None and not own.path and group.inband_share > MIN_SHARE


def has_views(group: Group) -> bool:
    held = sum(field.bytes for field in group.fields)
    return bool(held) and group.bytes > VIEW_FACTOR * held and share_of(group, is_view) > MIN_SHARE


def is_view(field: Field) -> bool:
    return field.storage_bytes > VIEW_FACTOR * field.bytes


def has_tensors(group: Group) -> bool:
    tensors = share_of(group, lambda field: field.type.startswith("torch."))
    return tensors > MIN_SHARE and group.inband_share > MIN_SHARE and own_pickling(group) is None


def has_strided_arrays(group: Group) -> bool:
    share = share_of(
        group, lambda field: field.type.startswith("numpy.") and not field.is_contiguous
    )
    return share > MIN_SHARE and group.inband_share > MIN_SHARE


def has_numbers(group: Group) -> bool:
    return share_of(group, lambda field: field.dtype in ("int", "float")) > MIN_SHARE


def has_bytes(group: Group) -> bool:
    return share_of(group, lambda field: field.dtype == "bytes") > MIN_SHARE


def has_frames(group: Group) -> bool:
    return (
        share_of(group, lambda field: field.dtype == "frame") > MIN_SHARE
        and group.inband_share > MIN_SHARE
    )


def has_many_arrays(group: Group) -> bool:
    return max(message.sent.buffers for message in group.messages) >= MANY_BUFFERS


def change_of(program: Program, group: Group, kind: Kind) -> str:
    """Return what to do, with the names of this message."""
    own = own_pickling(group)
    if own is not None and "{class}" in kind.change:
        return kind.change.replace("{class}", own.type).replace("{line}", own.line)
    if kind.alternative == "numpy arrays" and version_of(program) >= ZERO_COPY_SINCE:
        return f"{kind.change} Or, if readers only read, set {ZERO_COPY}=1 before Ray starts."
    return kind.change


def version_of(program: Program) -> tuple[int, ...]:
    """Return the version of Ray, such as (2, 60)."""
    numbers = program.recording.processes[0].ray.split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


KINDS = (
    Kind(
        "the class pickles itself",
        "without its own pickling",
        "{class} pickles itself ({line}), so all bytes are inside of the pickle, and no setting of Ray helps. Let it "
        "return numpy arrays there, or send its fields as arrays.",
        pickles_itself,
    ),
    Kind(
        "views bring their whole storage",
        "clones of views",
        "A view of a tensor is pickled with all of its storage: send view.clone(), or the whole tensor once.",
        has_views,
    ),
    Kind(
        "tensors in the pickle",
        "numpy arrays",
        "Torch tensors are copied into the pickle, and out of it by each reader. Send tensor.numpy(), and use "
        "torch.from_numpy in the reader, which looks at the object store.",
        has_tensors,
    ),
    Kind(
        "arrays that are not contiguous",
        "contiguous arrays",
        "The array is strided or flipped, so each message copies it into the pickle: call "
        "numpy.ascontiguousarray once.",
        has_strided_arrays,
    ),
    Kind(
        "lists of numbers",
        "arrays of numbers",
        "Each number is a Python object: send one numpy array (numpy.asarray) in place of the list.",
        has_numbers,
    ),
    Kind(
        "bytes in the pickle",
        "arrays of bytes",
        "Bytes are copied by each reader: send numpy.frombuffer(data, numpy.uint8), which readers look at "
        "in the store.",
        has_bytes,
    ),
    Kind(
        "a data frame in the pickle",
        "Arrow tables",
        "The columns of this frame are pickled: send an Arrow table (pyarrow.Table.from_pandas(frame), or "
        "frame.to_arrow()).",
        has_frames,
    ),
    Kind(
        "many small arrays",
        "one array",
        "The time goes with the number of arrays, not with their bytes: send one array, and the offsets of the parts.",
        has_many_arrays,
    ),
)
