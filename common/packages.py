# SPDX-License-Identifier: Apache-2.0
"""Say in one line that a package is missing, and what to do. Nothing that must be installed is imported here."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def require_packages(*names: str) -> None:
    """End this process with one line if a package is not installed."""
    for name in find_missing(*names):
        raise SystemExit(f"error: {describe_missing(name)}")


def find_missing(*names: str) -> list[str]:
    """Return those of the packages that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def describe_missing(name: str | None) -> str:
    """Return that a package is not installed, and what to do: use the environment of make if there is one."""
    environment = ROOT / ".venv"
    python = environment / "bin" / "python"
    is_used = Path(sys.prefix).resolve() == environment.resolve()
    if is_used or not python.exists():
        return f"{name} is not installed: run make demo, or pip install -r requirements.txt"
    folder = Path(".venv") if Path.cwd() == ROOT else environment
    return (
        f"{name} is not installed for this Python: use {folder}/bin/python, "
        f"or run source {folder}/bin/activate"
    )
