"""A slowdown that was planted in real runs is found, and the same twice is not called different."""

from conftest import KILOBYTES, SCRIPTS

import compare_results


def test_a_planted_delay_fails_the_comparison_and_the_same_again_does_not(begin_run, tmp_path, capsys):
    flags = ("--transport", "memcpy", *KILOBYTES, "--iterations", "20")
    sides = {"old": (), "again": (), "slow": ("--inject", "reference:1:delay=20ms")}
    for turn in range(3):
        for side, more in sides.items():  # in turns
            (tmp_path / side).mkdir(exist_ok=True)
            done = begin_run(SCRIPTS["torch"], *flags, *more).finish()
            assert done.code == 0, done.stderr
            done.output.rename(tmp_path / side / f"{turn}.json")
    old, again, slow = (str(tmp_path / side) for side in sides)
    assert compare_results.main([old, again, "--fail-above", "100%"]) == 0
    assert compare_results.main([old, slow, "--fail-above", "5%"]) == 1
    assert "torch memcpy --inject reference:1:delay=20ms is slower by" in capsys.readouterr().err
