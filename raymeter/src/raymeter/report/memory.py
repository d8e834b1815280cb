# SPDX-License-Identifier: Apache-2.0
"""Write what filled the memory of a program: the store, who kept objects, the processes, and what to change."""

import textwrap
from collections.abc import Sequence

from raymeter.findings import Finding
from raymeter.memory.histories import History, find_histories
from raymeter.memory.processes import Sample, peak_bytes
from raymeter.memory.references import IN_USE, Holder, distinct_bytes, holders_at_peak
from raymeter.memory.stores import Spilling, find_spilling
from raymeter.profile.events import Reference, Store
from raymeter.profile.lost import say_errors
from raymeter.profile.program import Program
from raymeter.profile.reader import Recording
from raymeter.report.words import relative, wrap_list
from raymeter.units import format_bytes, format_milliseconds, significant

WIDTH = 80
MAX_HOLDERS = 5
MAX_PROCESSES = 5
MAX_FINDINGS = 3
KINDS = {
    "LOCAL_REFERENCE": "a reference (ObjectRef)",
    "PINNED_IN_MEMORY": "a value that still uses its bytes",
    IN_USE: "a value that a running task reads",
    "USED_BY_PENDING_TASK": "an argument of a task that waits or runs",
    "CAPTURED_IN_OBJECT": "a reference inside of another object",
    "UNKNOWN": "for an unknown reason",
}


def render(program: Program, samples: Sequence[Sample], findings: Sequence[Finding]) -> list[str]:
    """Return the lines of the output."""
    recording = program.recording
    lines = [describe_answer(findings, recording), "", describe_store(recording)]
    lines += ["", *describe_holders(program)]
    lines += ["", *describe_processes(recording, samples)]
    if findings:
        lines += ["", "What to change:"]
    for number, finding in enumerate(findings[:MAX_FINDINGS], 1):
        lines += describe_finding(number, finding)
    return wrap_list(lines, WIDTH)


def describe_answer(findings: Sequence[Finding], recording: Recording) -> str:
    """Return the first finding in one sentence; without one, that memory is no problem, or why that is not known."""
    if not findings and not recording.is_of_memory:
        return (
            "It is not known whether memory is a problem: this profile was made without samples of memory. "
            "`raymeter memory SCRIPT` runs the program with them."
        )
    if not findings and recording.damaged:
        return "It is not known whether memory is a problem: files of the profile are damaged."
    errors = say_errors(recording)
    if not findings and errors:
        return f"It is not known whether memory is a problem: {errors}."
    if not findings:
        return "Memory is not your problem: nothing is kept that raymeter knows a change for."
    first = findings[0]
    return f"{first.title} ({relative(first.line)})." if first.line else f"{first.title}."


def describe_store(recording: Recording) -> str:
    """Return what was in the object stores of all nodes, and what went to disk.

    Samples may miss the time at which a store was full, while the sums of Ray count all that was spilled. If they do
    not fit together, the text says so.
    """
    spilling = find_spilling(recording.stores)
    if not spilling.capacity:
        return "Object store: unknown, because no raylet has answered."
    share = significant(100 * spilling.peak_used / spilling.capacity, 2)
    used = format_bytes(spilling.peak_used)
    capacity = format_bytes(spilling.capacity)
    in_samples = say_samples(recording.stores)
    text = f"Object store: at most {used} of {capacity} ({share} %) {in_samples}"
    if spilling.fallback:
        in_files = format_bytes(spilling.fallback)
        text += f", of which {in_files} were in files, because it was full"
    if not spilling.spilled:
        return f"{text}; nothing was spilled."
    if spilling.has_missed_peak:
        text += ". They show no full store, but Ray's own sums say"
        return f"{text} {describe_disk(spilling)}."
    return f"{text}; {describe_disk(spilling)}."


def say_samples(stores: Sequence[Store]) -> str:
    return "in 1 sample" if len(stores) == 1 else f"in {len(stores)} samples"


def describe_disk(spilling: Spilling) -> str:
    """Return how much went to disk and came back, and how long Ray took for it."""
    spilled = format_bytes(spilling.spilled)
    restored = format_bytes(spilling.restored)
    spill_time = format_milliseconds(spilling.spill_seconds)
    restore_time = format_milliseconds(spilling.restore_seconds)
    return f"{spilled} spilled in {spill_time}, {restored} restored in {restore_time}"


