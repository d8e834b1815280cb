# SPDX-License-Identifier: Apache-2.0
"""Find lists of numbers in the batches of Ray Data, of which it looks at each number to make a block.

Ray's documentation lets functions of `map_batches` return dicts of arrays ("Transforming data"). Lists are accepted,
too, as `model.encode(texts).tolist()` returns them.
"""

from collections import defaultdict
from statistics import mean, median

from raymeter.findings import Finding, Saving
from raymeter.profile.events import Batch
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.profile.unseen_waits import waits_unseen
from raymeter.units import format_milliseconds

CAUSE = "lists of numbers"
MIN_SAVED_SHARE = 0.15  # of making a block, by arrays
CHANGE = (
    "Return a numpy array in place of the list: leave out tolist(), or call numpy.asarray(list), which takes longer. "
    "Rows of several lengths cannot be one array."
)
PRICE = "what reads these rows gets an array for each, and no list."


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each function of the user whose lists take long in the steps.

    A function has none if no batch of it was measured with arrays.
    """
    by_function: dict[tuple[str, str], list[Batch]] = defaultdict(list)
    for batch in program.recording.batches:
        by_function[batch.line, batch.by_name].append(batch)
    findings = []
    for batches in by_function.values():
        measured = [batch for batch in batches if is_measured(batch)]
        inside = [batch for batch in batches if steps.of(batch.start) is not None]
        if not inside or not measured:
            continue
        share = median(saved_seconds(batch) / batch.seconds for batch in measured)
        if share >= MIN_SAVED_SHARE:
            findings.append(make_finding(program, steps, inside, measured))
    return findings


def is_measured(batch: Batch) -> bool:
    """Return whether its lists can be arrays, and were."""
    return batch.array_seconds is not None and batch.array_seconds >= 0


def saved_seconds(batch: Batch) -> float:
    """Return what arrays save of a batch that was measured: also making the lists, if they are made of arrays.

    A function that calls tolist() may do this for something else, so that this is the most that is saved.
    """
    array_seconds = batch.array_seconds or 0.0
    return batch.seconds - array_seconds + batch.to_list_seconds


def make_finding(
    program: Program, steps: Steps, batches: list[Batch], measured: list[Batch]
) -> Finding:
    """Return the finding of a function. Arrays save as much of each second of its other batches as of measured ones.

    That is the most they can save if the function makes its lists by tolist(), or if mostly threads of libraries wait.
    """
    share = median(saved_seconds(batch) / batch.seconds for batch in measured)
    savings = []
    for batch in batches:
        middle = batch.start + batch.seconds / 2
        saved = share * batch.seconds
        savings.append(Saving(batch.process, batch.thread, middle, saved, "execute"))
    seconds = sum(saving.seconds for saving in savings) / steps.count
    finding = Finding(
        cause=CAUSE,
        title=describe(batches, measured),
        line=batches[0].line,
        change=CHANGE,
        seconds=seconds,
        savings=savings,
        price=PRICE,
    )
    finding.is_limit = any(batch.to_list_seconds for batch in measured)
    if waits_unseen(program, steps):
        workers = {batch.process for batch in batches}
        finding.unseen_seconds = seconds / len(workers)
        finding.is_limit = True
    return finding


def describe(batches: list[Batch], measured: list[Batch]) -> str:
    """Return which lists Ray Data gets, and what it takes to make a block of them."""
    first = batches[0]
    rows = mean(batch.rows for batch in batches)
    name = first.function or first.by_name
    column = f" in {first.column}" if first.column else ""
    now = format_milliseconds(median(batch.seconds for batch in measured))
    then = format_milliseconds(median(batch.array_seconds or 0.0 for batch in measured))
    text = (
        f"{name} returns lists of numbers{column}, {rows:,.0f} rows at a time. Ray Data makes a block of them in "
        f"{now}; of an array, in {then}"
    )
    to_list = median(batch.to_list_seconds for batch in measured)
    if to_list:
        text += f". Making such lists of arrays (tolist, which it calls) takes {format_milliseconds(to_list)}"
    return text
