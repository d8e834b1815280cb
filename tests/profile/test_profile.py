"""Profile Ray programs whose messages are known, as users do: with one command in front of theirs."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from conftest import ROOT

from common.flags import RESULTS
from dataflow.commands.profile import parse_arguments, replay
from dataflow.errors import UsageError
from dataflow.flows.catalogue import build_flow
from dataflow.profile.events import Event, join_readers, read_events
from dataflow.profile.inside.dataflow_recorder import describe
from dataflow.profile.messages import load_profile, make_profile
from dataflow.profile.output import advise, print_profile
from dataflow.profile.steps import measure_step
from dataflow.profile.terminal import Column, format_table, shorten_path
from examples.profiled.measure import write_page

KNOWN = Path(__file__).with_name("known_program.py")
PROFILE = [sys.executable, "-m", "dataflow", "profile"]
STEPS = 4
ENVIRONMENT = os.environ | {
    "PYTHONPATH": str(ROOT),
    "RAY_CGRAPH_get_timeout": "100",
    "RAY_ADDRESS": "local",
}


def profile_text(tmp_path, text: str, *flags: str):
    """Profile a program that is written as text; return what has ended, and the profile or None."""
    program, folder = tmp_path / "program.py", tmp_path / "profile"
    program.write_text(text)
    command = [*PROFILE, "--output", folder, *flags, program]
    done = subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path, timeout=180
    )
    path = folder / "profile.json"
    return done, json.loads(path.read_text()) if path.exists() else None


# place, readers, way, count, bytes held and stored, causes besides page faults
MIB = 2**20
EXPECTED = [
    ("Rollout.generate", "driver.main", "result", STEPS, 2 * MIB, 2 * MIB,
     ["through the driver", "tensors in the pickle"]),
    ("driver.main", "Trainer.train", "by value", STEPS, 2 * MIB, 2 * MIB,
     ["through the driver", "tensors in the pickle"]),
    ("driver.main", "Trainer.load", "put", 1, 2 * MIB, 2 * MIB, []),
    ("Rollout.split", "Trainer.read", "result", STEPS, MIB // 4, 16 * MIB,
     ["views, stored 64.1 times", "tensors in the pickle"]),
    ("Rollout.route", "count", "result", STEPS, 800_000, 500_000, ["numbers"]),
    ("Rollout.wait_long", "driver.main", "result", STEPS, MIB, MIB, []),
    ("driver.main", "Trainer.read", "by value", 2 * STEPS, MIB, MIB, ["serialised 2 times"]),
    ("driver.main", "Rollout.__init__", "by value", 1, 300_000, 300_000, []),
]  # fmt: skip


@pytest.mark.runs
def test_the_profile_of_a_known_program(tmp_path):
    folder = tmp_path / "profile"
    command = [*PROFILE, "--output", folder, "--step", "Rollout.generate", KNOWN]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=180, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    profile = json.loads((folder / "profile.json").read_text())
    check_messages(profile)
    check_lines(profile, done.stdout.splitlines())
    check_files(folder)
    sent = [event for event in read_events(folder)[1] if event.side == "sent"]
    fastest: dict[str, float] = {}
    for event in sent:
        fastest[event.place] = min(event.seconds, fastest.get(event.place, event.seconds))
    delayed = {place for place, seconds in fastest.items() if seconds > 0.049}
    assert delayed - {"Rollout.split"} == {"Rollout.wait_long"}  # 16 MiB can take as long
    again = subprocess.run([*PROFILE, folder], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout.splitlines()[1:] == again.stdout.splitlines()


def check_messages(profile):
    """Each message has its count, bytes and causes, and no other one is there."""
    for place, reader, how, count, held, stored, causes in EXPECTED:
        (message,) = [
            m for m in profile["messages"] if (m["place"], *m["readers"]) == (place, reader)
        ]
        assert (message["how"], message["count"], message["held_bytes"]) == (how, count, held)
        assert stored <= message["stored_bytes"] <= 1.01 * stored
        assert [cause for cause in message["causes"] if cause != "page faults"] == causes
    shown = sorted((message["place"], *message["readers"]) for message in profile["messages"])
    assert shown == sorted((place, reader) for place, reader, *_ in EXPECTED)


def check_lines(profile, printed):
    """The lines are those of the user; what is printed is short, and comes after the program's own output."""
    text = KNOWN.read_text().splitlines()
    lines = {m["place"] + m["readers"][0]: m["line"] for m in profile["messages"]}
    file, _, number = lines["driver.mainTrainer.train"].rpartition(":")
    assert (file, text[int(number) - 1].strip()[:8]) == (str(KNOWN), "ray.get(")
    assert (
        text[int(lines["Rollout.splitTrainer.read"].rpartition(":")[2]) - 1].strip()
        == "def split(self):"
    )
    assert (
        printed[0] == "the output of the program {}"
    )  # without a runtime_env, Ray starts workers in advance
    assert [line for line in printed[:-1] if len(line) > 100 and "Where:" not in line] == []
    (views,) = [advice for advice in advise(load_profile(profile)) if advice.cause == "views"]
    assert [message.place for message in views.messages] == ["Rollout.split"]


