"""Messages, clock and record, which the two scripts, plot_results.py and the suite in dataflow/ share."""


class SuiteError(Exception):
    """An error that users see as one line, without a traceback."""


class RecordError(SuiteError):
    """A record that cannot be read or written."""
