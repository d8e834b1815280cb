# SPDX-License-Identifier: Apache-2.0
"""Find functions and classes that bring large data with them, and those that are sent to the workers again and again.

Sources: "Anti-pattern: closure capturing large objects harms performance" and "Anti-pattern: redefining the same remote
function or class harms performance" in Ray's documentation of design patterns.
"""

from collections import defaultdict

from raymeter.causes.savings import CALL_SECONDS, total
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Export
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.units import format_bytes, significant

CAPTURED = "a function brings data with it"
REDEFINED = "a function is defined again and again"


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each function that brings large data with it, or is exported more than once in the steps.

    One with large data has a finding even if it was only exported outside of the steps.
    """
    findings = []
    for exports in exports_by_place(program).values():
        during = [export for export in exports if steps.of(export.start) is not None]
        is_large = bool(exports[0].captured)
        judged = during or exports
        if is_large:
            findings.append(make_captured_finding(program, steps, judged, len(exports)))
        elif len(during) > 1:
            findings.append(make_redefined_finding(program, steps, judged))
    return findings


def exports_by_place(program: Program) -> dict[tuple[str, str], list[Export]]:
    """Return the exports by name, and by the line at which the function is defined, else at which it is called."""
    places: dict[tuple[str, str], list[Export]] = defaultdict(list)
    for export in program.recording.exports:
        place = export.name, line_of(export)
        places[place].append(export)
    return places


def line_of(export: Export) -> str:
    return export.defined or export.line


def make_captured_finding(
    program: Program, steps: Steps, exports: list[Export], exported: int
) -> Finding:
    """Return the finding of these exports; `exported` is how often that was in the whole program."""
    first = exports[0]
    name = short_name(first)
    size = format_bytes(first.bytes)
    savings = save_exports(program, exports)
    return Finding(
        cause=CAPTURED,
        title=f"{name} brings {size} with it, {say_times(exported)}: {name_captured(first)}",
        line=line_of(first),
        change="Pass it as an argument, as a reference: `ref = ray.put(value)` once, and define the "
        f"{first.kind or 'function'} once.",
        seconds=total(savings) / steps.count,
        savings=savings,
        other_lines=[first.line],
    )


def say_times(count: int) -> str:
    """Return how often a function was sent to the workers."""
    times = "once" if count == 1 else f"{count:,} times"
    return f"and was exported {times}"


def name_captured(export: Export) -> str:
    """Return the names and sizes of the two largest values that a function brings with it."""
    names = []
    for item in export.captured[:2]:
        if item.bytes:
            size = format_bytes(item.bytes)
            names.append(f"{item.name} ({size})")
    return ", ".join(names)


def make_redefined_finding(program: Program, steps: Steps, exports: list[Export]) -> Finding:
    """Return the finding for a function that is exported more than once in the steps, by these exports."""
    first = exports[0]
    name = short_name(first)
    times = significant(len(exports) / steps.count, 2)
    savings = save_exports(program, exports)
    return Finding(
        cause=REDEFINED,
        title=f"{name} is defined and sent to the workers {times} times per step",
        line=line_of(first),
        change="Define the remote function or class once, outside of the loop, and pass what differs as an argument.",
        seconds=total(savings) / steps.count,
        savings=savings,
        other_lines=[first.line],
    )


def short_name(export: Export) -> str:
    return export.name.rpartition("<locals>.")[2]


def save_exports(program: Program, exports: list[Export]) -> list[Saving]:
    """Return what sending these functions to the workers takes the senders and the workers."""
    savings = [save_export(program, export) for export in exports]
    savings += save_fetches(program, exports)
    return savings


def save_export(program: Program, export: Export) -> Saving:
    """Return what the call with an export takes longer than another one: pickling the code, and storing it in the GCS.

    If the call was not recorded, only pickling is known.
    """
    call = program.call_at(export.process, export.thread, export.start)
    if call is None:
        return Saving(export.process, export.thread, export.start, export.seconds, "work")
    seconds = max(0.0, call.seconds - call.own_seconds - CALL_SECONDS)
    start = call.start + call.seconds / 2
    return Saving(call.process, call.thread, start, seconds, "call")


def save_fetches(program: Program, exports: list[Export]) -> list[Saving]:
    """Return the time in which workers got and unpickled these functions: of the tasks with their name.

    What was fetched for a task that is not known is left out.
    """
    names = {short_name(export) for export in exports}
    savings = []
    for fetch in program.recording.fetches:
        task = program.tasks.get(fetch.by)
        if task is None:
            continue
        name = task.name.rpartition(".")[2]
        if name in names:
            start = fetch.start + fetch.seconds / 2
            savings.append(Saving(fetch.process, 0, start, fetch.seconds, "fetch"))
    return savings
