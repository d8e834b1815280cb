# SPDX-License-Identifier: Apache-2.0
"""Check that imports point one way and never in a circle, and that a run imports what it uses."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from dataflow.study import studies

ORDER = (
    "errors", "units", "study", "flows", "catalogue", "records", "plan", "trace", "endpoints", "nodes",
    "workers", "machine", "analysis", "cluster", "report", "measure", "transports", "studies", "commands", "__main__",
)  # fmt: skip
STUDIES = ROOT / "dataflow" / "studies"
FILES = sorted(path for path in (ROOT / "dataflow").rglob("*.py") if path.name != "__init__.py")
# The processes of a run over the store: the command with its supervisor, and the driver with its actors.
RUN_OVER_STORE = {
    "supervisor": "import dataflow.commands.run",
    "driver": "import dataflow.measure.driver, dataflow.workers.ray_workers, dataflow.transports.store",
}


def package_of(path: Path) -> str:
    return path.relative_to(ROOT / "dataflow").with_suffix("").parts[0]


def imported_names(path: Path) -> set[str]:
    """Return what a file imports, anywhere in it: modules, and names in them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports must be absolute"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def test_modules_import_only_packages_before_their_own():
    wrong = []
    for path in FILES:
        allowed = ORDER[: ORDER.index(package_of(path)) + 1]
        for name in sorted(imported_names(path)):
            first, *rest = name.split(".")
            if first == "dataflow" and rest[0] not in allowed:
                wrong.append(f"{path.relative_to(ROOT)} imports {rest[0]}")
    assert wrong == []


def module_of(path: Path, root: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imports_of_modules(root: Path, *packages: str) -> dict[str, set[str]]:
    """Return the modules of these packages, and for each the others that it imports, in functions too."""
    paths = {}
    for package in packages:
        for path in (root / package).rglob("*.py"):
            paths[module_of(path, root)] = path
    imports: dict[str, set[str]] = {}
    for module, path in paths.items():
        imports[module] = set()
        for name in imported_names(path):
            # A name may be that of a module, or be in one.
            owner = name if name in paths else name.rpartition(".")[0]
            if owner in paths and owner != module:
                imports[module].add(owner)
    return imports


def find_circle(imports: dict[str, set[str]]) -> list[str]:
    """Return modules of which each imports another one of them; none if there is no circle."""
    left = {module: set(others) for module, others in imports.items()}
    while True:
        ends = {module for module, others in left.items() if not others}
        if not ends:
            return sorted(left)
        left = {module: others - ends for module, others in left.items() if module not in ends}


def test_no_modules_import_each_other():
    imports = imports_of_modules(ROOT, "common", "dataflow")
    assert "common.sizes" in imports["common.record"]
    assert find_circle(imports) == []


def test_a_circle_of_imports_is_found(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("def late():\n    from package import two\n")
    (package / "two.py").write_text("from package.three import name\n")
    (package / "three.py").write_text("name = 1\n")
    assert find_circle(imports_of_modules(tmp_path, "package")) == []
    (package / "three.py").write_text("import package.one\n")
    circle = find_circle(imports_of_modules(tmp_path, "package"))
    assert circle == ["package.one", "package.three", "package.two"]


def imported_modules(code: str) -> set[str]:
    """Return the modules that a fresh Python process has after this code, the project's and a few others."""
    program = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def modules_of_studies() -> set[str]:
    """Return the modules that only runs of a study need: those of its parts, and those of its tables."""
    modules = set()
    for name, study in studies().items():
        modules.add(f"dataflow.studies.{name}.sections")
        for text in filter(None, (study.part, study.collect)):
            modules.add(f"dataflow.studies.{name}.{text.partition(':')[0]}")
    return modules


@pytest.mark.parametrize("process", RUN_OVER_STORE)
def test_a_run_over_the_store_imports_no_reports_studies_or_other_transports(process):
    modules = imported_modules(RUN_OVER_STORE[process])
    unused = modules & modules_of_studies()
    for module in sorted(modules):
        is_of_report = module.startswith(("dataflow.analysis", "dataflow.report"))
        is_of_other_transport = module.startswith("dataflow.transports.")
        if is_of_report or (is_of_other_transport and module != "dataflow.transports.store"):
            unused.add(module)
    assert unused == set()


def test_verbs_are_imported_and_configurations_planned_without_heavy_packages():
    verbs = "from dataflow.commands import list, nodes, report, run\n"
    assert imported_modules(verbs).isdisjoint({"ray", "torch", "numpy", "scipy", "matplotlib"})
    assert imported_modules(f"{verbs}list.main([])").isdisjoint({"ray", "torch"})


def test_the_end_of_a_run_of_one_configuration_needs_no_matplotlib():
    """Its import takes time, and prints a warning for a user without a home."""
    shown = """
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from dataflow.commands import run
from dataflow.records import files
path = Path("results/evidence/agreement/suite")
item = SimpleNamespace(record=files.load_folder(path)[0], saved_path=path)
assert run.show_results(Namespace(columns=None), [item], path) == 0
"""
    assert "matplotlib" not in imported_modules(shown)
