# SPDX-License-Identifier: Apache-2.0
"""Check that lines hold few ideas, functions are short, comments are in place, and the formatter decides the layout."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("common", "dataflow", "examples", "raymeter")
# Where comprehensions, functions and layout are checked, too. Single files of the repository's root belong to it.
ROOMS = (
    "common",
    "examples",
    "dataflow/analysis",
    "dataflow/catalogue",
    "dataflow/cluster",
    "dataflow/commands",
    "dataflow/endpoints",
    "dataflow/flows",
    "dataflow/machine",
    "dataflow/measure",
    "dataflow/nodes",
    "dataflow/plan",
    "dataflow/records",
    "dataflow/report",
    "dataflow/studies",
    "dataflow/trace",
    "dataflow/transports",
    "dataflow/workers",
)
MAX_NODES_PER_LINE = 9.0
MIN_LINES = 40  # of code; smaller files are not judged
MAX_FUNCTION_LINES = 40
# Each of the two scripts is read alone, or beside the other: what stands for a model has the same name in both. Neither
# imports the other, and no other module imports them.
SHARED_CLASSES = {
    "Model": {"simulate_chat_learn_data_flow.py", "ray_cg_simulate_chat_learn_data_flow.py"}
}
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Classes of flags are tables of data.
FLAG_TABLES = (
    "dataflow/plan/options.py",
    "dataflow/studies/model_loading/__init__.py",
    "dataflow/studies/weights/__init__.py",
)


def product_files() -> list[Path]:
    inside = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    files = sorted([*ROOT.glob("*.py"), *inside])
    return [file for file in files if "tests" not in file.relative_to(ROOT).parts]


def files_of_laboratory() -> list[Path]:
    return [file for file in product_files() if not file.is_relative_to(ROOT / "raymeter")]


def files_of_rooms() -> list[Path]:
    return [file for file in product_files() if file.parent == ROOT or is_in_room(file)]


def is_in_room(file: Path) -> bool:
    return any(file.is_relative_to(ROOT / room) for room in ROOMS)


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


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


def is_nested(node: ast.AST) -> bool:
    """Return whether this is a comprehension with two `for`, two `if`, or another comprehension inside."""
    if not isinstance(node, COMPREHENSIONS):
        return False
    inside = [inner for inner in ast.walk(node) if isinstance(inner, COMPREHENSIONS)]
    first, *others = node.generators
    return bool(others) or len(inside) > 1 or len(first.ifs) > 1


def is_parallel(node: ast.AST) -> bool:
    """Return whether this is an assignment of several values to several names, such as `a, b = x, y`."""
    if not isinstance(node, ast.Assign):
        return False
    return isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)


def is_long(node: ast.AST) -> bool:
    """Return whether this is a function with too many lines."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    lines = node.end_lineno - node.lineno + 1
    return lines > MAX_FUNCTION_LINES


def find_lines(text: str, is_wrong: Callable[[ast.AST], bool]) -> list[int]:
    """Return the lines of the statements and expressions that are wrong."""
    return [node.lineno for node in ast.walk(ast.parse(text)) if is_wrong(node)]


def find_overrides(text: str) -> list[int]:
    """Return the lines that switch the formatter off without a reason: a comment behind or directly before."""
    found = []
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        has_reason = "#" in line.partition("# fmt:")[2] or before.startswith("#")
        if re.search("# fmt: (off|skip)", line) and not has_reason:
            found.append(number)
        before = line.strip()
    return found


def find_classes(files: Iterable[Path]) -> dict[str, set[str]]:
    """Return the names of classes, and for each the files that define one of this name."""
    found = defaultdict(set)
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].add(name_of(file))
    return found


def test_no_two_classes_share_a_name() -> None:
    # An example has classes of its own, which its reader copies.
    files = [file for file in files_of_laboratory() if not file.is_relative_to(ROOT / "examples")]
    shared = {name: owners for name, owners in find_classes(files).items() if len(owners) > 1}
    assert shared == SHARED_CLASSES


