# SPDX-License-Identifier: Apache-2.0
"""What `raymeter try` has measured, in the folder of the profile whose predictions it replaces."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from raymeter.errors import UserError
from raymeter.findings import Advice, Finding

FILE = "measured.json"


@dataclass(frozen=True)
class TriedSetting:
    """The median step of the runs without and with a setting, in seconds. `step` is the name of what was timed."""

    step: str
    settings: dict[str, str]
    before_seconds: float
    after_seconds: float
    verdict: str  # "faster", "slower", "no difference" or "unknown"


def write_measured(folder: Path, measured: Sequence[TriedSetting]) -> None:
    """Write results into the folder of a profile."""
    text = json.dumps([asdict(item) for item in measured], indent=1)
    (folder / FILE).write_text(f"{text}\n", encoding="utf-8")


def read_measured(folder: Path, step: str) -> list[TriedSetting]:
    """Return what was measured for this step; [] if there is no file. Raise UserError if the file is damaged."""
    path = folder / FILE
    if not path.is_file():
        return []
    try:
        items = json.loads(path.read_text(encoding="utf-8"))
        found = [TriedSetting(**item) for item in items]
    except (OSError, TypeError, ValueError):
        raise UserError(f"{path}: it is damaged. Without it, predictions are shown") from None
    return [item for item in found if item.step == step]


def replace_predictions(advice: Sequence[Advice], measured: Sequence[TriedSetting]) -> list[Advice]:
    """Return the advice with measured savings in the place of predicted ones.

    A change that has not made the program faster is left out. Other changes keep what they save, on top of the ones
    before them.
    """
    if not measured:
        return list(advice)
    replaced: list[Advice] = []
    before = advice[0].prediction.before_seconds if advice else 0.0
    for item in advice:
        result = find_result(item.finding, measured)
        if result is not None and result.verdict != "faster":
            continue
        if result is not None and not replaced:
            before = result.before_seconds
        changed = replace_one(item, before, result)
        replaced.append(changed)
        before = changed.prediction.after_seconds
    return replaced


def find_result(finding: Finding, measured: Sequence[TriedSetting]) -> TriedSetting | None:
    """Return what was measured for the settings of a finding; None if nothing was, or without an interval."""
    known = [item for item in measured if item.verdict != "unknown"]
    return next((item for item in known if item.settings == finding.settings), None)


def replace_one(advice: Advice, before: float, result: TriedSetting | None) -> Advice:
    """Return advice whose step takes `before` seconds, with its measured saving if there is one."""
    prediction = advice.prediction
    saved = prediction.saved_seconds
    if result is not None:
        prediction = replace(prediction, is_measured=True, is_upper_limit=False, is_least=False)
        saved = result.before_seconds - result.after_seconds
    after = max(0.0, before - saved)
    return Advice(advice.finding, replace(prediction, before_seconds=before, after_seconds=after))
