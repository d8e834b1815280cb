# SPDX-License-Identifier: Apache-2.0
"""What `raymeter explain` says of a cause, and of one message."""

import pickle
import re
import sys
from pathlib import Path

import numpy
import pytest
from raymeter.report.message import ALTERNATIVE_TEXTS

import raymeter
from raymeter import command_line


def explain(value: object, capsys: pytest.CaptureFixture[str]) -> str:
    raymeter.explain(value)
    return capsys.readouterr().out


def test_an_array_lies_outside_of_the_pickle(capsys: pytest.CaptureFixture[str]) -> None:
    text = explain({"obs": numpy.arange(2.0**20)}, capsys)
    assert re.search(r"outside of it +8 MiB in 1 buffer", text)
    assert re.search(r"^obs +8 MiB +8 MiB +numpy.ndarray float64$", text, re.MULTILINE)


def test_a_message_that_is_stored_as_it_is_held_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    text = explain(numpy.zeros((1_024, 1_024)), capsys)
    assert "  in its fields   8 MiB; Ray stores 1 times as much" in text


class Packed:
    """A message with a small text, whose bytes come from somewhere else."""

    def __init__(self) -> None:
        self.mode = "RGB"

    def __getstate__(self) -> bytes:
        return bytes(100_000)


def test_a_small_field_is_not_said_to_be_stored_many_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = explain(Packed(), capsys)
    assert "in its fields   3 B; the other bytes are of objects that are not listed" in text
    assert "times as much" not in text


def test_a_padded_field_says_which_share_of_it_is_one_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tokens = numpy.zeros((400, 300), numpy.int64)
    tokens[:, :75] = numpy.arange(30_000).reshape(400, 75)
    assert re.search(r"int64 +7[456] % is one value$", explain({"tokens": tokens}, capsys), re.M)
    assert "one value" not in explain({"tokens": numpy.arange(120_000)}, capsys)


def test_each_other_way_to_send_a_message_has_a_text_about_the_change() -> None:
    conversions = pytest.importorskip("raymeter.inside.conversions")
    assert ALTERNATIVE_TEXTS.keys() == conversions.CONVERSIONS.keys()


def test_numbers_in_a_list_have_a_measured_alternative(capsys: pytest.CaptureFixture[str]) -> None:
    text = explain({"tokens": list(range(300, 30_300))}, capsys)
    assert "numpy.asarray(numbers): pickle" in text
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"outside of it +nothing$", text, re.MULTILINE)


class Batch:
    """A message that pickles itself."""

    def __init__(self) -> None:
        self.tokens = numpy.zeros(100_000)

    def __getstate__(self) -> dict[str, bytes]:
        return {"tokens": self.tokens.tobytes() * 2}


def test_the_whole_message_is_pickled_as_its_class_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = explain(Batch(), capsys)
    assert re.search(r"in the pickle +1\.5\d MiB \(100 %\)", text)
    assert f"Batch pickles itself in __getstate__ ({__file__}:" in text


def test_shared_parts_are_stored_once(capsys: pytest.CaptureFixture[str]) -> None:
    array = numpy.zeros(131_072)
    assert re.search(r"outside of it +1 MiB in 1 buffer", explain([array, array], capsys))


def test_a_message_without_known_fields_has_no_number_of_copies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = explain({1: 2}, capsys)
    assert "pickled as Python objects" in text
    assert "per byte" not in text


def test_no_value_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "secret" not in explain({"a": "secret-content" * 10_000, "b": 77_123_456}, capsys)


def test_a_pickle_is_loaded_only_if_it_is_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "batch.pkl"
    path.write_bytes(pickle.dumps({"a": numpy.zeros(200_000)}))
    assert command_line.main(["explain", str(path)]) == 2
    assert "give --trust" in capsys.readouterr().err
    assert command_line.main(["explain", str(path), "--trust"]) == 0
    assert "1.53 MiB" in capsys.readouterr().out


def test_arrays_and_tensors_are_read_from_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    numpy.save(tmp_path / "a.npy", numpy.zeros(200_000))
    torch.save({"t": torch.zeros(200_000)}, tmp_path / "b.pt")
    assert command_line.main(["explain", str(tmp_path / "a.npy")]) == 0
    assert "numpy.ndarray" in capsys.readouterr().out
    assert command_line.main(["explain", str(tmp_path / "b.pt")]) == 0
    assert "tensor.numpy(): pickle" in capsys.readouterr().out


def test_a_broken_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"nothing")
    assert command_line.main(["explain", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def save_class_of_another_program(path: Path) -> None:
    """Pickle an object of a class that only the module __main__ of this process has."""
    program = sys.modules["__main__"]
    gone = type("Gone", (), {"__module__": "__main__"})
    program.Gone = gone  # type: ignore[attr-defined]
    path.write_bytes(pickle.dumps(gone()))
    del program.Gone  # type: ignore[attr-defined]


def test_a_class_of_another_main_program_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gone.pkl"
    save_class_of_another_program(path)
    assert command_line.main(["explain", str(path), "--trust"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "Can't get attribute 'Gone'" in line
    assert "move its class into a module that can be imported here" in line


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            b"cnot_installed_here\nGone\n.",
            "install not_installed_here to read it, or add its folder",
        ),
        (b"cbuiltins\nint\n(S'x'\ntR.", "cannot be loaded (invalid literal"),
        (b"c_operator\ngetitem\n((dS'gone'\ntR.", "cannot be loaded ('gone'): give a file"),
        (b"c_operator\ntruediv\n(I1\nI0\ntR.", "cannot be loaded (division by zero): give a file"),
        (b"c_operator\nadd\n(I1\nS'a'\ntR.", "cannot be loaded (unsupported operand"),
        (b"", "cannot be loaded (Ran out of input)"),
    ],
)
def test_any_error_of_unpickling_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    path = tmp_path / "message.pkl"
    path.write_bytes(content)
    assert command_line.main(["explain", str(path), "--trust"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert words in line


def test_arrow_is_pickled_with_rays_own_reducer(capsys: pytest.CaptureFixture[str]) -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"x": numpy.arange(1_000_000)})
    text = explain(table.slice(0, 1_000), capsys)
    assert re.search(r"Ray stores \d[\d.]* KiB", text)


def test_a_cause_is_found_by_its_name_and_by_a_part_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    texts = []
    for words in (["the-same-content-is-sent-again"], ["same", "content"], ["same-content"]):
        assert command_line.main(["explain", *words]) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    assert "    # before\n    for actor in actors:\n" in texts[0]
    assert max(len(line) for line in texts[0].splitlines()) <= 60


@pytest.mark.parametrize("words", ["pickle", "nothing-like-this"])
def test_words_that_name_no_single_cause_are_one_line(
    capsys: pytest.CaptureFixture[str], words: str
) -> None:
    assert command_line.main(["explain", words]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert words in line


def test_without_a_word_all_causes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  raymeter explain many-small-calls" in lines
    assert max(len(line) for line in lines) <= 80


def test_a_missing_file_is_no_cause(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["explain", "a.npy"]) == 2
    assert capsys.readouterr().err == "error: a.npy: no such file\n"
