"""Where the project lies, and copies of it with changes."""

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def copy_project(folder: Path, *changes: tuple[str, str, str]) -> Path:
    """Copy packages and scripts into a folder. changes: file, a text that it has once, and the text in its place."""
    for name in ("dataflow", "common"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.glob("*.py"):
        shutil.copy(path, folder)
    for name, old, new in changes:
        text = (folder / name).read_text()
        assert text.count(old) == 1, (name, old)
        (folder / name).write_text(text.replace(old, new))
    return folder
