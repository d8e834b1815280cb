# SPDX-License-Identifier: Apache-2.0
"""Let files of users import their own modules, also those with the name of a module of this project."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED_NAME = "common"  # a package of this project that users' projects have, too


def is_of_package(name: str) -> bool:
    return name.partition(".")[0] == SHARED_NAME


@contextmanager
def user_modules(*folders: Path) -> Iterator[None]:
    """Import from these folders first, in this order, for as long as the context lasts.

    If one of them has its own `common` (a folder with modules, or common.py), `import common` finds that one, and this
    project's comes back at the end. Until then, a module of this project that was not imported before finds the user's
    `common`, too, and fails with an ImportError.
    """
    paths = [str(folder.resolve()) for folder in folders if folder.resolve() != ROOT]
    has_own = any(is_importable(Path(path)) for path in paths)
    own_paths: list[str] = []
    hidden = {}
    if has_own:
        # Python prefers a package with an __init__.py, as this project's, to a folder without one.
        own_paths = [path for path in sys.path if Path(path).resolve() == ROOT]
        sys.path[:] = [path for path in sys.path if path not in own_paths]
        for name in filter(is_of_package, list(sys.modules)):
            hidden[name] = sys.modules.pop(name)
    sys.path[:0] = paths
    try:
        yield
    finally:
        for path in paths:
            sys.path.remove(path)
        sys.path[:0] = own_paths
        if has_own:
            for name in filter(is_of_package, list(sys.modules)):
                del sys.modules[name]
            sys.modules.update(hidden)


def is_importable(folder: Path) -> bool:
    """Return whether a folder has a module `common`."""
    package = folder / SHARED_NAME
    return any(package.glob("*.py")) or package.with_suffix(".py").is_file()
