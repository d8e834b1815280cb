# SPDX-License-Identifier: Apache-2.0
"""What raymeter says about memory, for recordings that no program has made."""

import made_up
import pytest
from made_up import MB
from raymeter.causes import memory
from raymeter.memory.growth import find_growth
from raymeter.memory.kept_references import find_kept_references
from raymeter.memory.lives import find_lives, find_peak
from raymeter.memory.processes import Sample
from raymeter.profile.events import Call, Process, Reference
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.simulate.predict import predict

STEPS = Steps("the program", [(0.0, 10.0)])
LOOP = Steps("a loop", [(float(start), start + 1.0) for start in range(20)], line="train.py:5")


def find(program: Program, samples: list[Sample] | None = None, steps: Steps = STEPS) -> list:
    return memory.find_memory(program, steps, samples or [])


def backlog(count: int, spilled: int = 0) -> Program:
    made = made_up.recording()
    for number in range(count):
        end = 2.0 + number
        made_up.add_argument(made, number, 0.01 * number, end, 50 * MB, "train.py:12")
    return made_up.with_store(made, 600 * MB, spilled)


def test_arguments_that_wait_until_the_store_is_full_are_a_backlog() -> None:
    [finding] = find(backlog(30, spilled=900 * MB))
    assert (finding.cause, finding.line) == (memory.BACKLOG, "train.py:12")
    assert finding.title.startswith("30 arguments of 47.7 MiB wait in a store of 572 MiB")
    assert "858 MiB were spilled" in finding.title
    assert "Keep at most 6 in flight" in finding.change


def test_arguments_that_were_left_out_are_in_the_backlog() -> None:
    made = made_up.recording()
    for number in range(0, 30, 5):
        made_up.add_argument(made, number, 0.01 * number, 2.0 + number, 50 * MB, "train.py:12")
        made.sent[-1].left_out = 4
    [finding] = find(made_up.with_store(made, 600 * MB, 900 * MB))
    assert finding.title.startswith("26 arguments of 47.7 MiB wait in a store of 572 MiB")


def test_messages_that_were_left_out_need_no_room_at_the_same_time_if_they_are_short() -> None:
    made = made_up.recording()
    for number in range(10):
        made_up.add_argument(made, number, number, number + 0.02, 50 * MB, "train.py:12")
        made.sent[-1].left_out = 19
    assert find_peak(find_lives(made_up.with_store(made, 600 * MB))).bytes == 50 * MB


def test_arguments_that_fill_a_small_part_of_the_store_are_no_backlog() -> None:
    assert find(backlog(5)) == []


def test_a_backlog_is_no_finding_of_a_normal_profile_if_nothing_was_spilled() -> None:
    assert memory.find(backlog(30), STEPS) == []
    assert memory.find(backlog(30, spilled=900 * MB), STEPS)[0].cause == memory.BACKLOG


def test_spilling_names_the_line_whose_results_fill_the_store() -> None:
    made = made_up.recording()
    for number in range(6):
        made_up.add_result(made, number, 1.0 + number, 9.0, 40 * MB)
    program = made_up.with_store(made, 200 * MB, spilled=120 * MB, restored=80 * MB)
    [finding] = memory.find(program, STEPS)
    assert (finding.cause, finding.line) == (memory.SPILLED, "train.py:7")
    assert "114 MiB were spilled to disk and 76.3 MiB read back" in finding.title
    assert "object_store_memory=312000000" in finding.change


def test_spilling_names_the_line_of_the_steps_although_more_was_stored_before() -> None:
    made = made_up.recording()
    for number in range(9):
        made_up.add_result(made, number, 0.1 * number, 9.0, 40 * MB)
    made_up.add_argument(made, 20, 2.5, 8.0, 40 * MB, "train.py:33")
    program = made_up.with_store(made, 200 * MB, spilled=120 * MB)
    steps = Steps("a loop", [(2.0, 3.0), (3.0, 4.0)], line="train.py:30")
    [finding] = memory.find(program, steps)
    assert (finding.cause, finding.line) == (memory.SPILLED, "train.py:33")


def test_a_store_with_room_is_no_finding() -> None:
    assert memory.find(made_up.with_store(made_up.recording(), 200 * MB), STEPS) == []


def test_values_in_use_after_their_task_are_kept_views() -> None:
    made = made_up.recording()
    made_up.add_views(made, 25, 20 * MB, read_at=1.0, ends=1.1)
    [finding] = find(made_up.with_store(made, 600 * MB))
    assert (finding.cause, finding.line) == (memory.VIEWS, "replay.py:31")
    assert (
        finding.title
        == "25 objects (477 MiB) stay in the store, because Replay.add keeps views of them"
    )


