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
    """Return a finding for each function that is large, or exported more than once from one line."""
    by_place: dict[tuple[str, str], list[Export]] = defaultdict(list)
    for export in program.recording.exports:
        by_place[export.name, export.defined or export.line].append(export)
    findings = []
    for exports in by_place.values():
        during = [export for export in exports if steps.of(export.start) is not None]
        is_large = bool(exports[0].captured)
        if is_large or len(during) > 1:
            findings.append(make_finding(program, steps, during or exports, is_large))
    return findings


def make_finding(program: Program, steps: Steps, exports: list[Export], is_large: bool) -> Finding:
    first = exports[0]
    savings = [save_export(program, export) for export in exports]
    savings += save_fetches(program, exports)
    if is_large:
        names = ", ".join(
            f"{item.name} ({format_bytes(item.bytes)})" for item in first.captured[:2] if item.bytes
        )
        title = f"{short_name(first)} brings {format_bytes(first.bytes)} with it: {names}"
        change = "Pass it as an argument, as a reference: `ref = ray.put(value)` once, and define the function once."
    else:
        per_step = significant(len(exports) / steps.count, 2)
        title = f"{short_name(first)} is defined and sent to the workers {per_step} times per step"
        change = "Define the remote function or class once, outside of the loop, and pass what differs as an argument."
    return Finding(
        cause=CAPTURED if is_large else REDEFINED,
        title=title,
        line=first.defined or first.line,
        change=change,
        seconds=total(savings) / steps.count,
        savings=savings,
        other_lines=[first.line],
    )


def short_name(export: Export) -> str:
    return export.name.rpartition("<locals>.")[2]


def save_export(program: Program, export: Export) -> Saving:
    """Return what the call with an export takes longer than another one: pickling the code, and storing it in the GCS.

    If the call was not recorded, only pickling is known.
    """
    call = program.call_at(export.process, export.thread, export.start)
    if call is None:
        return Saving(export.process, export.thread, export.start, export.seconds, "work")
    seconds = max(0.0, call.seconds - call.own_seconds - CALL_SECONDS)
    return Saving(call.process, call.thread, call.start + call.seconds / 2, seconds, "call")


def save_fetches(program: Program, exports: list[Export]) -> list[Saving]:
    """Return the time in which workers got and unpickled these functions: of the tasks with their name."""
    names = {short_name(export) for export in exports}
    savings = []
    for fetch in program.recording.fetches:
        task = program.tasks.get(fetch.by)
        if task is not None and task.name.rpartition(".")[2] in names:
            savings.append(
                Saving(fetch.process, 0, fetch.start + fetch.seconds / 2, fetch.seconds, "fetch")
            )
    return savings
