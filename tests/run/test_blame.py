"""Who is to blame: from the board, the processes and what they wrote down, asking nobody."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from common.flow.catalogue import online_dpo
from common.run import blame
from common.trace.board import STARTING, TRIPS, Board

FLOW = online_dpo(4, 256)
NAMES = ("driver", *FLOW.actors)


@pytest.fixture
def board(tmp_path):
    """board(policy=3, ...) -> a board on which those have received so many; all of them this process."""

    def make(**received):
        found = Board.create(tmp_path, NAMES, 10)
        for name, number in received.items():
            Board.join(tmp_path, name, NAMES, 10).received(number)
        return found

    return make


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()


def test_a_board_is_read_by_others_while_it_is_written(board, tmp_path):
    seen = board()
    assert (seen.phase, seen.progress, seen.processes()) == (STARTING, (0, 0, 0), {})
    driver = Board.join(tmp_path, "driver", NAMES, 10)
    driver.phase = TRIPS
    driver.began(2)
    assert seen.progress == (TRIPS, 2, 0)
    driver.ended(2, 1.5, 2.5)
    driver.received(2)
    assert seen.progress == (TRIPS, 2, 2)
    assert (seen.trip(2), seen.trip(3)) == ((1.5, 2.5), (0.0, 0.0))
    assert seen.processes() == {"driver": os.getpid()}
    assert seen.numbers() == {"driver": 2, "policy": 0, "reference": 0, "reward": 0}


def test_a_participant_on_another_machine_has_a_board_that_nobody_reads(tmp_path):
    board = Board.join(tmp_path / "nowhere", "policy", NAMES, 10)
    board.received(7)
    assert board.numbers()["policy"] == 7


@pytest.mark.parametrize(
    ("received", "words"),
    [
        ({"policy": 4, "reference": 4, "reward": 4}, "policy has received 4 trips and waits, or hangs"),
        ({"policy": 5, "reference": 4, "reward": 4}, "reference has received 4 trips and waits, or hangs"),
        ({"policy": 5, "reference": 5, "reward": 4}, "reward has received 4 trips and waits, or hangs"),
        ({"policy": 5, "reference": 5, "reward": 5}, "every role has received it"),
    ],
)
def test_the_first_who_has_not_received_what_all_before_it_have_passed_on(board, received, words):
    assert blame.sentence(board(**received), FLOW, 5, []).startswith(words)


def test_who_died_and_who_is_stopped_come_before_who_waits(board, sleeper):
    found = board(policy=5, reference=4, reward=4)
    assert blame.sentence(found, FLOW, 5, ["reference"]) == "reference died"
    assert blame.sentence(found, FLOW, 5, ["driver"]) == "driver died"
    assert blame.sentence(found, FLOW, 5, ["policy", "reward"]).startswith("policy, reward died (")
    found.words[3 + 2 * NAMES.index("reward")] = sleeper.pid
    assert blame.dead(found) == []
    sleeper.suspend()
    while sleeper.status() != psutil.STATUS_STOPPED:
        pass
    assert blame.sentence(found, FLOW, 5, []) == "reward does not answer: its process is stopped"
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert blame.dead(found) == ["reward"]


def test_what_a_role_wrote_down_before_it_ended_is_kept(tmp_path):
    assert blame.last_words(tmp_path) == {}
    (tmp_path / "policy.error").write_text("OSError: no luck today")
    assert blame.last_words(tmp_path) == {"policy": "policy raised OSError: no luck today"}


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGKILL, "the driver's process was ended by SIGKILL"),
        (-signal.SIGSEGV, "the driver's process was ended by SIGSEGV"),
        (3, "the driver's process ended with code 3 and no report"),
    ],
)
def test_how_the_worker_ended(code, words):
    assert blame.end_of(code) == words