def check_files(folder):
    """The files can be read by their owner only and hold no value; the flow runs in the suite without the driver."""
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    events = [path for path in folder.iterdir() if path.suffix == ".jsonl"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in events} == {0o600}
    assert "123456789" not in "".join(
        path.read_text() for path in folder.iterdir()
    )  # the numbers of `route`
    kinds = [
        event["ph"] for event in json.loads((folder / "trace.json").read_text())["traceEvents"]
    ]
    assert (kinds.count("s"), kinds.count("f")) == (
        9 * STEPS + 1,
        9 * STEPS + 1,
    )  # an arrow per reader
    assert len(ElementTree.parse(folder / "flow.svg").findall("{*}path")) == len(EXPECTED)
    flow = build_flow(str(folder / "flow.toml"), {})
    edges = {
        f"{edge.source.partition('-')[0]} {edge.reader.partition('-')[0]}" for edge in flow.edges
    }
    assert {"Rollout.generate Trainer.train", "Rollout.split Trainer.read"} <= edges
    assert "Rollout.generate driver.main" not in edges
    (views,) = [task.sends for task in flow.tasks if task.name.startswith("Rollout.split")]
    assert (views.bytes, views.serialised_bytes) == (MIB // 4, 16 * MIB)


CHAIN = """
import sys, os, signal, time, numpy, ray
def users_hook():
    os.environ["HOOK_OF_THE_USER"] = "ran"
@ray.remote(num_cpus=0)
class Reader:
    async def read(self, array):
        return os.environ.get("HOOK_OF_THE_USER")
@ray.remote(num_cpus=0)
def make(n):
    return numpy.ones(200_000)
@ray.remote(num_cpus=0)
def nested():
    return ray.get(make.remote(1))
ray.init(num_cpus=1, include_dashboard=False, runtime_env={"worker_process_setup_hook": HOOK})
reader = Reader.remote()
for n in range(3):
    print(ray.get(reader.read.remote(nested.remote())))
"""


@pytest.mark.runs
@pytest.mark.parametrize(("hook", "end", "code"), [
    ("users_hook", "raise ValueError('of the program')", 1),
    pytest.param("None", "os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL, marks=pytest.mark.long),
])  # fmt: skip
def test_async_actors_nested_tasks_and_the_hook_of_a_user_whose_program_fails(
    tmp_path, hook, end, code
):
    done, profile = profile_text(tmp_path, CHAIN.replace("HOOK}", hook + "}") + end)
    assert (done.returncode, "ValueError: of the program" in done.stderr) == (code, code == 1)
    assert done.stdout.splitlines()[:3] == [{"users_hook": "ran", "None": "None"}[hook]] * 3
    counts = {(m["place"], *m["readers"]): m["count"] for m in profile["messages"]}
    assert counts == {("make", "nested"): 3, ("nested", "Reader"): 3}
    (forwarded,) = [message for message in profile["messages"] if message["place"] == "nested"]
    assert next(iter(forwarded["causes"])) == "forwarded"


@pytest.mark.long
@pytest.mark.runs
def test_ctrl_c_ends_the_program_and_keeps_the_profile(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        CHAIN.replace("HOOK}", "None}") + "print('ready', flush=True)\ntime.sleep(60)"
    )
    command = [*PROFILE, "--output", tmp_path / "profile", program]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, start_new_session=True
    )
    while process.stdout.readline().strip() != "ready":
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=150)[0]
    assert process.returncode not in (0, 2)
    assert "make -> nested" in output


