# SPDX-License-Identifier: Apache-2.0
"""Say where and with which code the records beside the tests were measured."""

import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]


def load_origin() -> dict[str, Any]:
    """Return the day, commit, machine and boot, as the laboratory describes them in the same repository."""
    sys.path.append(str(PROJECT))
    try:
        from common.origin import describe_origin
    finally:
        sys.path.remove(str(PROJECT))
    return describe_origin()