def find_comments_behind(text: str) -> list[int]:
    """Return the lines whose comment stands behind a closing bracket, or in brackets that hold one value alone.

    The formatter moves them there, away from what they explain.
    """
    found = []
    lines = ["", *text.splitlines(), ""]
    for number in range(1, len(lines) - 1):
        before, line, after = (part.strip() for part in lines[number - 1 : number + 2])
        # A comment behind code has two spaces before it. Those for tools stay where they are.
        if not re.search("  # (?!fmt:|type:|noqa)", line):
            continue
        is_alone = before.endswith((" (", "[")) and re.match(r"[\])]( =|$)", after)
        if re.match(r"[)\]}][^\"']*  # ", line) or is_alone:
            found.append(number)
    return found


@pytest.mark.parametrize("file", files_of_laboratory(), ids=name_of)
def test_comments_are_above_what_they_explain(file: Path) -> None:
    assert find_comments_behind(file.read_text(encoding="utf-8")) == [], "put the comment above"


def test_comments_behind_brackets_are_found() -> None:
    assert find_comments_behind("x = f(\n    a\n)  # why\n") == [3]
    assert find_comments_behind("x: int = (\n    None  # why\n)\n") == [2]
    assert find_comments_behind("x: dict[\n    str, int  # why\n] = {}\n") == [2]
    text = "x = (\n    1,  # one\n    2,  # two\n)  # fmt: skip\ny = f(a)  # why\n"
    assert find_comments_behind(text) == []


@pytest.mark.parametrize("file", product_files(), ids=name_of)
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


def test_every_room_is_there() -> None:
    assert [room for room in ROOMS if not (ROOT / room).is_dir()] == []


@pytest.mark.parametrize("file", files_of_rooms(), ids=name_of)
def test_statements_and_functions_have_one_idea(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert find_lines(text, is_nested) == [], "nested comprehensions: write a loop or a function"
    assert find_lines(text, is_parallel) == [], "several assignments: one per line"
    assert find_lines(text, is_long) == [], f"functions of more than {MAX_FUNCTION_LINES} lines"


@pytest.mark.parametrize("file", files_of_rooms(), ids=name_of)
def test_the_formatter_decides_the_layout(file: Path) -> None:
    if name_of(file) not in FLAG_TABLES:
        assert find_overrides(file.read_text(encoding="utf-8")) == [], "give a reason beside it"


@pytest.mark.parametrize(
    "statement",
    [
        "x = [item for part in parts for item in part]",
        "x = {key: [item for item in part] for key, part in parts}",
        "x = sum(item for item in items if item if not item.ok)",
    ],
)
def test_nested_comprehensions_are_found(statement: str) -> None:
    assert find_lines(f"import x\n{statement}", is_nested)[0] == 2


def test_plain_statements_are_not_nested_and_not_parallel() -> None:
    text = "x = [item for item in items if item.ok]\nwidth, height = size\nfirst, *rest = x"
    assert find_lines(text, is_nested) == find_lines(text, is_parallel) == []
    assert find_lines("a, b = 1, 2", is_parallel) == [1]


@pytest.mark.parametrize(
    ("lines", "expected"), [(MAX_FUNCTION_LINES, []), (MAX_FUNCTION_LINES + 1, [1])]
)
def test_long_functions_are_found(lines: int, expected: list[int]) -> None:
    body = "    x = 1\n" * (lines - 1)
    assert find_lines(f"def function():\n{body}", is_long) == expected


def test_an_override_of_the_formatter_needs_a_reason() -> None:
    assert find_overrides("x = 1  # fmt: skip\n\n# fmt: off\n") == [1, 3]
    assert find_overrides("x = 1  # fmt: skip  # a table\n# A table of flags.\n# fmt: off\n") == []
