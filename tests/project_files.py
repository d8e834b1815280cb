# SPDX-License-Identifier: Apache-2.0
"""Where the project lies, and copies of it with changes."""

import ast
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def copy_project(folder: Path, *additions: tuple[str, str]) -> Path:
    """Copy packages and scripts into a folder. additions: file, and code for its end, which can replace its names."""
    for name in ("dataflow", "common"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.glob("*.py"):
        shutil.copy(path, folder)
    for name, code in additions:
        path = folder / name
        path.write_text(add_at_end(path.read_text(), code))
    return folder


def add_at_end(text: str, code: str) -> str:
    """Return the text of a module with more code: at its end, or before the call of main that a script ends with."""
    lines = text.splitlines()
    last = ast.parse(text).body[-1]
    if isinstance(last, ast.If) and ast.unparse(last.test) == "__name__ == '__main__'":
        place = last.lineno - 1
    else:
        place = len(lines)
    return "\n".join([*lines[:place], "", *code.splitlines(), "", *lines[place:], ""])
