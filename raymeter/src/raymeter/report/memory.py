"""Write what filled the memory of a program: the store, who kept objects, the processes, and what to change."""

from collections.abc import Sequence

from raymeter.findings import Finding
from raymeter.memory.processes import Sample, peak_bytes
from raymeter.memory.references import Holder, holders_at_peak
from raymeter.memory.stores import find_spilling
from raymeter.profile.program import Program
from raymeter.profile.reader import Recording
from raymeter.report.words import relative, wrap_list
from raymeter.units import format_bytes, format_milliseconds, significant

WIDTH = 80
MAX_HOLDERS = 5
MAX_PROCESSES = 5
MAX_FINDINGS = 3
KINDS = {
    "LOCAL_REFERENCE": "a reference",
    "PINNED_IN_MEMORY": "a value that looks at the store",
    "USED_BY_PENDING_TASK": "an argument of a task that waits",
    "CAPTURED_IN_OBJECT": "a reference inside of another object",
    "UNKNOWN": "unknown",
}


def render(program: Program, samples: Sequence[Sample], findings: Sequence[Finding]) -> list[str]:
    """Return the lines of the output."""
    recording = program.recording
    lines = [describe_answer(findings), "", describe_store(recording)]
    lines += ["", *describe_holders(program)]
    lines += ["", *describe_processes(recording, samples)]
    if findings:
        lines += ["", "What to change:"]
    for number, finding in enumerate(findings[:MAX_FINDINGS], 1):
        lines += describe_finding(number, finding)
    return wrap_list(lines, WIDTH)


def describe_answer(findings: Sequence[Finding]) -> str:
    """Return the sentence that a user needs, if there is only one."""
    if not findings:
        return "Memory is not your problem: nothing is kept that raymeter knows a change for."
    first = findings[0]
    return f"{first.title} ({relative(first.line)})." if first.line else f"{first.title}."


def describe_store(recording: Recording) -> str:
    """Return one sentence about the object stores of all nodes."""
    spilling = find_spilling(recording.stores)
    if not spilling.capacity:
        return "Object store: unknown, because no raylet has answered."
    share = significant(100 * spilling.peak_used / spilling.capacity, 2)
    text = f"Object store: at most {format_bytes(spilling.peak_used)} of {format_bytes(spilling.capacity)} ({share} %)"
    if spilling.fallback:
        text += f", of which {format_bytes(spilling.fallback)} were in files, because it was full"
    if not spilling.spilled:
        return f"{text}; nothing was spilled."
    return (
        f"{text}; {format_bytes(spilling.spilled)} spilled in {format_milliseconds(spilling.spill_seconds)}, "
        f"{format_bytes(spilling.restored)} restored in {format_milliseconds(spilling.restore_seconds)}."
    )


def describe_holders(program: Program) -> list[str]:
    """Return who kept objects when most bytes were kept."""
    recording = program.recording
    holders = holders_at_peak(program)
    if not holders:
        return ["Who keeps objects: unknown, or no object of 100 KiB or more was kept."]
    moment = holders[0].time - recording.start
    lines = [f"Who kept objects {moment:.1f} s after the start, when most were kept:"]
    names = {process.pid: process.role for process in recording.processes}
    lines += [
        describe_holder(holder, names.get(holder.pid, "process"))
        for holder in holders[:MAX_HOLDERS]
    ]
    return lines


def describe_holder(holder: Holder, role: str) -> str:
    count = len(holder.objects)
    objects = "1 object" if count == 1 else f"{count} objects"
    line = "line unknown"
    if holder.line:
        line = relative(holder.line)
    size = format_bytes(holder.bytes)
    kind = KINDS.get(holder.kind, holder.kind)
    return f"  {size:>9}  {objects}, {role} {holder.pid}: {kind}, {line}"


def describe_processes(recording: Recording, samples: Sequence[Sample]) -> list[str]:
    """Return the processes that had most private memory."""
    if not samples:
        return ["Memory of the processes: unknown, because /proc has no smaps_rollup here."]
    lines = [
        f"Memory of all processes: at most {format_bytes(peak_bytes(list(samples)))} (sum of PSS). Private memory:"
    ]
    largest: dict[int, Sample] = {}
    for sample in samples:
        known = largest.get(sample.pid)
        if known is None or sample.private > known.private:
            largest[sample.pid] = sample
    drivers = {process.pid for process in recording.drivers}
    ordered = sorted(largest.values(), key=lambda sample: -sample.private)
    for sample in ordered[:MAX_PROCESSES]:
        name = "driver" if sample.pid in drivers else sample.name
        size = format_bytes(sample.private)
        lines.append(f"  {size:>9}  {name} ({sample.pid})")
    return lines


def describe_finding(number: int, finding: Finding) -> list[str]:
    """Return the lines of a finding: what, where, and what to do."""
    lines = [f"{number}. {finding.title}.", f"   {finding.change}"]
    if finding.line:
        lines.insert(1, f"   {relative(finding.line)}")
    if finding.price:
        lines.append(f"   Price: {finding.price}")
    return lines
