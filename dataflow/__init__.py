"""The suite: it measures how long the messages of a flow take over many transports (python3 -m dataflow)."""

import sys
from typing import Any

if sys.version_info < (3, 11):  # noqa: UP036  an older Python could not import the other modules
    print(f"error: Python 3.11 or newer is needed: this is {sys.version.split()[0]}", file=sys.stderr)
    sys.exit(2)


def _explain_missing_package(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
    """Print one line for a package that is not installed, and the usual traceback for other errors."""
    if not isinstance(error, ModuleNotFoundError) or (error.name or "dataflow").startswith("dataflow"):
        sys.__excepthook__(kind, error, traceback)
        return
    print(f"error: {error.name} is not installed: run make, or pip install -r requirements.txt", file=sys.stderr)
    sys.exit(2)


sys.excepthook = _explain_missing_package
