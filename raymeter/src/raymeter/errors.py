"""The error that users see as one line."""


class UserError(Exception):
    """Something that the user can correct. Its text is one line: what is wrong, and what to do."""
