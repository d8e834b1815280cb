"""The functions that --trace replaces."""

import mmap
import sys
import time
from types import SimpleNamespace

import pytest

from dataflow.trace import recorder


@pytest.mark.parametrize(("module", "path", "stage"), recorder.POINTS + recorder.ON_GPUS, ids=lambda name: name)
def test_every_function_that_tracing_replaces_exists(module, path, stage):
    """A new version of Ray or torch may have moved it; then a traced run would silently lack its stage."""
    owner, name = recorder.find_owner(module, path)
    assert callable(getattr(owner, name))


def test_the_methods_of_an_endpoint_that_tracing_replaces_exist():
    from dataflow.endpoints.actor import Actor

    assert all(callable(getattr(Actor, name)) for name, _ in recorder.ENDPOINT_METHODS)


def test_calls_are_recorded_with_their_thread_and_time_even_if_they_raise(monkeypatch):
    def fail():
        raise ValueError

    library = SimpleNamespace(sleep=lambda: time.sleep(0.01), fail=fail)
    monkeypatch.setitem(sys.modules, "a_library", library)
    monkeypatch.setattr(recorder, "POINTS", (("a_library", "sleep", "wait"), ("a_library", "fail", "write")))
    monkeypatch.setattr(recorder, "spans", [])
    monkeypatch.setattr(recorder, "installed", False)
    endpoint = SimpleNamespace(parts=[], device=SimpleNamespace(type="cpu"), receive=lambda: 7)
    for _ in range(2):  # the second endpoint of a process must not wrap the library again
        recorder.install(endpoint)
    before = time.perf_counter()
    library.sleep()
    with pytest.raises(ValueError):
        library.fail()
    (thread, stage, start, end, _), (other_thread, other_stage, *_) = recorder.spans
    assert (stage, other_stage, thread == other_thread) == ("wait", "write", True)
    assert before <= start <= end - 0.01 <= time.perf_counter()
    assert endpoint.receive() == 7 and {span[1] for span in recorder.spans[2:]} == {"sequence number"}


def test_page_faults_count_for_the_innermost_span(monkeypatch):
    def touch(pages):
        memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1

    def outer():
        touch(3000)
        library.inner()

    library = SimpleNamespace(outer=outer, inner=lambda: touch(10_000))
    monkeypatch.setitem(sys.modules, "a_library", library)
    monkeypatch.setattr(recorder, "POINTS", (("a_library", "outer", "write"), ("a_library", "inner", "serialise")))
    monkeypatch.setattr(recorder, "spans", [])
    monkeypatch.setattr(recorder, "installed", False)
    recorder.install(SimpleNamespace(parts=[], device=SimpleNamespace(type="cpu")))
    library.outer()
    faults = {stage: count for _, stage, _, _, count in recorder.spans}
    assert 10_000 <= faults["serialise"] < 10_500 and 3000 <= faults["write"] < 3500


def test_the_timing_loop_calls_synchronise_in_the_form_that_tracing_replaces():
    """A name that another module imported would still be the original function."""
    from dataflow.measure import loop

    assert not hasattr(loop, "synchronise")
