# SPDX-License-Identifier: Apache-2.0
"""Write what a profile says as JSON, for other programs: a dashboard, a check in CI, or the laboratory's replay."""

import json
from pathlib import Path
from typing import Any

from raymeter import __version__
from raymeter.advice import Profile
from raymeter.findings import Advice
from raymeter.profile.groups import Group
from raymeter.profile.lost import find_errors
from raymeter.profile.unrecorded import find_unrecorded
from raymeter.report.words import kind_of, name_place
from raymeter.simulate.without_data import without_data

SCHEMA = 1


def write(profile: Profile, path: Path) -> None:
    """Write the summary of a profile."""
    text = json.dumps(summarise(profile), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def summarise(profile: Profile) -> dict[str, Any]:
    """Return the summary: times are seconds per step, lines are "file:line"."""
    recording = profile.program.recording
    steps = profile.steps
    errors = find_errors(recording)
    unrecorded = find_unrecorded(profile.program)
    is_incomplete = bool(recording.was_killed or errors or unrecorded)
    return {
        "schema": SCHEMA,
        "raymeter": __version__,
        "ray": recording.processes[0].ray,
        "missing": recording.processes[0].missing,
        "settings": recording.processes[0].settings,
        "recorder_share": profile.recorder_share,
        "step": {
            "name": steps.name,
            "line": steps.line,
            "seconds": steps.seconds,
            "count": steps.count,
            "skipped": steps.skipped,
        },
        "moving": describe_moving(profile),
        "is_no_problem": profile.is_no_problem and not is_incomplete,
        "was_killed": recording.was_killed,
        "errors": errors,
        "unrecorded_tasks": len(unrecorded),
        "advice": [describe_advice(advice) for advice in profile.advice],
        "messages": [describe_group(group, steps.count) for group in profile.groups],
    }


def describe_moving(profile: Profile) -> dict[str, Any]:
    """Return the work of moving data, and what the step would gain without it."""
    moving = without_data(profile.program, profile.steps)
    return {
        "work_seconds": profile.moving_seconds,
        "saved_seconds": moving.saved_seconds,
        "is_upper_limit": moving.is_upper_limit,
    }


def describe_advice(advice: Advice) -> dict[str, Any]:
    """Return a piece of advice for profile.json; its times are seconds per step."""
    finding = advice.finding
    prediction = advice.prediction
    return {
        "cause": finding.cause,
        "line": finding.line,
        "title": finding.title,
        "change": finding.change,
        "price": finding.price,
        "settings": finding.settings,
        "saved_seconds": prediction.saved_seconds,
        "before_seconds": prediction.before_seconds,
        "after_seconds": prediction.after_seconds,
        "kind": kind_of(prediction),
    }


def describe_group(group: Group, steps: int) -> dict[str, Any]:
    """Return the messages of one line, as the table of the terminal has them."""
    return {
        "sent_by": name_place(group.sender),
        "read_by": [name_place(reader) for reader in group.readers],
        "sent_as": group.how,
        "line": group.line,
        "type": group.type,
        "bytes": group.bytes,
        "inband_share": group.inband_share,
        "count": round(group.count),
        "per_step": group.count / steps,
        "reads_per_step": group.reads / steps,
        "seconds": group.seconds() / steps,
    }
