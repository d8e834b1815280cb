"""Profile Ray programs whose messages are known, as users do: with one command in front of theirs."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT

from dataflow import explain
from dataflow.errors import UsageError
from dataflow.flows.catalogue import build_flow
from dataflow.profile.inside.dataflow_describe import describe
from dataflow.profile.messages import join_readers, make_profile
from dataflow.profile.show import advise, print_profile
from examples.profiled.measure import PAGE, RECORDS, make_page

KNOWN = Path(__file__).with_name("known_program.py")
PROFILE = [sys.executable, "-m", "dataflow", "profile"]
STEPS = 4
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "RAY_ADDRESS": "local"}  # and not the cluster of another test


def profile_text(tmp_path, text: str, *flags: str, variables=None):
    """Profile a program that is written as text; return what has ended, and the profile or None."""
    program, folder = tmp_path / "program.py", tmp_path / "profile"
    program.write_text(text)
    command = [*PROFILE, "--output", folder, *flags, program]
    environment = ENVIRONMENT | {"RAY_DEDUP_LOGS": "0", **(variables or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=180)
    path = folder / "profile.json"
    return done, json.loads(path.read_text()) if path.exists() else None


@pytest.fixture(scope="session")
def known(tmp_path_factory):
    """Return the folder, the output and the profile of the known program."""
    folder = tmp_path_factory.mktemp("known") / "profile"
    command = [*PROFILE, "--output", folder, "--step", "Rollout.generate", KNOWN]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=180, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return folder, done, json.loads((folder / "profile.json").read_text())


def messages_from(profile, place: str, *readers: str):
    return [m for m in profile["messages"] if m["place"] == place and m["readers"] == list(readers)]


# place, readers, way, count, bytes held and stored, causes besides page faults
MIB = 2**20
EXPECTED = [
    ("Rollout.generate", "driver.main", "return", STEPS, 2 * MIB, 2 * MIB, ["tensors in the pickle"]),
    ("driver.main", "Trainer.train", "argument", STEPS, 2 * MIB, 2 * MIB,
     ["through the driver", "tensors in the pickle"]),
    ("driver.main", "Trainer.load", "put", 1, 2 * MIB, 2 * MIB, []),
    ("Rollout.split", "Trainer.read", "return", STEPS, MIB // 4, 16 * MIB,
     ["views, stored 64.1 times", "tensors in the pickle"]),
    ("Rollout.route", "count", "return", STEPS, 800_000, 500_000, ["numbers"]),
    ("Rollout.wait_long", "driver.main", "return", STEPS, MIB, MIB, []),
    ("driver.main", "Trainer.read", "argument", 2 * STEPS, MIB, MIB, ["serialised 2 times"]),
    ("driver.main", "Rollout.__init__", "argument", 1, 300_000, 300_000, []),
]  # fmt: skip


@pytest.mark.runs
def test_each_message_has_its_count_bytes_and_causes(known):
    for place, reader, how, count, held, stored, causes in EXPECTED:
        (message,) = messages_from(known[2], place, reader)
        assert (message["how"], message["count"], message["held_bytes"]) == (how, count, held)
        assert stored <= message["stored_bytes"] <= 1.01 * stored
        assert [cause for cause in message["causes"] if cause != "page faults"] == causes


@pytest.mark.runs
def test_no_other_message_is_reported_and_a_delay_appears_in_its_message_only(known):
    shown = sorted((message["place"], *message["readers"]) for message in known[2]["messages"])
    assert shown == sorted((place, reader) for place, reader, *_ in EXPECTED)
    delayed = {m["place"] for m in known[2]["messages"] if m["seconds"]["serialise"] * STEPS / m["count"] > 0.045}
    assert delayed - {"Rollout.split"} == {"Rollout.wait_long"}  # 16 MiB can take as long
    (message,) = messages_from(known[2], "Rollout.wait_long", "driver.main")
    assert message["seconds"]["serialise"] == pytest.approx(0.05, rel=0.2)


@pytest.mark.runs
def test_the_lines_are_those_of_the_user_and_short_and_come_after_the_output(known):
    text = KNOWN.read_text().splitlines()
    lines = {m["place"] + m["readers"][0]: m["line"] for m in known[2]["messages"]}
    file, _, number = lines["driver.mainTrainer.train"].rpartition(":")
    assert (file, text[int(number) - 1].strip()[:8]) == (str(KNOWN), "ray.get(")
    assert text[int(lines["Rollout.splitTrainer.read"].rpartition(":")[2]) - 1].strip() == "def split(self):"
    printed = known[1].stdout.splitlines()
    assert printed[0] == "the output of the program"
    assert [line for line in printed[:-1] if len(line) > 100 and "Where:" not in line] == []
    assert any(". views: Rollout.split -> Trainer.read" in line for line in printed)


@pytest.mark.runs
def test_the_files_are_readable_by_their_owner_only_and_hold_no_value(known):
    folder = known[0]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    events = [path for path in folder.iterdir() if path.suffix == ".jsonl"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in events} == {0o600}
    assert "123456789" not in "".join(path.read_text() for path in folder.iterdir())  # the numbers of `route`
    kinds = [event["ph"] for event in json.loads((folder / "trace.json").read_text())["traceEvents"]]
    assert (kinds.count("s"), kinds.count("f")) == (9 * STEPS + 1, 9 * STEPS + 1)  # an arrow per reader
    assert "<svg" in (folder / "flow.svg").read_text()


@pytest.mark.runs
def test_the_flow_runs_in_the_suite_without_the_driver_in_between(known):
    flow = build_flow(str(known[0] / "flow.toml"), {})
    edges = {(edge.source.partition("-")[0], edge.reader.partition("-")[0]) for edge in flow.edges}
    assert {("Rollout.generate", "Trainer.train"), ("Rollout.split", "Trainer.read")} <= edges
    assert ("Rollout.generate", "driver.main") not in edges
    (views,) = [task.sends for task in flow.tasks if task.name.startswith("Rollout.split")]
    assert (views.bytes, views.serialised_bytes) == (MIB // 4, 16 * MIB)


@pytest.mark.runs
def test_a_profile_is_printed_again_from_its_folder(known):
    done = subprocess.run([*PROFILE, known[0]], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0
    assert "Rollout.split -> Trainer.read" in done.stdout


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
def test_async_actors_nested_tasks_and_the_hook_of_the_user(tmp_path):
    done, profile = profile_text(tmp_path, CHAIN.replace("HOOK}", "users_hook}") + "sys.exit(7)")
    assert (done.returncode, done.stdout.splitlines()[:3]) == (7, ["ran"] * 3)
    counts = {(m["place"], *m["readers"]): m["count"] for m in profile["messages"]}
    assert counts == {("make", "nested"): 3, ("nested", "Reader"): 3}
    (forwarded,) = messages_from(profile, "nested", "Reader")
    assert forwarded["causes"][0] == "forwarded"


@pytest.mark.runs
@pytest.mark.parametrize(("end", "code"), [
    ("raise ValueError('of the program')", 1),
    pytest.param("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL, marks=pytest.mark.long),
])  # fmt: skip
def test_a_program_that_ends_early_leaves_its_profile_and_its_exit_code(tmp_path, end, code):
    done, profile = profile_text(tmp_path, CHAIN.replace("HOOK}", "None}") + end)
    assert done.returncode == code
    assert {m["place"] for m in profile["messages"]} == {"make", "nested"}
    assert ("ValueError: of the program" in done.stderr) == (code == 1)


@pytest.mark.long
@pytest.mark.runs
def test_ctrl_c_ends_the_program_and_keeps_the_profile(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(CHAIN.replace("HOOK}", "None}") + "print('ready', flush=True)\ntime.sleep(60)")
    command = [*PROFILE, "--output", tmp_path / "profile", program]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, start_new_session=True)
    while process.stdout.readline().strip() != "ready":
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    output = process.communicate(timeout=150)[0]
    assert process.returncode not in (0, 2)
    assert "make -> nested" in output


@pytest.mark.runs
def test_a_hook_that_fails_prints_one_line_and_the_program_goes_on(tmp_path):
    broken = "import dataflow_recorder\ndataflow_recorder.describe = None\n"
    done, _ = profile_text(tmp_path, broken + CHAIN.replace("HOOK}", "None}") + "ray.put(numpy.ones(200_000))")
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
STAGES = """
import numpy, pathlib, psutil, ray
from ray.cluster_utils import Cluster
from ray.dag import InputNode
@ray.remote(num_cpus=0)
class Stage:
    def forward(self, array):
        return array + 1
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
ray.init(address=cluster.address)
first, second = Stage.remote(), Stage.remote()
"""


@pytest.mark.runs
@pytest.mark.parametrize(("text", "messages"), [
    (GRAPH, [("channel", 3, 1, False)] * 3),
    (NODES, [("put", 3, 1, False), ("return", 3, 1, True), ("return", 3, 1, True)]),
])  # fmt: skip
def test_channels_of_compiled_graphs_and_several_nodes(tmp_path, text, messages):
    wait = {"RAY_CGRAPH_get_timeout": "100"}
    end = """
