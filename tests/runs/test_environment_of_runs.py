# SPDX-License-Identifier: Apache-2.0
"""Test that the processes of a run have the variables of --env, and that a run fails if one of them has not."""

import os
from pathlib import Path

import pytest
from conftest import KILOBYTES

from dataflow.measure.environment import mapped_files

FEW = ("--iterations", "2", "--warmup", "1", *KILOBYTES)


@pytest.mark.slow
def test_the_driver_the_actors_and_the_raylet_have_the_variables_and_the_library(run_script):
    library = next(path for path in sorted(mapped_files(os.getpid())) if "/libm.so" in path)
    text = f"LD_PRELOAD={library} OF_TEST='x y' MALLOC_ARENA_MAX=2"
    finished = run_script("store", "--transport", "refs", "--env", text, *FEW)
    assert (finished.code, finished.stderr) == (0, "")
    assert finished.run.status == "ok"
    name = Path(library).name
    shown = f"LD_PRELOAD={name} MALLOC_ARENA_MAX=2 'OF_TEST=x y'"
    assert finished.record.configuration.flags == {"env": shown}
    variables = finished.record.environments["0"]["variables"]
    assert (variables["LD_PRELOAD"], variables["MALLOC_ARENA_MAX"]) == (name, "2")


def test_a_run_whose_library_cannot_be_loaded_fails(run_script, tmp_path):
    library = tmp_path / "libmalloc.so"
    library.write_text("no library")
    finished = run_script("torch", "--transport", "memcpy", "--env", f"LD_PRELOAD={library}", *FEW)
    assert finished.code == 1
    assert finished.run.status == "failed"
    reason = finished.run.reason
    assert "has not loaded libmalloc.so: check with ldd" in reason  # all actors are in one process
