import json
import os
import re
import subprocess
import sys

import pytest
import torch
from conftest import KILOBYTES, ROOT, SCRIPTS

from common.record import files as records
from common.run import options as command_line
from common.runtime import devices
from common.runtime import needs as memory

STORE = ROOT / "simulate_chat_learn_data_flow.py"
GRAPH = ROOT / "ray_cg_simulate_chat_learn_data_flow.py"
RDT = ROOT / "ray_rdt_simulate_chat_learn_data_flow.py"
TORCH = ROOT / "torch_simulate_chat_learn_data_flow.py"
every_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def refused(run_main):
    """refused(script, *flags) -> the one line that says why."""

    def run(script, *flags):
        code, stdout, stderr = run_main(script, *flags)
        assert code == 2
        assert stdout == ""
        assert stderr.startswith("error: ")
        assert stderr.count("\n") == 1
        assert stderr.endswith("\n")
        return stderr

    return run


def options(text):
    """Of a --help text, each option's entry with its blanks made one."""
    entries = re.split(r"\n  (?=-)", text.split("\noptions:\n")[1])
    return {" ".join(entry.split()).split(" ")[0]: " ".join(entry.split()) for entry in entries}


def test_all_scripts_have_the_same_flags_and_defaults_but_for_the_transports(run_main):
    shown = {}
    for script in SCRIPTS:
        code, stdout, _ = run_main(script, "--help")
        assert code == 0
        shown[script.name] = options(stdout)
        assert "choices" not in shown[script.name].pop("--transport")
    assert len(shown) > 1
    first, *others = shown.values()
    assert "--object-store-bytes" in first
    assert others == [first] * len(others)


@every_script
def test_help_explains_every_transport(run_main, script):
    _, stdout, _ = run_main(script, "--help")
    transports = re.search(r"--transport \{([^}]*)\}", stdout.split("\noptions:\n")[1])[1].split(",")
    description = stdout.split("\noptions:\n")[0]
    assert transports
    assert [name for name in transports if f"--transport {name} " not in description] == []


def test_defaults_are_the_demos():
    arguments = command_line.parse_arguments("", ("refs",), "refs", [])
    sizes = (arguments.batch_size, arguments.prompt_seq_len, arguments.max_new_tokens, arguments.num_samples)
    assert sizes == (1024, 4096, 0, 2)
    assert arguments.iterations == 100
    assert command_line.build_flow(arguments).bytes_per_trip == 448 * 2**20


