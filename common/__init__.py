"""What the scripts share. Nothing here hands a payload from one role to the next: the scripts do."""

import sys
from typing import Any


def _say_what_is_missing(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Without its packages a script says in one line where they come from."""
    if not isinstance(error, ModuleNotFoundError) or (error.name or "common").startswith("common"):
        sys.__excepthook__(kind, error, trace)
        return
    print(f"error: {error.name} is not installed: run make, or pip install -r requirements.txt", file=sys.stderr)
    sys.exit(2)


sys.excepthook = _say_what_is_missing
