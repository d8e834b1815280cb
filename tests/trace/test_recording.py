"""The functions that --trace replaces."""

import mmap
import sys
import time
from itertools import chain
from types import SimpleNamespace

import pytest

from dataflow.trace import spans


@pytest.mark.parametrize("function", [*chain(*spans.FUNCTIONS.values(), *spans.ON_GPUS.values())])
def test_every_function_that_tracing_replaces_exists(function):
    """A new version of Ray or torch may have moved it; then a traced run would silently lack its stage."""
    owner, name = spans.find_owner(function)
    assert callable(getattr(owner, name))


@pytest.fixture
def record(monkeypatch):
    """record(endpoint, functions: stage -> function) -> a library with these functions, which are recorded."""

    def install(endpoint, **functions):
        library = SimpleNamespace(**functions)
        monkeypatch.setitem(sys.modules, "a_library", library)
        monkeypatch.setattr(spans, "FUNCTIONS", {stage: (f"a_library:{stage}",) for stage in functions})
        monkeypatch.setattr(spans, "recorded", [])
        monkeypatch.setattr(spans, "installed", False)
        for _ in range(2):  # the second endpoint of a process must not wrap the library again
            spans.install(endpoint)
        return library

    return install


def make_endpoint(**methods):
    return SimpleNamespace(parts=[], outboxes={}, device=SimpleNamespace(type="cpu"), **methods)


def test_calls_are_recorded_with_their_thread_and_time_even_if_they_raise(record):
    def fail():
        raise ValueError

    endpoint = make_endpoint(receive=lambda: 7)
    library = record(endpoint, wait=lambda: time.sleep(0.01), write=fail)
    before = time.perf_counter()
    library.wait()
    with pytest.raises(ValueError):
        library.write()
    (thread, stage, start, end, _), (other_thread, other_stage, *_) = spans.recorded
    assert (stage, other_stage, thread == other_thread) == ("wait", "write", True)
    assert before <= start <= end - 0.01 <= time.perf_counter()
    assert endpoint.receive() == 7 and {span[1] for span in spans.recorded[2:]} == {"sequence number"}


def test_page_faults_count_for_the_innermost_span(record):
    def touch(pages):
        memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1

    def outer():
        touch(3000)
        library.serialise()

    library = record(make_endpoint(), write=outer, serialise=lambda: touch(10_000))
    library.write()
    faults = {stage: count for _, stage, _, _, count in spans.recorded}
    assert 10_000 <= faults["serialise"] < 10_500 and 3000 <= faults["write"] < 3500
