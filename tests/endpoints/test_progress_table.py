"""Test that the supervisor reads from shared memory what the workers have written."""

import os

from dataflow.endpoints.progress_table import ENDING, ITERATING, STARTING, ProgressTable

NAMES = ("driver", "policy", "reward")


def test_the_supervisor_sees_what_the_workers_write(tmp_path):
    table = ProgressTable.create(tmp_path, NAMES, 5)
    assert table.progress == (STARTING, 0, 0) and table.processes() == {}
    driver = ProgressTable.join(tmp_path, "driver", NAMES, 5)
    reward = ProgressTable.join(tmp_path, "reward", NAMES, 5)
    driver.phase = ITERATING
    driver.began(2)
    driver.ended(1, 10.25, 10.5)
    driver.received(1)
    reward.received(2)
    assert table.progress == (ITERATING, 2, 1)
    assert (table.iteration(1), table.iteration(2)) == ((10.25, 10.5), (0, 0))
    assert table.processes() == {"driver": os.getpid(), "reward": os.getpid()}
    assert table.numbers() == {"driver": 1, "policy": 0, "reward": 2}
    driver.phase = ENDING
    driver.ended(5, 11, 12)
    assert (table.phase, table.iteration(5)) == (ENDING, (11, 12))