def describe_holders(program: Program) -> list[str]:
    """Return who kept objects when most bytes were kept, at most MAX_HOLDERS; if none is known, a line says why."""
    recording = program.recording
    holders = holders_at_peak(program)
    if not holders and not recording.is_of_memory:
        return ["Who keeps objects: not sampled."]
    if not holders:
        return ["Who keeps objects: unknown, or no object of 100 KiB or more was kept."]
    moment = holders[0].time - recording.start
    disk = say_disk(recording, holders)
    lines = [
        f"Who kept objects in the sample with most of them, {moment:.1f} s after the start{disk}:"
    ]
    names = name_processes(recording)
    for holder in holders[:MAX_HOLDERS]:
        name = names.get(holder.process, f"process {holder.pid}")
        lines += describe_holder(holder, name)
    return lines


def say_disk(recording: Recording, holders: Sequence[Holder]) -> str:
    """Return why more may be kept than the samples of the store have; "" if it is not more."""
    spilling = find_spilling(recording.stores)
    objects: list[Reference] = []
    for holder in holders:
        objects += holder.objects
    is_more = distinct_bytes(objects) > spilling.peak_used
    return " (those on disk count, too)" if is_more and spilling.spilled else ""


def name_processes(recording: Recording) -> dict[str, str]:
    """Return what each process is called: with its host if there are several, which may have equal process ids."""
    is_place_needed = has_several_hosts(recording)
    names = {}
    for process in recording.processes:
        name = f"{process.role} {process.pid}"
        if is_place_needed:
            name += f" on {process.host}"
        names[process.process] = name
    return names


def describe_holder(holder: Holder, name: str) -> list[str]:
    """Return the lines about a holder: the bytes, and beside them what it is."""
    count = len(holder.objects)
    objects = "1 object" if count == 1 else f"{count} objects"
    line = "line unknown"
    if holder.line:
        line = relative(holder.line)
    size = format_bytes(holder.bytes)
    kind = KINDS.get(holder.kind, holder.kind)
    column = f"  {size:>9}  "
    return textwrap.wrap(
        f"{objects}, {name}: {kind}, {line}",
        WIDTH,
        initial_indent=column,
        subsequent_indent=" " * len(column),
        break_long_words=False,
        break_on_hyphens=False,
    )


def describe_processes(recording: Recording, samples: Sequence[Sample]) -> list[str]:
    """Return the processes that had most private memory: the first value of each, the largest and the last one.

    Without samples, the only line says why.
    """
    if not samples and not recording.is_of_memory:
        return ["Memory of the processes: not sampled."]
    if not samples:
        return ["Memory of the processes: unknown, because /proc has no smaps_rollup here."]
    where = ""
    if has_several_hosts(recording):
        where = f" on {host_of(samples[0])}"
    peak = format_bytes(peak_bytes(list(samples)))
    lines = [
        f"Memory of all processes{where}: at most {peak} (PSS: what they share counts once).",
        "Memory that a process shares with no other one, in its first sample, in that",
        "with most of it, and in the last one:",
        describe_row("first", "largest", "last", "process"),
    ]
    drivers = {process.process for process in recording.drivers}
    for history in find_histories(samples, drivers)[:MAX_PROCESSES]:
        line = describe_history(history)
        lines.append(line)
    return lines


def describe_history(history: History) -> str:
    """Return a row of the table of processes."""
    return describe_row(
        format_bytes(history.first.private),
        format_bytes(history.largest.private),
        format_bytes(history.last.private),
        f"{history.name} ({history.pid})",
    )


def describe_row(first: str, largest: str, last: str, name: str) -> str:
    return f"  {first:>9}  {largest:>9}  {last:>9}  {name}"


def has_several_hosts(recording: Recording) -> bool:
    hosts = {process.host for process in recording.processes}
    return len(hosts) > 1


def host_of(sample: Sample) -> str:
    """Return the host on which all samples are taken: the one on which raymeter runs."""
    host, _, _ = sample.process.rpartition("-")
    return host


def describe_finding(number: int, finding: Finding) -> list[str]:
    """Return the lines of a finding: what, where, and what to do."""
    lines = [f"{number}. {finding.title}.", f"   {finding.change}"]
    if finding.line:
        lines.insert(1, f"   {relative(finding.line)}")
    if finding.price:
        lines.append(f"   Price: {finding.price}")
    return lines
