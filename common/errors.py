"""Define every error that the suite raises on purpose. Each message is one line: what is wrong, and what to do."""


class SuiteError(Exception):
    """An error that users see without a traceback."""


class UsageError(SuiteError):
    """A request that cannot be carried out."""


class Skipped(UsageError):
    """A requirement that this machine does not meet: recorded as a skipped run."""


class RecordError(SuiteError):
    """A record that cannot be read or written."""


class RunFailed(SuiteError):
    """A run that could not start or continue."""


class ActorFailed(RunFailed):
    """An actor that raised or died; the message names it."""


class SegmentError(SuiteError):
    """Shared memory that cannot be created, opened or reused."""
