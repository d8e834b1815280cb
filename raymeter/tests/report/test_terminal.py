# SPDX-License-Identifier: Apache-2.0
"""The text of a profile: at most 40 lines, the answer first, and nothing that its reader does not need."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from made_programs import (
    LINE,
    make_finding,
    make_loop,
    make_loop_profile,
    make_profile,
    make_random_profile,
    make_steps,
)
from raymeter.findings import Advice, Prediction
from raymeter.profile.events import RecorderCost, Run
from raymeter.profile.steps import Steps
from raymeter.report import html, summary, terminal
from raymeter.report.words import name_place, relative

LONG_FOLDER = "/made/a/b/" + "very-long-name-" * 8
WORDS = ("the", "same", "content", "is", "sent", "again", "to", "readers", "of", "parameters")


def join_words(text: str) -> str:
    return " ".join(text.split())


def test_the_first_sentences_are_the_answer():
    text = terminal.render(make_loop_profile(make_finding(), saved=0.03))
    assert text.startswith("Moving data is ")
    assert re.match(r"Moving data is (up to )?[\d.]+ % of a step\. The largest cause: the same content is sent "
                    r"again, line \S+train\.py:28: 30 ms of 100\.", join_words(text))  # fmt: skip


@pytest.mark.parametrize("saved", [0.0, 0.004])
def test_below_5_percent_it_says_not_your_problem_and_nothing_else(saved):
    findings = [make_finding()] if saved else []
    text = terminal.render(make_loop_profile(*findings, saved=saved, send=0.002))
    sentences = join_words(text).split(". ")
    assert sentences[0].endswith("not your problem")
    assert sentences[1].startswith("Recording took ")
    assert len(sentences) == 3  # the last one is the folder
    assert "saves" not in text and "ms/step" not in text


def test_the_share_of_recording_is_that_of_all_processes_and_its_end_is_named_apart():
    profile = make_loop_profile()
    driver, worker, *_ = profile.program.recording.processes
    driver.recorder.own_seconds, driver.recorder.cpu_seconds = 0.1, 4.0
    worker.recorder.own_seconds, worker.recorder.cpu_seconds = 0.2, 6.0
    text = join_words(terminal.render(profile))
    assert "Recording took 3 % of the CPU time. Profile: " in text
    profile.program.recording.processes[0].recorder.end_seconds = 0.4
    text = join_words(terminal.render(profile))
    assert " % of the CPU time, and 400 ms after its end. Profile: " in text


def test_without_recorded_cpu_seconds_the_share_of_recording_is_unknown():
    profile = make_loop_profile()
    for process in profile.program.recording.processes:
        process.recorder.own_seconds, process.recorder.cpu_seconds = 1.8, 0.0
    unknown = "Recording took an unknown share of the CPU time (not recorded)."
    assert unknown in join_words(terminal.render(profile))
    assert unknown in html.render(profile)
    assert summary.summarise(profile)["recorder_share"] is None
    profile.program.recording.processes[0].recorder.cpu_seconds = 36.0
    assert "Recording took 5 % of the CPU time." in join_words(terminal.render(profile))


def test_a_step_of_data_without_a_known_change_is_no_all_clear():
    text = join_words(terminal.render(make_loop_profile(send=0.06)))
    assert "not your problem" not in text
    assert "raymeter knows no change that would make this step 5 % shorter" in text
    place = relative(LINE)
    assert (
        f"Most of it: 1 MiB, driver -> Trainer.train, line {place}: 66 ms of 100. raymeter" in text
    )
    assert "saves" not in text


def test_a_cause_that_moves_no_data_is_not_called_moving_data():
    text = join_words(terminal.render(make_loop_profile(make_finding(), saved=0.03, send=0.002)))
    assert text.startswith("Moving data itself is")
    assert "The largest cause: " in text


@pytest.mark.parametrize("kind", ["predicted", "measured", "upper limit", "at least"])
def test_each_piece_of_advice_begins_with_its_number_and_its_gain(kind):
    profile = make_loop_profile(make_finding(), make_finding(line="/made/b.py:3"))
    for number, advice in enumerate(profile.advice):
        profile.advice[number] = replace(advice, prediction=replace(
            advice.prediction, is_measured=kind == "measured", is_upper_limit=kind == "upper limit",
            is_least=kind == "at least",
        ))  # fmt: skip
    lines = terminal.render(profile, 120).splitlines()
    gains = [line for line in lines if re.match(r"\d\. ", line)]
    assert gains[0] == f"1. saves 20 ms per step ({kind}): 100 ms -> 80 ms"
    assert gains[1].startswith(f"2. saves 20 ms per step ({kind}): 80 ms -> 60 ms")
    limit = {"upper limit": "up to ", "at least": "at least "}.get(kind, "")
    assert f": {limit}20 ms of 100." in " ".join(lines)


def make_wild_profile(seed: int):
    """Return a profile with long texts, paths and names, and as much of all as there can be."""
    chooser = random.Random(seed)

    def words(count: int) -> str:
        return " ".join(chooser.choices(WORDS, k=count))

    findings = []
    for number in range(chooser.randint(0, 5)):
        finding = make_finding(
            cause=words(chooser.choice((2, 20))), title=words(chooser.choice((5, 300))),
            change=words(chooser.choice((5, 300))), price=words(chooser.choice((0, 100))),
            line=f"{LONG_FOLDER}{number}.py:{number}", other_lines=[f"{LONG_FOLDER}o.py:{n}" for n in range(9)],
        )  # fmt: skip
        findings.append(finding)
    profile = make_random_profile(seed)
    steps = profile.steps
    line = f"{LONG_FOLDER}loop.py:1"
    profile.steps = Steps(f"a pass of the loop at {line}", steps.times, line=line, skipped=seed % 3)
    for message in profile.program.messages:
        message.sent.seconds = 0.2
        if message.call:
            message.call.line = f"{LONG_FOLDER}message.py:{seed}"
    before = steps.seconds
    for finding in findings:
        profile.advice.append(Advice(finding, Prediction(before, 0.8 * before)))
        before *= 0.8
    return profile


@pytest.mark.parametrize("width", [80, 100, 120])
def test_any_profile_has_at_most_40_lines_that_are_broken_between_words(width):
    for seed in range(60):
        profile = make_wild_profile(seed)
        lines = terminal.render(profile, width).splitlines()
        assert len(lines) <= 40, seed
        for line in lines:
            assert len(line) <= width or " " not in line.strip(), (seed, line)


def test_a_place_in_the_code_is_never_cut():
    seen = 0
    for seed in range(60):
        profile = make_wild_profile(seed)
        lines = [profile.steps.line, *(group.line for group in profile.groups)]
        for advice in profile.advice:
            lines += [advice.finding.line, *advice.finding.other_lines]
        places = {relative(line) for line in lines if line}
        for word in re.findall(r"\S*\.py\S*", terminal.render(profile)):
            assert word.strip("(),.:") in places, seed
            seen += 1
    assert seen > 100


def test_a_price_is_never_cut_and_is_in_the_summary():
    seen = 0
    for seed in range(60):
        profile = make_wild_profile(seed)
        text = join_words(terminal.render(profile))
        advised = summary.summarise(profile)["advice"]
        for number, advice in enumerate(profile.advice, 1):
            price = advice.finding.price
            assert advised[number - 1]["price"] == price
            if price and f" {number}. saves " in text:
                assert f"Price: {price} " in text, seed
                seen += 1
    assert seen > 20


def test_the_other_lines_of_an_advice_are_not_cut():
    place = f"{LONG_FOLDER}other.py:7"
    text = terminal.render(make_loop_profile(make_finding(other_lines=[place])))
    assert f"{relative(place)}\n" in text


def test_a_cause_without_a_line_names_none():
    text = terminal.render(make_loop_profile(make_finding(line="")))
    assert "The largest cause: the same content is sent again: 20 ms of 100." in join_words(text)
    assert not any(line.isspace() for line in text.splitlines())


def test_a_second_advice_says_that_it_comes_on_top():
    text = terminal.render(make_loop_profile(make_finding(), make_finding()), 120)
    assert "80 ms -> 60 ms, on top of the advice above" in text


def test_it_says_what_a_step_is_and_which_ones_do_not_count():
    steps = replace(make_steps(), skipped=2)
    text = join_words(terminal.render(make_profile(make_loop(), steps, make_finding())))
    assert f"A step is a pass of the loop at {relative(LINE)}: 100 ms, the median of 6" in text
    assert "without the first 2, in which workers start" in text


def test_a_program_without_a_loop_is_one_step():
    steps = Steps("the program", [(1.0, 1.6)])
    text = join_words(terminal.render(make_profile(make_loop(), steps, make_finding(), saved=0.2)))
    assert "No loop of steps was found, so the whole program is one step: 600 ms." in text


def test_it_says_if_the_driver_was_killed_or_calls_were_not_timed():
    profile = make_loop_profile(make_finding(), has_tasks=False)
    profile.program.recording.processes[0].recorder.period = 8
    text = join_words(terminal.render(profile))
    assert "was the driver killed?" in text
    assert "counted all short calls, and timed one in 8." in text
    profile.program.recording.processes[0].recorder.error = "AttributeError"
    failed = join_words(terminal.render(profile))
    assert "It has no times of tasks, so waiting is not explained. Recording ended by" in failed
    complete = join_words(terminal.render(make_loop_profile(make_finding())))
    assert "killed" not in complete and "short calls" not in complete


@pytest.mark.parametrize(
    ("last_line", "seconds", "has_ended", "is_said"),
    [
        (1.32, 0.04, False, True),
        (1.32, 0.04, True, False),
        (9.0, 0.04, False, False),  # the worker has written a line after its last task
        (1.32, 0.001, False, False),  # a task that is so short has no line
    ],
)
def test_it_says_if_the_last_lines_of_a_worker_are_missing(last_line, seconds, has_ended, is_said):
    profile = make_loop_profile()
    recording = profile.program.recording
    [_, worker] = recording.processes
    worker.recorder = RecorderCost(time=last_line, has_ended=has_ended)
    for task in recording.tasks:
        task.execute = (task.running, task.running + seconds)
    text = join_words(terminal.render(profile))
    said = "calls of 1 worker are missing: Ray ended it at once, or recording ended by an error."
    assert (said in text) == is_said


def test_a_worker_that_has_written_all_its_runs_is_not_cut():
    profile = make_loop_profile()
    recording = profile.program.recording
    [_, worker] = recording.processes
    worker.recorder = RecorderCost(time=0.5, has_ended=False)
    recording.runs = [Run(worker.process, by=task.task) for task in recording.tasks]
    assert "missing" not in terminal.render(profile)


def test_a_program_that_was_killed_gets_no_all_clear():
    profile = make_loop_profile(send=0.002)
    profile.program.recording.processes[0].recorder.has_ended = False
    text = join_words(terminal.render(profile))
    assert "not your problem" not in text and "no all-clear: the program was killed" in text
    assert "its last calls and the times of tasks are missing" in text
    assert summary.summarise(profile)["is_no_problem"] is False
    profile.program.recording.has_exited = True
    text = join_words(terminal.render(profile))
    assert "no all-clear: recording ended before the program did, as on a full disk, or" in text
    assert "the program was killed" not in text


@pytest.mark.parametrize("number", [0, 1])
def test_a_program_whose_recording_ended_by_an_error_gets_no_all_clear(number):
    profile = make_loop_profile(send=0.002)
    process = profile.program.recording.processes[number]
    process.recorder = replace(process.recorder or RecorderCost(), error="TypeError")
    text = join_words(terminal.render(profile))
    assert "not your problem" not in text
    assert "no all-clear: recording ended by an error" in text
    assert f"Recording ended by an error (TypeError) in {process.process}: what it did" in text
    made = summary.summarise(profile)
    assert made["is_no_problem"] is False
    assert made["errors"] == {process.process: "TypeError"}


def test_a_program_with_a_task_that_was_not_recorded_gets_no_all_clear():
    profile = make_loop_profile(send=0.002)
    recording = profile.program.recording
    recording.tasks[0].pid = 4711
    text = join_words(terminal.render(profile))
    assert "not your problem" not in text
    assert "no all-clear: not all processes were recorded" in text
    assert "ran in processes that were not recorded" in text
    made = summary.summarise(profile)
    assert made["is_no_problem"] is False
    assert made["unrecorded_tasks"] == 1


def test_of_many_processes_with_errors_a_few_are_named():
    profile = make_loop_profile(send=0.002)
    recording = profile.program.recording
    [driver, _] = recording.processes
    cost = replace(driver.recorder, error="ValueError")
    for number in range(5):
        recording.processes.append(replace(driver, process=f"node-{number + 50}", recorder=cost))
    text = join_words(terminal.render(profile))
    assert "(ValueError) in node-50, node-51, node-52, 2 more" in text


def test_of_a_program_that_was_killed_before_its_first_step_nothing_is_known():
    steps = Steps("the program", [(1.0, 1.6)])
    profile = make_profile(make_loop(send=0.0001), steps)
    profile.program.recording.processes[0].recorder = None
    text = join_words(terminal.render(profile))
    assert text.startswith("No step of this program is known: the program was killed.")
    assert "not your problem" not in text
    profile.program.recording.has_exited = True
    text = join_words(terminal.render(profile))
    assert text.startswith("No step of this program is known: recording ended before the program")


def test_the_folder_of_the_profile_is_named_once():
    profile = make_loop_profile(make_finding())
    profile.program.recording.folder = Path("raymeter-profiles/20260101T000000-train")
    assert terminal.render(profile).count("raymeter-profiles/20260101T000000-train") == 1


@pytest.mark.parametrize(("name", "shown"), [
    ("", "driver"), ("_QueueActor.get", "Queue.get"), ("Policy.__ray_call__", "Policy"),
    ("Trainer.train", "Trainer.train"),
])  # fmt: skip
def test_places_have_the_names_that_users_know(name, shown):
    assert name_place(name) == shown


def test_paths_begin_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert relative(f"{tmp_path}/a/train.py:3") == "a/train.py:3"
    assert relative("/usr/lib/site-packages/ray/util/queue.py:325") == "ray/util/queue.py:325"
    assert relative("Trainer.train") == "Trainer.train"


def test_a_line_of_an_installed_package_is_named_without_the_folders_of_its_environment(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / ".venv" / "lib" / "python3.11" / "site-packages" / "ray" / "data" / "map.py"
    assert relative(f"{place}:784") == "ray/data/map.py:784"
    assert relative(f"{tmp_path}/train.py:7") == "train.py:7"
