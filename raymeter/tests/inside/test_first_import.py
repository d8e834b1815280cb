# SPDX-License-Identifier: Apache-2.0
"""The first frame of a program imports pyarrow: the time of a conversion begins again then, and only then."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("ray")
from raymeter.inside import conversions, limits

IMPORT_SECONDS = 10.0
LIMIT_SECONDS = 1.0
ARROW = f"""
import made_clock

made_clock.now += {IMPORT_SECONDS}


class Table:
    @staticmethod
    def from_pandas(frame):
        made_clock.now += frame.seconds
        return "table"
"""


class DataFrame:
    """A frame that takes so many seconds to become a table."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


@pytest.fixture(autouse=True)
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a made-up pyarrow, which is not imported yet, and its frames move the clock of all limits."""
    (tmp_path / "pyarrow.py").write_text(ARROW)
    clock = ModuleType("made_clock")
    clock.now = 0.0
    frames = SimpleNamespace(DataFrame=DataFrame)
    monkeypatch.setitem(sys.modules, "made_clock", clock)
    monkeypatch.setitem(sys.modules, "pandas", frames)
    monkeypatch.delitem(sys.modules, "polars", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # which is put back at the end
    del sys.modules["pyarrow"]
    monkeypatch.setattr(limits, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.syspath_prepend(tmp_path)


def test_the_import_of_pyarrow_does_not_count():
    frames = [DataFrame(0.3), DataFrame(0.3), DataFrame(0.3)]
    tables = conversions.frames_to_arrow(frames, limits.Limits(LIMIT_SECONDS))
    assert tables == ["table"] * 3


def test_the_time_does_not_begin_again_with_later_frames():
    frames = [DataFrame(0.6), DataFrame(0.6), DataFrame(0.6)]
    with pytest.raises(limits.TooSlow):
        conversions.frames_to_arrow(frames, limits.Limits(LIMIT_SECONDS))