@pytest.mark.runs
def test_a_hook_that_fails_prints_one_line_and_the_program_goes_on(tmp_path):
    broken = "import dataflow_recorder\ndataflow_recorder.describe = None\n"
    done, _ = profile_text(
        tmp_path, broken + CHAIN.replace("HOOK}", "None}") + "ray.put(numpy.ones(200_000))"
    )
    assert done.stderr.count("dataflow profile: recording ended in this process: TypeError") == 1
    assert done.stdout.splitlines()[:3] == ["None"] * 3


GRAPH = """
with InputNode() as batch:
    graph = second.forward.bind(first.forward.bind(batch)).experimental_compile()
for _ in range(3):
    ray.get(graph.execute(numpy.ones(200_000)))
"""
NODES = """
cluster.add_node(num_cpus=1, resources={"other": 1})
second = Stage.options(resources={"other": 0.1}).remote()
for _ in range(3):
    ray.get(second.forward.remote(first.forward.remote(ray.put(numpy.ones(200_000)))))
"""
RDT = """
import torch
from ray.experimental.collective import create_collective_group
create_collective_group([first, second], backend="torch_gloo")
for _ in range(3):
    batch = first.forward.options(tensor_transport="gloo").remote(torch.ones(400_000))
    ray.get(second.forward.remote(batch))
"""
STAGES = """
import numpy, pathlib, psutil, ray
from ray.cluster_utils import Cluster
from ray.dag import InputNode
@ray.remote(num_cpus=0, enable_tensor_transport=True)
class Stage:
    def forward(self, array):
        return array + 1
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
ray.init(address=cluster.address)
first, second = Stage.remote(), Stage.remote()
"""


@pytest.mark.runs
@pytest.mark.parametrize(("text", "messages"), [
    (NODES, [("put", False, 3), ("result", True, 3), ("result", True, 3)]),
    pytest.param(GRAPH, [("channel", False, 1)] * 3, marks=pytest.mark.long),  # channels have no calls
    pytest.param(RDT, [("RDT", False, 3), ("by value", False, 3), ("result", False, 3)], marks=pytest.mark.long),
])  # fmt: skip
def test_several_nodes_channels_of_compiled_graphs_and_ray_direct_transport(
    tmp_path, text, messages
):
    end = """
processes = psutil.Process().children(recursive=True)
ray.shutdown()
cluster.shutdown()
for process in processes:  # Ray leaves the semaphores of a graph
    [path.unlink() for path in pathlib.Path("/dev/shm").glob(f"sem.???{process.pid}-*")]"""
    done, profile = profile_text(tmp_path, STAGES + text + end, "--min-bytes", "1MB")
    assert done.returncode == 0, done.stderr
    shown = [
        (m["how"], "another node" in m["causes"], profile["steps"]) for m in profile["messages"]
    ]
    assert sorted(shown) == messages
    assert {(m["count"], len(m["readers"])) for m in profile["messages"]} == {(3, 1)}
    assert [
        "tensors in the pickle" in m["causes"] for m in profile["messages"] if m["how"] == "RDT"
    ] in ([], [False])


def test_the_profiler_imports_the_standard_library_only():
    code = "import dataflow.__main__, dataflow.commands.profile, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    others = {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names
    assert {name for name in others if not name.startswith(("_", "dataflow", "common"))} <= {
        "sitecustomize"
    }


@pytest.mark.parametrize(("words", "message"), [
    ([], "no script: give a script that exists"),
    (["missing.py"], "missing.py: give a script that exists"),
    (["--min-bytes", "much", "x.py"], "--min-bytes: invalid parse_bytes value"),
    (["--output", "{folder}", "{script}"], "it has files already: give a new folder"),
    (["RAY_ADDRESS=ray://127.0.0.1:1", "{script}"], "a client cannot be profiled"),
    (["--lr", "1", "{script}"], "--lr: flags of your program go after the script"),
])  # fmt: skip
def test_bad_input_is_one_line_and_starts_nothing(tmp_path, words, message):
    script = tmp_path / "program.py"
    script.write_text("print('it has started')")
    words = [word.format(folder=tmp_path, script=script) for word in words]
    variables = [word for word in words if word.startswith("RAY_ADDRESS")]
    command = ["env", *variables, *PROFILE, *words[len(variables) :]]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert message in done.stderr