def test_items_that_wait_in_a_queue_are_no_views_that_someone_could_copy() -> None:
    made = made_up.recording()
    made_up.add_views(made, 25, 20 * MB, read_at=1.0, ends=1.1)
    for received in made.received:
        received.by_name = "_QueueActor.put"
        received.line = "/venv/lib/python3.11/site-packages/ray/_private/function_manager.py:732"
    call = Call("call", made_up.DRIVER, 900, 0.9, line="train.py:14", task=made_up.TASK.format(900))
    made.calls.append(call)
    [finding] = find(made_up.with_store(made, 600 * MB))
    assert (finding.cause, finding.line) == (memory.AHEAD, "train.py:14")
    assert finding.title.startswith("25 items (477 MiB) wait in a queue")
    assert "maxsize" in finding.change


def kept_slices(kept: int, per_process: int = 25, fallback: int = 300 * MB) -> Program:
    """Return steps of 1 s, each of which stores a result in 0.5 s, while Replay.add keeps views of earlier ones."""
    made = made_up.recording()
    made_up.add_views(made, kept, 20 * MB, read_at=1.0, ends=1.1)
    for number, reference in enumerate(made.references):
        reference.pid = 2 + number // per_process
    for process in range(3, 2 + kept):
        made.processes.append(Process(process=f"host-{process}", pid=process, role="worker"))
    for received, reference in zip(made.received, made.references, strict=True):
        received.process = f"host-{reference.pid}"
    for step in range(10):
        made_up.add_stored_result(made, step, start=float(step), store=0.5, size=20 * MB)
    program = made_up.with_store(made, 600 * MB)
    made.stores[1].fallback = fallback
    made.stores[1].copy_rate = 1e9
    return program


TEN_STEPS = Steps("a loop", [(float(n), n + 1.0) for n in range(10)], line="train.py:5")


def test_kept_views_that_fill_the_store_are_a_cause_in_a_normal_profile() -> None:
    [finding] = memory.find(kept_slices(25), TEN_STEPS)
    assert (finding.cause, finding.line) == (memory.VIEWS, "replay.py:31")
    copy = 0.001 + 1.5 * 0.02  # of 20 MB at the measured rate
    assert finding.seconds == pytest.approx(0.5 - copy, rel=0.01)


@pytest.mark.parametrize(
    "values",
    [{"fallback": 0}, {"per_process": 1}, {"kept": 5}],
    ids=lambda values: next(iter(values)),
)
def test_views_that_do_not_fill_the_store_or_are_kept_once_are_no_cause(values: dict) -> None:
    assert memory.find(kept_slices(**{"kept": 25} | values), TEN_STEPS) == []


def test_values_in_use_during_their_task_are_not_kept() -> None:
    made = made_up.recording()
    made_up.add_views(made, 25, 20 * MB, read_at=1.0, ends=None)
    assert find(made_up.with_store(made, 600 * MB)) == []


def producer(read_at: float) -> Program:
    made = made_up.recording()
    for number in range(20):
        made_up.add_result(made, number, 0.1 * number, max(read_at, 0.1 * number) + 0.1, 20 * MB)
    return made_up.with_store(made, 600 * MB)


def test_results_that_wait_for_their_reader_are_items_ahead() -> None:
    [finding] = find(producer(read_at=5.0))
    assert (finding.cause, finding.line) == (memory.AHEAD, "train.py:7")
    assert "20 items ahead of its reader" in finding.title


def test_results_that_are_read_at_once_are_not_ahead() -> None:
    assert find(producer(read_at=0.0)) == []


def grow(per_second: int, pid: int = 1) -> list[Sample]:
    return [
        Sample(
            float(second), pid, "python", 0, 100 * MB + per_second * second, process=f"host-{pid}"
        )
        for second in range(20)
    ]


def test_a_driver_that_grows_names_the_line_with_as_many_bytes() -> None:
    made = made_up.recording()
    for number in range(20):
        made_up.add_result(made, number, number + 0.1, number + 0.5, 30 * MB)
    [finding] = find(made_up.with_store(made, 6_000 * MB), grow(30 * MB), LOOP)
    assert (finding.cause, finding.line) == (memory.GROWTH, "train.py:9")
    assert finding.title.startswith("the driver grows by 28.6 MiB per step")