@every_script
@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--batch-size", "0"], "--batch-size"),
        (["--batch-size", "-4"], "--batch-size"),
        (["--prompt-seq-len", "0"], "--prompt-seq-len"),
        (["--max-new-tokens", "-1"], "--max-new-tokens"),
        (["--num-samples", "0"], "--num-samples"),
        (["--iterations", "0"], "--iterations"),
        (["--episode", "0"], "--episode"),
        (["--placement", "apart"], "'apart'"),
        (["--flow", "chain", "--batch-size", "4"], "--batch-size is for online-dpo: give chain --payload-bytes"),
        (["--warmup", "-1"], "--warmup"),
        (["--threads", "0"], "--threads"),
        (["--timeout", "0"], "--timeout"),
        (["--timeout", "-1"], "--timeout"),
        (["--timeout", "nan"], "--timeout"),
        (["--timeout", "inf"], "--timeout"),
        (["--timeout", "soon"], "'soon' is not a number"),
        (["--batch-size", "many"], "'many' is not a whole number"),
        (["--batch-size", "1.5"], "'1.5' is not a whole number"),
        (["--batch-size", ""], "'' is not a whole number"),
        (["--batch-size", "4\n5"], "not a whole number"),
        (["--batch-size"], "--batch-size"),
        (["--batch-size", "3", "--prompt-seq-len", "5", "--num-samples", "1"], "odd"),
        (["--batch-size", "10000000000"], "lower --batch-size"),
        (["--prompt-seq-len", "1" + "0" * 400], "--prompt-seq-len"),
        (["--object-store-bytes", "1000"], "--object-store-bytes"),
        (["--flow", "offline-dpo"], "online-dpo"),
        (["--flow", "chain", "--roles", "0"], "--roles"),
        (["--flow", "chain", "--roles", "few"], "'few' is not a whole number"),
        (["--flow", "chain", "--payload-bytes", "0"], "--payload-bytes"),
        (["--flow", "chain", "--payload-bytes", "100000000000000"], "lower --payload-bytes"),
        (["--flow", "round-trip", "--roles", "2"], "use --flow chain"),
        (["--payload-bytes", "8"], "leave them out"),
        (["--roles", "2"], "leave them out"),
        (["--transport", "pigeon"], "'pigeon'"),
        (["--frobnicate"], "--frobnicate"),
        (["--batch", "4"], "--batch"),
        (["positional"], "positional"),
        (["--device", "tpu"], "'tpu'"),
        (["--device", "cuda"], "use --device cpu"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_cannot_run_is_refused_in_one_line_before_ray_starts(refused, script, flags, reason):
    assert reason in refused(script, *flags)


@pytest.mark.parametrize("script", [STORE, GRAPH], ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("count", "reason"), [("80000000", "raise --object-store-bytes"), ("100000000000000", "lower --object-store-bytes")]
)
def test_a_store_that_does_not_fit_is_refused(refused, script, count, reason):
    assert reason in refused(script, "--object-store-bytes", count)


@every_script
def test_a_chain_as_long_as_no_machine_has_processes_is_refused(script):
    """In a process of its own with little memory: it must be refused before a flow of that length is made."""
    program = f"""
import resource, runpy, sys
import torch  # which needs more than the flow may
resource.setrlimit(resource.RLIMIT_DATA, (2 * 2**30, 2 * 2**30))
sys.argv = [{str(script)!r}, "--flow", "chain", "--roles", "1" + "0" * 15]
runpy.run_path({str(script)!r}, run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "--roles" in done.stderr


def test_zero_copy_is_a_transport_of_the_graph_and_no_flag(refused):
    assert "--transport zero-copy" in refused(GRAPH, "--zero-copy", *KILOBYTES)


@pytest.mark.parametrize(
    "flags",
    [["--zero-copy"], ["--address", "127.0.0.1:6379"], ["--object-store-bytes", "80000000"]],
    ids=lambda flags: flags[0],
)
def test_what_is_rays_is_refused_by_the_script_without_it(refused, flags):
    reason = refused(TORCH, *flags, *KILOBYTES)
    assert flags[0] in reason
    assert "leave them out" in reason


@pytest.mark.parametrize(
    ("script", "transport"),
    [(STORE, "refs"), (STORE, "payload-queue"), (GRAPH, "shm"), (GRAPH, "pickle"), (TORCH, "gloo"), (TORCH, "memcpy")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_copy_out_of_a_transport_that_copies_already_is_refused(refused, script, transport):
    reason = refused(script, "--transport", transport, "--copy-out", *KILOBYTES)
    assert f"--copy-out is for mapped transports: {transport} hands out copies" in reason


@pytest.mark.parametrize("script", [GRAPH, RDT], ids=lambda path: path.stem)
def test_mapped_memory_of_another_machine_is_refused(refused, script):
    assert "leave --address out" in refused(script, "--transport", "mapped", "--address", "127.0.0.1:6379", *KILOBYTES)


@pytest.mark.parametrize("script", [GRAPH, TORCH], ids=lambda path: path.stem)
def test_nccl_without_gpus_is_refused_and_recorded_as_waived(refused, tmp_path, script):
    output = tmp_path / "record.json"
    reason = refused(script, "--transport", "nccl", *KILOBYTES, "--output", str(output))
    assert "needs 3 GPUs and found 0: use another --transport" in reason
    (case,) = records.load(output)["cases"]
    assert case["status"] == "waived"
    assert case["reason"] == reason.removeprefix("error: ").strip()
    assert (case["transport"], case["seconds"], case["first_seconds"]) == ("nccl", [], None)


@pytest.fixture
def no_nixl(monkeypatch):
    find_spec = devices.importlib.util.find_spec

    def find(name, *rest):
        return None if name.startswith("nixl") else find_spec(name, *rest)

    monkeypatch.setattr(devices.importlib.util, "find_spec", find)


@pytest.mark.parametrize(
    ("transport", "reason"),
    [
        ("nixl", "nixl is not installed: pip install --no-deps nixl=="),
        ("nccl", "nccl needs 4 GPUs and found 0: use another --transport"),
        ("cuda-ipc", "cuda-ipc needs 1 GPU and found 0: use another --transport"),
    ],
)
def test_what_direct_transport_needs_and_does_not_find_is_waived(refused, no_nixl, tmp_path, transport, reason):
    output = tmp_path / "record.json"
    assert reason in refused(RDT, "--transport", transport, *KILOBYTES, "--output", str(output))
    (case,) = records.load(output)["cases"]
    assert (case["status"], case["transport"], case["seconds"]) == ("waived", transport, [])
    assert reason in case["reason"]


@pytest.mark.parametrize("missing", ["nixl", "nixl_cu12"])
def test_nixl_needs_the_wheel_of_torchs_cuda_too(monkeypatch, missing):
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: None if name == missing else name)
    with pytest.raises(command_line.Waived, match="nixl-cu12=="):
        devices.need_nixl("12.8")
    assert missing == "nixl" or devices.need_nixl("13.0") is None


@every_script
def test_an_existing_record_is_not_overwritten(refused, script, tmp_path):
    output = tmp_path / "record.json"
    output.write_text("mine")
    assert "--output another name" in refused(script, *KILOBYTES, "--output", str(output))
    assert output.read_text() == "mine"


@pytest.mark.parametrize("name", ["/proc/nowhere/record.json", "/dev/null/record.json", "long" * 100 + "/record.json"])
def test_a_folder_that_cannot_be_written_is_refused(refused, name, tmp_path):
    assert "cannot write" in refused(STORE, *KILOBYTES, "--output", str(tmp_path / name))


@every_script
def test_a_trace_that_cannot_be_written_is_refused_before_anything_is_measured(refused, script):
    assert "/proc/nowhere" in refused(script, *KILOBYTES, "--trace", "/proc/nowhere/trace.json")


def test_an_existing_trace_is_not_overwritten(refused, tmp_path):
    trace = tmp_path / "trace.json"
    trace.write_text("mine")
    assert "--trace another name" in refused(STORE, *KILOBYTES, "--trace", str(trace))
    assert trace.read_text() == "mine"


def test_roles_without_ray_cannot_be_spread(refused):
    assert "--placement" in refused(TORCH, "--placement", "spread", *KILOBYTES)


def test_a_refused_run_leaves_no_record(refused, tmp_path):
    refused(
        STORE, "--device", "cuda", *KILOBYTES, "--output", str(tmp_path / "record.json"), "--trace", str(tmp_path / "t")
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "needed"),
    [(2 * (448 + 32 + 96 + 64 + 160) * 2**20, True), (2 * (448 + 32 + 96 + 64 + 160) * 2**20 - 1, False)],
)
def test_the_store_holds_what_two_trips_emit_and_deliver(monkeypatch, asked, needed):
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 2**40}))
    monkeypatch.setattr(memory.psutil, "disk_usage", lambda _: type("Disk", (), {"free": 2**40}))
    arguments = command_line.parse_arguments("", ("refs",), "refs", ["--object-store-bytes", str(asked)])
    flow = command_line.build_flow(arguments)
    if needed:
        assert memory.object_store_bytes(arguments, flow) == asked
    else:
        with pytest.raises(command_line.UsageError, match="need 1,600 MiB of object store"):
            memory.object_store_bytes(arguments, flow)


def test_the_default_store_is_rays(monkeypatch):
    def default(available, free):
        monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: type("Memory", (), {"available": available}))
        monkeypatch.setattr(memory.psutil, "disk_usage", lambda _: type("Disk", (), {"free": free}))
        arguments = command_line.parse_arguments("", ("refs",), "refs", list(KILOBYTES))
        return memory.object_store_bytes(arguments, command_line.build_flow(arguments))

    assert default(available=10 * 2**30, free=100 * 2**30) == 3 * 2**30
    assert default(available=10 * 2**30, free=2**30) == int(0.95 * 2**30)
    assert default(available=2**27, free=2**30) == command_line.MINIMUM_STORE_BYTES


@every_script
def test_payloads_that_do_not_fit_into_memory_are_refused_by_every_script(refused, monkeypatch, script):
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 2**30}))
    assert "lower --batch-size" in refused(script)


def test_payloads_that_do_not_fit_into_memory_are_refused(monkeypatch):
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 2 * 2**30}))
    monkeypatch.setattr(memory.psutil, "disk_usage", lambda _: type("Disk", (), {"free": 2**40}))
    arguments = command_line.parse_arguments("", ("refs",), "refs", ["--object-store-bytes", str(8 * 2**30)])
    with pytest.raises(command_line.UsageError, match="of memory are free: lower"):
        memory.object_store_bytes(arguments, command_line.build_flow(arguments))


@every_script
def test_a_refusal_in_a_process_of_its_own_is_quick_and_without_traceback(script, tmp_path):
    """As a user meets it; Ray is not even imported, so a Ray that cannot be imported does not matter."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text("raise SystemExit('ray was imported')")
    command = [sys.executable, str(script), "--device", "cuda", *KILOBYTES]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: --device cuda")


def test_a_waived_record_says_what_was_asked(refused, tmp_path):
    output = tmp_path / "record.json"
    refused(GRAPH, "--transport", "nccl", *KILOBYTES, "--timeout", "7", "--output", str(output))
    text = output.read_text()
    arguments = json.loads(text)["arguments"]
    assert (arguments["batch_size"], arguments["timeout"], arguments["transport"]) == (4, 7.0, "nccl")
    assert str(tmp_path) not in text


@pytest.mark.parametrize(("script", "transport"), [(TORCH, "gloo"), (TORCH, "memcpy"), (RDT, "gloo")])
def test_host_memory_is_moved_on_a_machine_with_gpus_too(refused, monkeypatch, script, transport):
    monkeypatch.setattr(devices, "resolve_device", lambda asked: ("cpu", 0) if asked == "cpu" else ("cuda", 1))
    assert "host memory" in refused(script, "--transport", transport, "--device", "cuda", *KILOBYTES)
