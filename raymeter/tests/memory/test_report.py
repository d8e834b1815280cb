# SPDX-License-Identifier: Apache-2.0
"""The text of `raymeter memory`."""

import made_up
from made_up import MB
from raymeter.causes.memory import find_memory
from raymeter.memory.places import ObjectLines
from raymeter.memory.processes import Sample
from raymeter.profile.events import Call, Received, Reference, Task
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.report import memory

STEPS = Steps("the program", [(0.0, 10.0)])


def render(program: Program, samples: list[Sample] | None = None) -> str:
    samples = samples or []
    return "\n".join(memory.render(program, samples, find_memory(program, STEPS, samples)))


def kept_views() -> Program:
    made = made_up.recording()
    made_up.add_views(made, 25, 20 * MB, read_at=1.0, ends=1.1)
    return made_up.with_store(made, 600 * MB)


def test_the_first_sentence_is_the_answer_with_its_line() -> None:
    first = " ".join(render(kept_views()).splitlines()[:2])
    assert first == (
        "25 objects (477 MiB) stay in the store, because Replay.add keeps views of them (replay.py:31)."
    )


def test_holders_have_the_line_that_has_read_their_objects() -> None:
    text = render(kept_views())
    assert "477 MiB  25 objects, worker 2: a value that still uses its bytes, replay.py:31" in (
        " ".join(text.split()).replace("477 MiB 25", "477 MiB  25")
    )


def test_what_a_holder_is_stays_beside_its_bytes() -> None:
    lines = render(kept_views()).splitlines()
    first = next(line for line in lines if "25 objects, worker 2" in line)
    following = lines[lines.index(first) + 1]
    assert len(following) - len(following.lstrip()) == first.index("25 objects")


def test_lines_have_at_most_80_characters() -> None:
    samples = [Sample(1.0, 1, "python", 300 * MB, 100 * MB)]
    assert max(map(len, render(kept_views(), samples).splitlines())) <= 80


def test_unknown_things_are_called_unknown() -> None:
    made = made_up.recording()
    text = render(made_up.join(made))
    assert "Memory is not your problem" in text
    assert "Object store: unknown" in text
    assert "Who keeps objects: unknown" in text
    assert "Memory of the processes: unknown" in text


def test_a_profile_without_samples_is_no_all_clear_and_says_what_samples_it() -> None:
    program = made_up.with_store(made_up.recording(), 200 * MB)
    program.recording.processes[0].settings.clear()  # as `raymeter` has run it
    text = " ".join(render(program).split())
    assert "not your problem" not in text and "smaps_rollup" not in text
    assert text.startswith("It is not known whether memory is a problem")
    assert "`raymeter memory SCRIPT` runs the program" in text
    assert (
        "Object store: at most 191 MiB of 191 MiB (100 %) in 2 samples; nothing was spilled."
        in text
    )
    assert "Who keeps objects: not sampled. Memory of the processes: not sampled." in text


def test_spilled_bytes_are_said_with_their_time() -> None:
    program = made_up.with_store(made_up.recording(), 200 * MB, spilled=100 * MB, restored=50 * MB)
    assert "95.4 MiB spilled in 0 ms, 47.7 MiB restored in 0 ms" in " ".join(
        render(program).split()
    )


def test_samples_that_miss_a_full_store_do_not_contradict_what_was_spilled() -> None:
    program = made_up.with_store(made_up.recording(), 600 * MB, spilled=546 * MB)
    program.recording.stores[-1].used = 99 * MB
    text = " ".join(render(program).split())
    assert "at most 94.4 MiB of 572 MiB (16 %) in 2 samples. They show no full store, but" in text
    assert "Ray's own sums say 521 MiB spilled in 0 ms, 0 B restored" in text
    program.recording.stores[-1].used = 500 * MB
    text = " ".join(render(program).split())
    assert "at most 477 MiB of 572 MiB (83 %) in 2 samples; 521 MiB spilled" in text


def test_objects_on_disk_are_named_if_more_were_kept_than_the_store_had() -> None:
    program = kept_views()
    assert "those on disk count, too" not in render(program)
    program.recording.stores[-1].used = 99 * MB
    program.recording.stores[-1].spilled = 900 * MB
    text = " ".join(render(program).split())
    assert "6.0 s after the start (those on disk count, too): 477 MiB 25 objects" in text