processes = psutil.Process().children(recursive=True)
ray.shutdown()
cluster.shutdown()
for process in processes:  # Ray leaves the semaphores of a graph
    for path in pathlib.Path("/dev/shm").glob(f"sem.???{process.pid}-*"):
        path.unlink()"""
    done, profile = profile_text(tmp_path, STAGES + text + end, "--min-bytes", "1MB", variables=wait)
    assert done.returncode == 0, done.stderr
    crosses = [(m["how"], m["count"], len(m["readers"]), "another node" in m["causes"]) for m in profile["messages"]]
    assert sorted(crosses) == messages
    assert profile["steps"] in (1, 3)  # channels have no calls


def test_the_profiler_imports_the_standard_library_only():
    code = "import dataflow.__main__, dataflow.commands.profile, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    others = {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names
    assert {name for name in others if not name.startswith(("_", "dataflow", "common"))} <= {"sitecustomize"}


@pytest.mark.parametrize(("words", "message"), [
    ([], "no script: give a script that exists"),
    (["missing.py"], "missing.py: give a script that exists"),
    (["--min-bytes", "much", "x.py"], "--min-bytes: invalid parse_bytes value"),
    (["--output", "{folder}", "{script}"], "it has files already: give a new folder"),
    (["--speed", "x.py"], "unrecognized arguments"),
    (["RAY_ADDRESS=ray://127.0.0.1:1", "{script}"], "a client cannot be profiled"),
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
    header = {"process": "a-1", "ray": "2.60.0", "missing": [], "retained": False, "zero_copy": False}
    lines: list[dict] = [header | {"events": 0, "small": 0, "largest_small_bytes": 0}]
    for step in range(4):
        shared = {
            "start": float(step),
            "seconds": 0.1,
            "faults": 0,
            "stored": 1000,
            "imports": 0,
            "token": None,
            "node": "a",
        }
        lines.append(shared | {"side": "sent", "how": "return", "place": "Rollout.make", "id": f"R{step}", "bytes": 900,
                               "line": "a.py:1", "fields": [["x", "int64", [10], 1, 10, 80, []]]})  # fmt: skip
        lines.append(shared | {"side": "received", "how": "argument", "place": "Trainer.train", "object": f"0{step}",
                               "from": str(step), "task": "9", "line": ""})  # fmt: skip
    lines.append({"events": 8, "small": 3, "largest_small_bytes": 9})
    text = "\n".join(map(json.dumps, lines))
    (tmp_path / "a-1.jsonl").write_text(text + '\n{"side": "se')
    return tmp_path


def test_the_last_line_of_a_killed_process_may_be_incomplete(event_file):
    profile = make_profile(event_file, 1e-6, None)
    assert (profile["step"], profile["steps"], profile["messages"][0]["count"]) == ("Rollout.make", 4, 4)
    assert profile["small_messages"] == 3
    with pytest.raises(UsageError, match=r"--step Trainer.go: .*: give Rollout.make"):
        make_profile(event_file, 1e-6, "Trainer.go")
    assert profile["messages"][0]["seconds_per_step"] == pytest.approx(0.2)


def test_if_one_process_stops_to_record_no_later_event_of_others_counts(event_file):
    path = event_file / "a-1.jsonl"
    lines = path.read_text().splitlines()[:-1]
    (event_file / "a-2.jsonl").write_text(
        "\n".join([lines[0].replace("a-1", "a-2").replace('"events": 0', '"events": 5'), *lines[1:3], ""])
    )
    assert (
        sum(message["count"] for message in make_profile(event_file, 1e-6, None)["messages"]) == 2
    )  # of the first step


def test_a_program_without_data_movement_hears_it_first(event_file, capsys):
    profile = make_profile(event_file, 1e-6, None)
    print_profile(profile | {"seconds": 1e6})
    assert "Data movement is not your problem" in capsys.readouterr().out


def test_advice_saves_at_most_the_time_of_its_cause(event_file):
    profile = make_profile(event_file, 1e-6, None)
    message = profile["messages"][0] | {"causes": ["serialised 4 times"]}
    message["seconds"] = {"serialise": 0.4, "write": 0.4, "deserialise": 0.1}
    assert "Saves at most 600 ms" in advise(profile | {"messages": [message]})[0][1]  # one of four is needed
    message["causes"] = ["page faults"]
    assert advise(profile | {"messages": [message], "retained": True}) == []


@pytest.mark.parametrize(("value", "fields"), [
    ({"a": torch.zeros(3, 4)}, [["a", "float32", (3, 4), 1, 12, 48, ["tensors in the pickle"]]]),
    ([torch.zeros(8)[:2]], [["[]", "float32", (2,), 1, 2, 8, ["tensors in the pickle", "view"]]]),
    ({"a": {"b": [1, 2]}}, [["a.b", "ints", (2,), 1, 2, 16, []]]),
    ([1.5] * 1000, [["", "floats", (1000,), 1, 1000, 8000, ["numbers"]]]),
    ([b"abc"], [["[]", "bytes", (3,), 1, 3, 3, ["bytes in the pickle"]]]),
    ({"b": "ab"}, [["b", "str", (2,), 1, 2, 2, []]]),
    ({"the prompt of a user": np.ones(2)}, [["*", "float64", (2,), 1, 2, 16, []]]),
    (np.ones((4, 4))[:, ::2], [["", "float64", (4, 2), 1, 8, 64, ["not contiguous"]]]),
    (object(), []),
])  # fmt: skip
def test_a_message_is_described_without_its_values(value, fields):
    assert describe(value)["fields"] == fields


@pytest.mark.parametrize("task", ["1", "of an async actor"])
def test_several_arguments_are_joined_in_the_order_of_their_objects(task):
    shared = {"how": "argument", "token": None, "stored": 1, "process": "a"}
    sent = [{**shared, "side": "sent", "id": "A1", "place": "driver", "readers": []} for _ in range(2)]
    read = {**shared, "side": "received", "from": "0", "task": task, "readers": []}
    received = [read | {"object": name} for name in ("08", "07")]
    join_readers([*sent, *received])
    assert [event["readers"] for event in sent] == [[received[1]], [received[0]]]


@pytest.mark.skipif(not (RECORDS / "cost.json").exists(), reason="the records are not there")
def test_the_page_has_what_the_records_give():
    assert make_page() == PAGE.read_text()


def test_explain_finds_the_cause_and_measures_the_change(capsys):
    batch = torch.arange(64 * 512).reshape(64, 512)
    explain({"views": list(batch.unbind()), "array": np.ones(1000)})
    views, array = capsys.readouterr().out.splitlines()[1:]
    milliseconds, after = map(float, views.split()[7:9])
    assert (views.split()[0], after < milliseconds, "view: clone()" in views) == ("views", True, True)
    assert array.split()[-2:] == ["-", "-"]


def test_explain_reads_files_and_trusts_no_pickle(tmp_path):
    torch.save({"tokens": torch.ones(1000)}, tmp_path / "a.pt")
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04]\x94.")
    commands = [["a.pt"], ["a.pkl"], ["a.pkl", "--trust"], ["missing.pt"]]
    settings = {"cwd": tmp_path, "capture_output": True, "text": True, "env": ENVIRONMENT}
    done = [subprocess.run([sys.executable, "-m", "dataflow", "explain", *words], **settings) for words in commands]
    assert [run.returncode for run in done] == [0, 2, 0, 2]
    assert "tokens" in done[0].stdout
    assert "with --trust, a pickle of your own" in done[1].stderr
