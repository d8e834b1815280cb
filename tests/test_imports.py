"""Check that imports point one way, and that a run imports only what it uses."""

import ast
import subprocess
import sys
from pathlib import Path

from conftest import ROOT

from dataflow.study import studies

ORDER = (
    "errors", "units", "study", "flows", "catalogue", "records", "plan", "trace", "endpoints", "nodes",
    "workers", "analysis", "report", "measure", "transports", "studies", "commands", "__main__",
)  # fmt: skip
STUDIES = ROOT / "dataflow" / "studies"
FILES = sorted(path for path in (ROOT / "dataflow").rglob("*.py") if path.name != "__init__.py")
RUN = """
import dataflow.measure.supervisor, dataflow.measure.driver
import dataflow.workers.ray_workers, dataflow.transports.store
"""


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


def test_a_run_over_the_store_imports_no_other_transport_no_part_of_a_study_and_no_chart():
    modules = imported_modules(RUN)
    transports = {name for name in modules if name.startswith("dataflow.transports.")}
    assert transports == {"dataflow.transports.store"}
    parts = set()
    for name, study in studies().items():
        named = filter(None, (study.part, study.collect))
        parts |= {f"dataflow.studies.{name}.{part.partition(':')[0]}" for part in named}
    assert parts
    assert modules.isdisjoint(parts)
    assert modules.isdisjoint({"dataflow.report.charts", "matplotlib", "scipy", "tensordict"})


def test_verbs_are_imported_and_configurations_planned_without_heavy_packages():
    verbs = "from dataflow.commands import answer, list, nodes, report, run\n"
    assert imported_modules(verbs).isdisjoint({"ray", "torch", "numpy", "scipy", "matplotlib"})
    assert imported_modules(f"{verbs}list.main([])").isdisjoint({"ray", "torch"})
