"""Check that the lines of the code hold few ideas: nodes of the syntax tree per line of code."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("common", "dataflow", "examples", "raymeter")
MAX_NODES_PER_LINE = 9.0
MIN_LINES = 40  # of code; smaller files are not judged


def product_files() -> list[Path]:
    inside = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    files = sorted([*ROOT.glob("*.py"), *inside])
    return [file for file in files if "tests" not in file.relative_to(ROOT).parts]


def count_code_lines(text: str) -> int:
    """Count the lines that are neither empty nor a comment."""
    lines = [line.strip() for line in text.splitlines()]
    return sum(1 for line in lines if line and not line.startswith("#"))


def nodes_per_line(text: str) -> float:
    """Return the density of a file; 0 for a small one."""
    lines = count_code_lines(text)
    if lines < MIN_LINES:
        return 0.0
    return sum(1 for _ in ast.walk(ast.parse(text))) / lines


@pytest.mark.parametrize("file", product_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_is_not_dense(file: Path) -> None:
    density = nodes_per_line(file.read_text(encoding="utf-8"))
    assert density <= MAX_NODES_PER_LINE, f"{density:.1f} nodes per line: give things names"


def test_dense_and_sparse_code_is_told_apart() -> None:
    sparse = "value = 1\n" * MIN_LINES
    dense = (
        "value = [(a + b, c[d]) for a, b in zip(x, y) for c in z if c.ok and not c.bad]\n"
        * MIN_LINES
    )
    assert nodes_per_line(sparse) <= MAX_NODES_PER_LINE < nodes_per_line(dense)
    assert nodes_per_line("value = 1\n") == 0.0
