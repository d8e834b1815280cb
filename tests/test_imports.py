"""Check that imports point one way, and that a run imports few modules of the project."""

import ast
import subprocess
import sys
from pathlib import Path

from conftest import ROOT

ORDER = (
    "errors", "units", "study", "flows", "catalogue", "records", "plan", "trace", "endpoints", "nodes",
    "workers", "analysis", "report", "measure", "transports", "studies", "commands", "__main__",
)  # fmt: skip
STUDIES = ROOT / "dataflow" / "studies"
FILES = sorted(path for path in (ROOT / "dataflow").rglob("*.py") if path.name != "__init__.py")
MAX_MODULES = 71  # of the project, that supervisor, worker and store transports import together


def package_of(path: Path) -> str:
    return path.relative_to(ROOT / "dataflow").with_suffix("").parts[0]


def imported_packages(path: Path):
    """Yield the packages that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = (
            [alias.name for alias in node.names]
            if isinstance(node, (ast.Import, ast.ImportFrom))
            else []
        )
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports must be absolute"
            names = [f"{node.module}.{name}" for name in names]
        for name in names:
            first, *rest = name.split(".")
            if first != "dataflow":
                continue
            yield rest[0]


def test_modules_import_only_packages_before_their_own():
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in FILES
        for name in imported_packages(path)
        if name not in ORDER[: ORDER.index(package_of(path)) + 1]
    ]
    assert wrong == []


def imported_modules(code: str) -> set[str]:
    """Return the modules that a fresh Python process has after this code, the project's and a few others."""
    program = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_a_run_over_the_store_imports_few_modules_of_the_project():
    code = "import dataflow.measure.supervisor, dataflow.measure.driver, dataflow.workers.ray_workers\n"
    modules = imported_modules(code + "import dataflow.report.render, dataflow.transports.store")
    own = {name for name in modules if (ROOT / f"{name.replace('.', '/')}.py").is_file()}
    assert len(own) <= MAX_MODULES, sorted(own)


def test_verbs_are_imported_and_configurations_planned_without_heavy_packages():
    verbs = "from dataflow.commands import answer, list, nodes, report, run\n"
    assert imported_modules(verbs).isdisjoint({"ray", "torch", "numpy", "scipy", "matplotlib"})
    assert imported_modules(f"{verbs}list.main([])").isdisjoint({"ray", "torch"})
