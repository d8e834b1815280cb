# SPDX-License-Identifier: Apache-2.0
"""The commands that show a profile, and the files that they write."""

import json

import pytest
from made_programs import make_loop, write_recording
from raymeter.command_line import main
from raymeter.commands import show
from raymeter.errors import UserError


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the recording of a loop."""
    folder = tmp_path / "profile"
    folder.mkdir()
    write_recording(make_loop(), folder)
    return folder


def test_a_new_profile_is_printed_and_its_files_are_written(folder, capsys):
    show.show_new_profile(folder, None, has_page=False)
    printed = capsys.readouterr().out
    assert (folder / "profile.txt").read_text() == printed
    assert printed.count(str(folder)) == 1
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert "Trainer" in (folder / "flow.toml").read_text()
    assert not (folder / "profile.html").exists()


def test_html_writes_a_page_beside_them(folder, capsys):
    show.show_new_profile(folder, None, has_page=True)
    assert (folder / "profile.html").exists()
    assert f"Page: {folder / 'profile.html'}" in capsys.readouterr().out


def test_show_writes_a_page_where_it_is_told(folder, tmp_path, capsys):
    assert main(["show", str(folder)]) == 0
    assert not (folder / "profile.html").exists()
    assert main(["show", str(folder), "--html"]) == 0
    assert (folder / "profile.html").exists()
    assert main(["show", str(folder), "--html", str(tmp_path / "a.html")]) == 0
    assert (tmp_path / "a.html").read_text() == (folder / "profile.html").read_text()


def test_a_folder_without_a_profile_is_one_line_that_does_not_guess_why(tmp_path, capsys):
    assert main(["show", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.endswith(
        "no process has written into it. Record a program, or give another folder\n"
    )


def test_a_page_that_cannot_be_written_is_one_line(folder, capsys):
    assert main(["show", str(folder), "--html", "/missing/a.html"]) == 2
    error = capsys.readouterr().err
    assert (
        error.startswith("error: --html /missing/a.html: No such file") and error.count("\n") == 1
    )


def test_a_file_of_a_new_profile_that_cannot_be_written_is_an_error_after_the_text(folder, capsys):
    (folder / "trace.json").mkdir()
    with pytest.raises(UserError, match="Is a directory"):
        show.show_new_profile(folder, None, has_page=False)
    assert "Moving data is" in capsys.readouterr().out
