"""Imports point one way: each package only knows those before it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ORDER = (
    "errors", "units", "flow", "record", "plan", "trace", "payload", "transport", "runtime", "machine", "analysis",
    "cost", "text", "charts", "pages", "run", "scripts",
)  # fmt: skip
FILES = [*ROOT.glob("*.py"), *ROOT.glob("chatlearn/*.py"), *ROOT.glob("common/*.py"), *ROOT.glob("common/*/*.py")]
MODULES = sorted(path for path in FILES if path.relative_to(ROOT).as_posix() != "common/__init__.py")


def noun(path):
    """The package of a file of common/; what lies at the top, or in chatlearn/, are scripts."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[1] if parts[0] == "common" else "scripts"


def imported(path):
    """The packages that a file imports, wherever in it."""
    scripts = {script.stem for script in ROOT.glob("*.py")} | {"chatlearn"}
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{name}" for name in names]
        for name in names:
            first, *rest = name.split(".")
            if first == "common":
                yield rest[0]
            elif first in scripts:
                yield "scripts"


def test_every_package_of_common_has_its_place_in_the_order():
    assert {noun(path) for path in MODULES} == set(ORDER)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_module_imports_only_what_comes_before_it(path):
    allowed = ORDER[: ORDER.index(noun(path)) + 1]
    assert [name for name in imported(path) if name not in allowed] == []