def kept_references(counts: list[int]) -> Program:
    """Return a program whose driver refers to so many results of 30 MB in the samples, one per second."""
    made = made_up.recording()
    for number in range(max(counts)):
        made_up.add_result(made, number, number + 0.1, number + 0.5, 30 * MB)
    for second, count in enumerate(counts):
        for number in range(count):
            name = made_up.OBJECT.format(number, 1)
            reference = Reference(second + 0.5, 1, name, 30 * MB, "LOCAL_REFERENCE")
            made.references.append(reference)
    return made_up.with_store(made, 6_000 * MB)


def test_references_of_which_there_are_more_in_each_step_keep_their_objects() -> None:
    [finding] = find(kept_references(list(range(1, 19))), steps=LOOP)
    assert (finding.cause, finding.line) == (memory.REFERENCES, "train.py:7")
    assert "the driver keeps references to 18 objects (515 MiB), and 28.6 MiB" in finding.title


@pytest.mark.parametrize("counts", [[18] * 18, [1, 18] * 9, [1, 2, 3] * 6])
def test_references_that_are_dropped_again_are_not_said_to_grow(counts: list[int]) -> None:
    assert find(kept_references(counts), steps=LOOP) == []


def test_a_program_without_steps_may_keep_the_results_of_all_its_tasks() -> None:
    assert find(kept_references(list(range(1, 19)))) == []


def test_four_samples_of_private_memory_show_growth() -> None:
    samples = grow(60 * MB)[:4]
    assert len(find_growth(samples, 0.0, 20.0)) == 1
    assert find_growth(samples[:3], 0.0, 20.0) == []


def test_a_cache_that_fills_is_no_growth_because_it_has_three_samples() -> None:
    samples = [
        Sample(float(second), 1, "python", 0, size * MB, made_up.DRIVER)
        for second, size in enumerate((100, 175, 200))
    ]
    assert find_growth(samples, 0.0, 20.0) == []


def test_three_samples_of_references_show_growth() -> None:
    [growing] = find_kept_references(kept_references([1, 2, 3]), 0.0, 20.0)
    assert growing.objects == 3
    assert find_kept_references(kept_references([1, 3]), 0.0, 20.0) == []


def test_a_process_that_is_not_of_the_users_code_may_grow() -> None:
    program = made_up.with_store(made_up.recording(), 600 * MB)
    assert find(program, grow(30 * MB, pid=77), LOOP) == []


def test_memory_that_goes_up_and_down_does_not_grow() -> None:
    samples = [
        Sample(float(second), 1, "python", 0, (second % 2) * 500 * MB) for second in range(20)
    ]
    assert find_growth(samples, 0.0, 20.0) == []
    assert find_growth(grow(0), 0.0, 20.0) == []


def test_a_start_that_takes_memory_before_the_steps_is_no_growth() -> None:
    start = [
        Sample(-second, 1, "python", 0, 900 * MB - 40 * MB * second, made_up.DRIVER)
        for second in range(20)
    ]
    program = made_up.with_store(made_up.recording(), 600 * MB)
    assert find(program, start + grow(0), LOOP) == []


def test_growth_counts_although_the_start_takes_most_of_the_time() -> None:
    start = [
        Sample(-float(second), 1, "python", 0, 100 * MB, made_up.DRIVER) for second in range(1, 200)
    ]
    program = made_up.with_store(made_up.recording(), 600 * MB)
    assert find(program, start + grow(30 * MB), LOOP)[0].cause == memory.GROWTH


def test_the_peak_has_the_messages_that_were_needed_at_the_same_time() -> None:
    made = made_up.recording()
    made_up.add_argument(made, 1, 0.0, 2.0, 10, "a.py:1")
    made_up.add_argument(made, 2, 1.0, 3.0, 10, "a.py:1")
    made_up.add_argument(made, 3, 2.5, 4.0, 5, "a.py:1")
    peak = find_peak(find_lives(made_up.with_store(made, 1)))
    assert (peak.bytes, peak.time) == (20, 1.0)


def restored_arguments(restore_seconds: float) -> Program:
    """Return 10 steps of 1 s, in each of which a task of 0.2 s begins 0.5 s after its argument was ready."""
    made = made_up.recording()
    for step in range(10):
        made_up.add_step(made, step, wait=0.5, run=0.2)
    program = made_up.with_store(made, 200 * MB, spilled=100 * MB, restored=100 * MB)
    made.stores[1].restore_seconds = restore_seconds
    return program