def test_a_profile_is_written_where_no_record_of_the_suite_is_read(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("print('no Ray')")
    monkeypatch.chdir(ROOT)  # where report, answer and plot_results.py read their records
    output = parse_arguments([str(script)]).output.resolve()
    assert not output.is_relative_to(RESULTS)
    ignored = ["git", "check-ignore", "--quiet", str(output / "profile.json")]
    assert subprocess.run(ignored, cwd=ROOT, check=False).returncode == 0
    command = [*PROFILE, script]
    subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, timeout=60, check=False
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["profiles", "train.py"]


@pytest.mark.runs
@pytest.mark.parametrize(("text", "message"), [
    ("print('no Ray')", "has no profile: the program has not called ray.init"),
    ("import ray; ray.init(num_cpus=1); ray.put(b'x' * 4096)", "the largest message had 4 KiB: give --min-bytes 1024B"),
])  # fmt: skip
def test_a_program_without_large_messages_gets_one_line(tmp_path, text, message):
    (tmp_path / "common").mkdir()  # a package of the user with the name of one of this project
    (tmp_path / "common" / "__init__.py").touch()
    done, _ = profile_text(tmp_path, text)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]


@pytest.fixture
def event_file(tmp_path):
    """Return a folder with the events of a rollout that sends one message in each of four steps and is killed."""
    header = {"process": "a-1", "ray": "2.60.0", "missing": [], "retained": False}
    lines: list[dict] = [header | {"events": 0, "small": 0, "largest_small_bytes": 0}]
    for step in range(4):
        shared = {
            "start": step,
            "seconds": 0.1,
            "faults": 0,
            "stored": 9,
            "imports": 0,
            "token": None,
            "node": "a",
        }
        lines.append(shared | {"side": "sent", "how": "result", "place": "Rollout.make", "id": f"R{step}", "bytes": 900,
                               "line": "a.py:1", "fields": [["x", "int64", [10], 1, 10, 80, []]]})  # fmt: skip
        lines.append(shared | {"side": "received", "how": "argument", "place": "Rollout.make", "object": f"0{step}",
                               "from": str(step), "task": f"t{step}", "line": ""})  # fmt: skip
    lines.append({"events": 8, "small": 3, "largest_small_bytes": 9})
    (tmp_path / "a-1.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"side": "se')
    return tmp_path


def test_the_last_line_of_a_killed_process_may_be_incomplete(event_file):
    profile = make_profile(event_file, 1e-6, None)
    assert (profile.step, profile.steps, profile.small_messages) == ("Rollout.make", 4, 3)
    with pytest.raises(UsageError, match=r"--step Trainer.go: .*: give Rollout.make"):
        make_profile(event_file, 1e-6, "Trainer.go")
    assert profile.messages[0].seconds_per_step == pytest.approx(0.2)


def test_if_one_process_stops_to_record_no_later_event_of_others_counts(event_file):
    path = event_file / "a-1.jsonl"
    lines = path.read_text().splitlines()[:-1]
    header = lines[0].replace("a-1", "a-2").replace('"events": 0', '"events": 5')
    (event_file / "a-2.jsonl").write_text("\n".join([header, *lines[1:3], ""]))
    messages = make_profile(event_file, 1e-6, None).messages
    assert sum(message.count for message in messages) == 2  # of the first step


def test_two_arguments_of_one_call_are_two_messages(event_file):
    path = event_file / "a-1.jsonl"
    lines = path.read_text().splitlines()[:-1]
    others = lines[1].replace('["x"', '["y"'), lines[2].replace('"object": "00"', '"object": "0a"')
    path.write_text("\n".join([*lines, *others, ""]))
    messages = make_profile(event_file, 1e-6, None).messages
    assert [(m.count, m.fields[0][0]) for m in messages] == [(4, "x"), (1, "y")]


def test_advice_sums_what_its_cause_can_save_and_is_left_out_if_it_is_followed(event_file):
    profile = make_profile(event_file, 1e-6, None)
    message = replace(profile.messages[0], causes={"serialised 4 times": 0.4})
    (advice,) = advise(replace(profile, messages=[message, message]))
    assert "Work that it removes: at most 800 ms per step" in advice.format(1.0, 100)
    message.causes = {"page faults": 0.6}
    assert advise(replace(profile, messages=[message], retained=True)) == []


def test_no_advice_removes_more_than_the_step(event_file):
    profile = make_profile(event_file, 1e-6, None)
    message = replace(profile.messages[0], causes={"numbers": 5.0})
    (advice,) = advise(replace(profile, messages=[message]))
    assert "Work that it removes: at most 302 ms per step" in advice.format(0.3021, 100)


@pytest.mark.parametrize(("step_seconds", "is_answer"), [(4.1, True), (3.9, False)])
def test_below_five_percent_of_a_step_the_only_answer_is_not_your_problem(
    event_file, capsys, step_seconds, is_answer
):
    profile = make_profile(event_file, 1e-6, None)  # 0.2 s of work per step
    message = replace(profile.messages[0], causes={"numbers": 0.1})
    print_profile(replace(profile, messages=[message], step_seconds=step_seconds), 80)
    output = capsys.readouterr().out
    answer = "Moving data is 200 of 4,100 ms per step (4.9 %): not your problem."
    assert (answer in output.splitlines()) == is_answer
    assert ("What to change" in output) != is_answer


def test_what_ray_copies_by_itself_is_named_beside_the_answer(event_file, capsys):
    profile = make_profile(event_file, 1e-6, None)
    message = replace(profile.messages[0], stored_bytes=2 * MIB)
    print_profile(replace(profile, messages=[message], step_seconds=100.0), 80)
    assert "Not in these times: Ray's own copy of 2 MiB of results" in capsys.readouterr().out


@pytest.mark.parametrize(("starts", "seconds"), [
    ([0.0, 3.9, 4.4, 4.9, 5.4, 5.9], 0.5),  # the first step starts the workers
    ([0.0, 0.5], 0.5),
    ([step + call / 1000 for step in range(5) for call in range(4)], 0.25),  # four calls at once
    ([1.0], 0.0),
])  # fmt: skip
def test_a_step_is_the_median_step(starts, seconds):
    assert measure_step(starts) == pytest.approx(seconds, rel=0.2)


@pytest.mark.parametrize("width", [80, 100])
def test_what_is_printed_fits_the_width_and_words_stay_whole(event_file, capsys, width):
    profile = make_profile(event_file, 1e-6, None)
    causes = dict.fromkeys(["through the driver", "tensors in the pickle", "page faults"], 0.1)
    route = "SingleAgentEnvRunner.apply -> driver.synchronise_parameters, EnvironmentRunner.update"
    message = replace(profile.messages[0], route=route, causes=causes, how="by value")
    print_profile(replace(profile, messages=[message], places={"SingleAgentEnvRunner": 1.0}), width)
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= width
    assert set(output.split()) >= {*route.split(), "through", "pickle"}


def test_columns_without_space_are_left_out_and_named():
    columns = [
        Column("message", ["Rollout.generate -> Trainer.train"], is_text=True),
        Column("count", ["1,000,000"], rank=1),
        Column("how", ["by value"], is_text=True, rank=2),
    ]
    narrow = format_table(columns, 30)
    assert narrow.splitlines()[0].split() == ["message", "count"]
    assert narrow.endswith("narrow: how)")
    assert "not shown" not in format_table(columns, 80)


def test_places_are_shown_from_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shorten_path(f"{tmp_path}/src/train.py:12") == "src/train.py:12"
    assert shorten_path("/elsewhere/train.py:12") == "/elsewhere/train.py:12"


@pytest.mark.parametrize(("again", "text"), [(0.24, "The replay holds."), (0.26, "does not hold")])
def test_a_replay_holds_within_a_quarter_of_the_time_in_the_program(
    monkeypatch, capsys, tmp_path, again, text
):
    words = []
    results = [SimpleNamespace(label="store driver-queue", typical_seconds=again)]
    monkeypatch.setattr("dataflow.commands.run.main", lambda argv: words.extend(argv))
    monkeypatch.setattr("dataflow.records.files.load_all", lambda _: None)
    monkeypatch.setattr("dataflow.analysis.result.group_results", lambda _: results)
    messages = [SimpleNamespace(causes=["through the driver"])]
    replay(SimpleNamespace(messages=messages, retained=False, flow_seconds=0.2), tmp_path)
    assert words[0] == "store driver-queue"
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(("value", "fields"), [
    ({"a": torch.zeros(3, 4)}, [["a", "float32", (3, 4), 1, 12, 48, ["tensors in the pickle"]]]),
    ([torch.zeros(8)[:2]], [["[]", "float32", (2,), 1, 2, 8, ["tensors in the pickle", "view"]]]),
    ({"a": {"b": [1, 2]}}, [["a.b", "ints", (2,), 1, 2, 16, []]]),
    ([1.5] * 1000, [["", "floats", (1000,), 1, 1000, 8000, ["numbers"]]]),
    ([b"abc"], [["[]", "bytes", (3,), 1, 3, 3, ["bytes in the pickle"]]]),
    ({"the prompt of a user": np.ones(2)}, [["*", "float64", (2,), 1, 2, 16, []]]),
    (np.ones((4, 4))[:, ::2], [["", "float64", (4, 2), 1, 8, 64, ["not contiguous"]]]),
    (type("Image", (), {"__array_interface__": {}})(), []),
])  # fmt: skip
def test_a_message_is_described_without_its_values(value, fields):
    assert describe(value)["fields"] == fields


class OwnPickle:
    """An object whose class pickles its tensors itself, as verl's DataProto."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __getstate__(self):
        return {"data": bytes(self.tensor.numpy().data)}


class PlainObject:
    def __init__(self, tensor):
        self.tensor = tensor


@pytest.mark.parametrize(("value", "cause"), [
    (OwnPickle(torch.zeros(4)), "pickled by its class"),
    ({"batch": [OwnPickle({"x": torch.zeros(4)})]}, "pickled by its class"),
    (PlainObject(torch.zeros(4)), "tensors in the pickle"),
    (OrderedDict(x=torch.zeros(4)), "tensors in the pickle"),
])  # fmt: skip
def test_a_class_that_pickles_its_own_tensors_gets_no_advice_about_the_variable_for_tensors(
    event_file, value, cause
):
    (field,) = describe(value)["fields"]
    assert field[-1] == [cause]
    path = event_file / "a-1.jsonl"
    old = '"fields": [["x", "int64", [10], 1, 10, 80, []]]'
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, f'"fields": {json.dumps([field])}'))
    profile = make_profile(event_file, 1e-6, None)
    assert list(profile.messages[0].causes) == [cause]
    named = [advice.cause for advice in advise(profile)]
    assert named == [name for name in [cause] if name == "tensors in the pickle"]


@pytest.mark.parametrize("task", ["1", "of an async actor"])
def test_several_arguments_are_joined_in_the_order_of_their_objects(task):
    event = Event(
        side="sent", how="by value", place="driver", line="", start=0.0, seconds=0.1, faults=0, stored=1,
        imports=0, token=None, node="a", process="a", id="A1",
    )  # fmt: skip
    sent = [replace(event, readers=[]), replace(event, readers=[])]
    reader = replace(event, side="received", sender_task="0", task=task, id="")
    received = [replace(reader, object="08", readers=[]), replace(reader, object="07", readers=[])]
    join_readers([*sent, *received])
    assert [event.readers for event in sent] == [[received[1]], [received[0]]]


def test_the_page_has_what_the_records_give(tmp_path):
    page = Path("docs", "profile.md")
    (tmp_path / "docs").mkdir()
    text = re.sub(
        r"(?<=publish -->\n).*?(?=\n<!-- end of)", "old", (ROOT / page).read_text(), flags=re.S
    )
    (tmp_path / page).write_text(text)
    write_page(tmp_path)
    assert text.count("\nold\n") == 8
    assert (tmp_path / page).read_text() == (ROOT / page).read_text()
