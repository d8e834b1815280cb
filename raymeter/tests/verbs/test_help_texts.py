# SPDX-License-Identifier: Apache-2.0
"""Help texts fit into 80 columns, and name only flags that their verb has."""

import pytest

from raymeter import command_line

VERBS = ([], ["show"], ["try"], ["compare"], ["memory"], ["explain"])


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_help_fits_into_80_columns(
    verb: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        command_line.main([*verb, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"usage: raymeter {' '.join(verb)}".rstrip())
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("verb", ["try", "compare", "memory"])
def test_a_verb_that_writes_no_page_has_no_flag_for_it(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command_line.main([verb, "--help"])
    assert "--html" not in capsys.readouterr().out


def test_an_error_names_the_help_of_its_own_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.main(["show"])
    assert "(raymeter show --help lists the flags)" in capsys.readouterr().err