def test_the_wait_for_arguments_on_disk_is_what_a_larger_store_saves() -> None:
    program = restored_arguments(restore_seconds=5.0)
    steps = Steps("a loop", [(float(n), n + 1.0) for n in range(10)], made_up.DRIVER)
    findings = memory.find(program, steps)
    assert findings[0].cause == memory.SPILLED
    assert findings[0].seconds == pytest.approx(0.5, abs=0.01)
    [advice] = predict(program, steps, findings)
    assert advice.prediction.saved_seconds == pytest.approx(0.5, abs=0.05)


def test_no_more_is_saved_than_ray_has_restored() -> None:
    steps = Steps("a loop", [(float(n), n + 1.0) for n in range(10)], made_up.DRIVER)
    [finding] = memory.find(restored_arguments(restore_seconds=1.0), steps)
    assert finding.seconds == pytest.approx(0.1)


def test_a_backlog_also_slows_the_code_between_its_calls() -> None:
    made = made_up.recording()
    for number in range(40):
        late = (
            0.05 if number % 4 == 0 else 0.0
        )  # the user's code before the call takes 130 ms, not 80
        start = 0.1 * number + late
        made_up.add_argument(made, number, start, start + 3.0, 50 * MB, "train.py:12")
        made.calls[-1].seconds = 0.02
    program = made_up.with_store(made, 600 * MB, spilled=900 * MB)
    made.stores[1].spill_seconds = 3.0
    steps = Steps("a loop", [(float(n), n + 1.0) for n in range(4)], made_up.DRIVER)
    saved = [
        saving for saving in memory.find(program, steps)[0].savings if saving.part == "execute"
    ]
    assert len(saved) >= 8
    assert all(0.049 < saving.seconds < 0.101 for saving in saved)
    made.stores[1].spill_seconds = 0.01
    limited = memory.find(program, steps)[0].savings
    assert sum(saving.seconds for saving in limited if saving.part == "execute") < 0.011


def backlog_of(lines: list[str]) -> list:
    """Return the findings for 40 arguments that are sent from these lines in turn, and wait in a store that spills."""
    made = made_up.recording()
    for number in range(40):
        start = 0.1 * number
        line = lines[number % len(lines)]
        made_up.add_argument(made, number, start, start + 9.0, 50 * MB, line)
        made.calls[-1].seconds = 0.09 if number % 5 == 0 else 0.01
    program = made_up.with_store(made, 600 * MB, spilled=900 * MB)
    steps = Steps("a loop", [(float(n), n + 1.0) for n in range(4)], made_up.DRIVER)
    return memory.find(program, steps)


def test_lines_that_fill_the_store_together_share_what_they_save() -> None:
    [alone] = backlog_of(["train.py:12"])
    assert alone.seconds > 0.1
    more, fewer = backlog_of(["train.py:12", "train.py:12", "train.py:12", "train.py:30"])
    assert (more.line, fewer.line) == ("train.py:12", "train.py:30")
    assert more.seconds == pytest.approx(3 * fewer.seconds, rel=0.01)
    assert more.seconds + fewer.seconds == pytest.approx(alone.seconds, rel=0.2)


def test_a_task_also_waits_for_an_argument_of_its_own_that_went_to_disk() -> None:
    program = restored_arguments(restore_seconds=5.0)
    for call in program.submissions.values():
        call.references = []
        call.messages = [call.number]
    steps = Steps("a loop", [(float(n), n + 1.0) for n in range(10)], made_up.DRIVER)
    [finding] = memory.find(program, steps)
    assert finding.seconds == pytest.approx(0.5, abs=0.01)


def slow_tasks(spill_seconds: float) -> list[float]:
    """Return what a backlog saves of the functions of tasks, a third of which take 150 ms in place of 50."""
    made = made_up.recording()
    for number in range(40):
        start = 0.1 * number
        made_up.add_argument(made, number, start, start + 3.0, 50 * MB, "train.py:12")
        slow = 0.1 if number % 3 == 0 else 0.0
        task = made.tasks[-1]
        task.pid = 2
        task.execute = start + 0.02, start + 0.07 + slow
    program = made_up.with_store(made, 600 * MB, spilled=900 * MB)
    made.stores[1].spill_seconds = spill_seconds
    steps = Steps("a loop", [(float(n), n + 1.0) for n in range(4)], made_up.DRIVER)
    [finding] = memory.find(program, steps)
    return [
        saving.seconds
        for saving in finding.savings
        if saving.part == "execute" and saving.process == made_up.WORKER
    ]


def test_a_backlog_also_slows_the_functions_of_tasks() -> None:
    saved = slow_tasks(spill_seconds=9.0)
    assert len(saved) == 14
    assert saved == pytest.approx([0.1] * 14)
    assert sum(slow_tasks(spill_seconds=0.1)) <= 0.1
