# SPDX-License-Identifier: Apache-2.0
"""Messages, clock and record, which the two scripts, plot_results.py and the suite in dataflow/ share."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  an older Python could not import the other modules
    print(
        f"error: Python 3.11 or newer is needed: this is {sys.version.split()[0]}", file=sys.stderr
    )
    sys.exit(2)


class SuiteError(Exception):
    """An error that users see as one line, without a traceback."""


class RecordError(SuiteError):
    """A record that cannot be read or written."""
