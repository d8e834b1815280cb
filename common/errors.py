"""Every error that the suite raises on purpose; each message is one line and says who, or what to do."""


class SuiteError(Exception):
    """What a user is told without a traceback."""


class UsageError(SuiteError):
    """A request that cannot be carried out."""


class Waived(UsageError):
    """A need that this machine does not meet: recorded as a waived row."""


class RecordError(SuiteError):
    """A record that cannot be read or written."""


class RunFailed(SuiteError):
    """A run that could not begin or go on."""


class RoleFailed(RunFailed):
    """A role that raised or died; the message names it."""


class SegmentError(SuiteError):
    """Shared memory that cannot be had, opened or reused."""