def test_objects_in_files_are_named_if_the_store_is_filled_to_more_than_it_has() -> None:
    program = made_up.with_store(made_up.recording(), 200 * MB)
    program.recording.stores[-1].fallback = 100 * MB
    text = " ".join(render(program).split())
    assert "of which 95.4 MiB were in files, because it was full; nothing was spilled." in text


def test_the_memory_of_all_processes_is_their_sum_at_one_time() -> None:
    samples = [
        Sample(1.0, 1, "python", 300 * 2**20, 100 * 2**20, made_up.DRIVER),
        Sample(1.0, 2, "ray::Replay", 200 * 2**20, 50 * 2**20),
    ]
    text = render(kept_views(), samples)
    assert "at most 500 MiB (PSS: what they share counts once)" in text
    assert "100 MiB  driver (1)" in text
    assert "50 MiB  ray::Replay (2)" in text


def test_a_large_process_has_its_first_its_largest_and_its_last_value() -> None:
    sizes = [10, 300, 200]
    samples = [
        Sample(float(time), 1, "python", 0, size * 2**20, made_up.DRIVER)
        for time, size in enumerate(sizes)
    ]
    samples.append(Sample(1.0, 2, "ray::Replay", 0, 50 * 2**20, made_up.WORKER))
    text = " ".join(render(kept_views(), samples).split())
    assert (
        "first largest last process 10 MiB 300 MiB 200 MiB driver (1) "
        "50 MiB 50 MiB 50 MiB ray::Replay (2)"
    ) in text


def test_the_line_of_an_object_is_known_by_its_reader_its_put_its_task_or_its_size() -> None:
    made = made_up.recording()
    made_up.add_views(made, 1, 20 * MB, read_at=1.0, ends=1.1)
    made_up.add_argument(made, 5, 0.0, 2.0, 77, "train.py:12")
    made.calls.append(Call("put", made_up.DRIVER, 6, line="train.py:3", object="put"))
    lines = ObjectLines(made_up.join(made))
    viewed = made.references[0]
    result = made_up.OBJECT.format(5, 1)
    assert lines.line_of(viewed) == "replay.py:31"
    assert lines.line_of(Reference(object="put")) == "train.py:3"
    assert lines.line_of(Reference(object=result)) == "train.py:12"
    assert lines.line_of(Reference(pid=1, object="other", bytes=100)) == "train.py:12"
    assert lines.line_of(Reference(pid=1, object="other", bytes=76)) == ""
    assert lines.line_of(Reference(pid=1, object="other", bytes=10_000)) == ""
    assert lines.line_of(Reference(object="put", line="ray.py:1")) == "ray.py:1"


def views_of_all_ages() -> Program:
    """Return a program with 3 values that were kept for long, 8 that were just read, and 1 that a task reads now."""
    made = made_up.recording()
    made_up.add_views(made, 12, 20 * MB, read_at=1.0, ends=1.1)
    made.tasks.append(Task(made_up.TASK.format(901), "Replay.add", "ACTOR_TASK", finished=5.9))
    made.tasks.append(Task(made_up.TASK.format(902), "Replay.add", "ACTOR_TASK"))
    for received in made.received[3:11]:
        received.by = made_up.TASK.format(901)
    made.received[11].by = made_up.TASK.format(902)
    return made_up.with_store(made, 600 * MB)


def test_the_title_counts_the_same_objects_as_the_list_of_holders() -> None:
    text = " ".join(render(views_of_all_ages()).split())
    assert text.startswith("11 objects (210 MiB) stay in the store, because Replay.add keeps views")
    assert "210 MiB 11 objects, worker 2: a value that still uses its bytes, replay.py:31" in text
    assert "19.1 MiB 1 object, worker 2: a value that a running task reads, replay.py:31" in text


def test_values_that_were_just_read_are_no_habit_of_keeping_them() -> None:
    program = views_of_all_ages()
    for received in program.recording.received[:3]:
        received.by = made_up.TASK.format(901)
    assert "Memory is not your problem" in render(program)


def test_an_argument_whose_reader_has_no_line_has_the_line_that_submits_its_task() -> None:
    made = made_up.recording()
    made_up.add_argument(made, 5, 0.0, 2.0, 20 * MB, "train.py:12")
    name = made_up.OBJECT.format(6, 1)
    made.received.append(Received(made_up.WORKER, object=name, by=made_up.TASK.format(5)))
    reference = Reference(1.0, 2, name, 20 * MB, "PINNED_IN_MEMORY")
    assert ObjectLines(made_up.join(made)).line_of(reference) == "train.py:12"
