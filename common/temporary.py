# SPDX-License-Identifier: Apache-2.0
"""Choose the folder for the files of a run."""

import os
import tempfile
from pathlib import Path

from common import SuiteError

# Characters: Ray puts Unix sockets below the folder, whose paths may have 107 characters.
MAX_FOLDER_LENGTH = 21


def find_temporary_folder() -> Path:
    """Return the folder for temporary files, or /tmp if its path is too long for the sockets of Ray.

    Raise SuiteError if it cannot be written.
    """
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError:  # Python has tried TMPDIR and the usual ones
        raise SuiteError(
            "no folder for temporary files can be written, and a run needs one: set TMPDIR to one, or mount one "
            "(docker run --tmpfs /tmp)"
        ) from None
    if len(str(folder)) > MAX_FOLDER_LENGTH:
        folder = Path("/tmp")
    if not os.access(folder, os.W_OK):
        raise SuiteError(
            f"{folder} cannot be written: set TMPDIR to a folder that can, with at most {MAX_FOLDER_LENGTH} "
            "characters"
        )
    return folder
