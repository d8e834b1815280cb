# SPDX-License-Identifier: Apache-2.0
"""Keep how near predictions came on a machine that was changed on purpose (`predict --check --state TEXT`)."""

from pathlib import Path

import msgspec

from dataflow.analysis.kept_predictions import KeptPrediction
from dataflow.errors import RecordError
from dataflow.plan.options import RESULTS

CHECKS = RESULTS / "evidence" / "checks"


class CheckedPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction, and the mean time of an iteration that was measured after it."""

    predicted: KeptPrediction
    measured_seconds: float | None  # None: no run counts
    measured_faults: float | None  # per iteration


class CheckFile(msgspec.Struct, frozen=True, kw_only=True):
    """What `predict --check` has found on a machine in a state that the user names."""

    state: str  # of the machine, in words
    checked_at: str  # UTC, ISO 8601
    boot: str
    commit: str | None  # of the code
    cores: int  # that the process could use
    copy_gbps: float  # by all of them, of these messages
    fault_seconds: float
    runs: int  # per configuration
    checked: list[CheckedPrediction]


def load_checks(folder: Path = CHECKS) -> list[CheckFile]:
    """Return all checks that were kept, the oldest first; raise RecordError if one cannot be read."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=CheckFile))
        except (OSError, msgspec.DecodeError) as error:
            raise RecordError(
                f"{path} has no checks of predictions ({error}): move it away, or take it from git again"
            ) from None
    return sorted(found, key=lambda file: file.checked_at)
