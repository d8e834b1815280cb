"""The suite: it measures how long the messages of a flow take over many transports (python3 -m dataflow)."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  an older Python could not import the other modules
    print(f"error: Python 3.11 or newer is needed: this is {sys.version.split()[0]}", file=sys.stderr)
    sys.exit(2)
