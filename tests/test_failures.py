"""What a run says and leaves behind when something goes wrong in the middle of it."""

import re
import signal

import pytest
from conftest import KILOBYTES

# Says on stdout when trip 5 has ended, so that a test knows that the run is under way.
ANNOUNCE = """
def wrap_send(send):
    def announced(query):
        trip = query if isinstance(query, int) else int(query[0])  # a trainer is sent the trip's number alone
        if trip == 6:
            print("under way", flush=True)
        return send(query)

    return announced
"""
RAISE = """
def wrap_role(role_class):
    class Unlucky(role_class):
        def forward_step(self, *inputs):
            if self.name == "reference" and self.trips_received == 5:
                raise {exception}
            return super().forward_step(*inputs)

    return Unlucky
"""
# The same where forward_step says how its tensors travel, so that it must not be another one.
RAISE_IN_RECEIVE = """
def wrap_role(role_class):
    class Unlucky(role_class):
        def receive(self, inputs):
            if self.name == "reference" and self.trips_received == 5:
                raise {exception}
            super().receive(inputs)

    return Unlucky
"""
# The same where roles are plain processes: their class must be one of the module.
RAISE_IN_PROCESS = """
class Unlucky(script.QueueRole):
    def forward_step(self, *inputs):
        if self.name == "reference" and self.trips_received == 5:
            raise {exception}
        return super().forward_step(*inputs)


def wrap_role(role_class):
    return Unlucky
"""
STORE = "simulate_chat_learn_data_flow"
GRAPH = "ray_cg_simulate_chat_learn_data_flow"
RDT = "ray_rdt_simulate_chat_learn_data_flow"
TORCH = "torch_simulate_chat_learn_data_flow"
MANY = ("--warmup", "0", "--iterations", "1000000", *KILOBYTES)


@pytest.fixture
def interrupted(begin_run, write_script):
    """interrupted(module, disturb, *flags) -> what a run says that was disturbed while trips were under way."""

    def run(module, disturb, *flags):
        begun = begin_run(write_script(module, ANNOUNCE), *MANY, *flags)
        begun.wait_for_line("under way")
        disturb(begun)
        finished = begun.finish()
        assert begun.leftovers() == []
        return finished

    return run


def assert_failed_with_samples(finished, code, reason):
    """The record is there, has the trips that ended, and says on disk what the screen says."""
    assert finished.code == code, finished.stderr
    case = finished.case
    assert case["status"] == "failed"
    assert re.search(reason, case["reason"])
    assert f"error: {case['reason']}\n" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert len(case["seconds"]) >= 4
    assert case["wrong_bytes"] == 0
    assert float(finished.stdout.splitlines()[-1].split()[2]) == sum(case["seconds"])


@pytest.mark.parametrize(
    ("module", "transport"),
    [(STORE, "refs"), (STORE, "payload-queue"), (GRAPH, "zero-copy"), (GRAPH, "mapped"), (TORCH, "gloo")],
    ids=lambda value: value,
)
def test_a_role_that_is_killed_is_named(interrupted, module, transport):
    finished = interrupted(module, lambda run: run.role_process("reference").kill(), "--transport", transport)
    assert_failed_with_samples(finished, 1, r"^trip \d+: reference died$")


def test_a_role_that_is_killed_is_among_those_whom_ray_direct_transport_ends(interrupted):
    finished = interrupted(RDT, lambda run: run.role_process("reference").kill(), "--transport", "gloo")
    assert_failed_with_samples(finished, 1, r"^trip \d+: .*\breference\b.* died")


def test_a_role_that_hangs_is_named_and_given_up(interrupted):
    flags = ("--transport", "zero-copy", "--timeout", "3")
    finished = interrupted(GRAPH, lambda run: run.role_process("reference").suspend(), *flags)
    assert_failed_with_samples(finished, 1, r"^trip \d+: .*3 s.*reference does not answer$")


@pytest.mark.parametrize("transport", ["gloo", "multiprocessing"])
def test_a_process_that_hangs_is_named_and_given_up(interrupted, transport):
    """Gloo waits in a library that knows no signal; a queue in one that does."""
    flags = ("--transport", transport, "--timeout", "5")
    finished = interrupted(TORCH, lambda run: run.role_process("reference").suspend(), *flags)
    assert_failed_with_samples(finished, 1, r"^trip \d+: .*5 s.*reference does not answer")
    assert finished.case["reason"].count("does not answer") == 1


@pytest.mark.parametrize(
    ("number", "module", "transport"),
    [
        (signal.SIGINT, GRAPH, "zero-copy"),
        (signal.SIGTERM, STORE, "ref-queue"),
        (signal.SIGINT, GRAPH, "mapped"),
        (signal.SIGINT, TORCH, "gloo"),
        (signal.SIGTERM, TORCH, "multiprocessing"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_an_interrupt_ends_the_run_and_keeps_its_samples(interrupted, number, module, transport):
    finished = interrupted(module, lambda run: run.process.send_signal(number), "--transport", transport)
    assert_failed_with_samples(finished, 130, r"^interrupted after \d+ timed trips$")
    assert f"after {len(finished.case['seconds'])} timed" in finished.case["reason"]


@pytest.mark.parametrize(
    ("module", "transport", "exception", "said"),
    [
        (STORE, "refs", "OSError('no luck today')", "OSError: no luck today"),
        (GRAPH, "shm", "ValueError", "ValueError"),
        (RDT, "mapped", "OSError('no luck today')", "OSError: no luck today"),
        (TORCH, "multiprocessing", "OSError('no luck today')", "OSError: no luck today"),
    ],
    ids=["store", "graph, without a message", "direct transport", "process"],
)
def test_a_role_that_raises_is_named_with_what_it_said(run_script, write_script, module, transport, exception, said):
    source = {RDT: RAISE_IN_RECEIVE, TORCH: RAISE_IN_PROCESS}.get(module, RAISE)
    script = write_script(module, source.format(exception=exception))
    finished = run_script(script, *MANY, "--transport", transport)
    assert_failed_with_samples(finished, 1, f"^trip 6: reference raised {said}")


def test_a_role_that_cannot_start_is_named(run_script, write_script):
    source = """
def wrap_role(role_class):
    class Unlucky(role_class):
        def own_digests(self):
            raise OSError(f"no luck for {self.name}")

    return Unlucky
"""
    finished = run_script(write_script(STORE, source), *MANY, "--transport", "refs")
    assert finished.code == 1
    # Whichever comes up first.
    pattern = r"before the first trip: (policy|reference|reward) raised OSError: no luck for \1"
    assert re.fullmatch(pattern, finished.case["reason"])
    assert finished.case["seconds"] == []
