# SPDX-License-Identifier: Apache-2.0
"""Provoke each fault and hostile use, and check what the command says, keeps and leaves behind.

`make faults` provokes all of them and writes results/evidence/*.jsonl; `make test` the quick ones.
"""

import ipaddress
import re
import stat
import subprocess
import sys
import time

import psutil
import pytest
from conftest import LEAVE_SECONDS, descendants, require_nixl
from faults import CANNOT_PREPARE, FAULTS, HOSTILE, store_result

from dataflow.workers.cleanup import SHARED_MEMORY

# One of each worker group: rdt gloo has the sockets of Ray, and those of torch.distributed between its actors.
ONE_OF_EACH_GROUP = [
    ("torch", "gloo"), pytest.param("peers", "zmq-tcp", marks=pytest.mark.optional),
    pytest.param("rdt", "gloo", marks=pytest.mark.long), pytest.param("store", "refs", marks=pytest.mark.long),
    pytest.param("graph", "shm", marks=pytest.mark.long),
]  # fmt: skip
# Those of `make test` that take longest. `make test-slow` provokes them.
SLOW = (
    "the script is killed",
    "a producer is killed before NIXL reads from it, without Ray",
    "an actor hangs in C",
    "an actor crashes in C",
)
UNSHARED = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
IS_ROOT = UNSHARED.returncode == 0


def mark(fault):
    """Return a case of the test below: only `--all` runs what is not quick, and --slow what takes long."""
    marks = [] if fault.is_quick else [pytest.mark.long]
    if fault.name in SLOW:
        marks.append(pytest.mark.slow)
    if fault.command.startswith("peers "):
        marks.append(pytest.mark.study("external_systems"))
    return pytest.param(fault, id=fault.name, marks=marks)


def skip_if_impossible(fault):
    """Skip a case that this user cannot provoke, or that needs a package which is not installed."""
    surroundings = " ".join(fault.where.get("prefix", ()))
    if re.search("unshare|setpriv", surroundings) and not IS_ROOT:
        pytest.skip("only root can make the surroundings of this case")
    if "nixl" in fault.command:
        require_nixl()


def test_a_broken_nixl_fails_the_cases_that_need_it(monkeypatch, tmp_path):
    (tmp_path / "nixl.py").write_text("import nixl_cu0")
    for name in [name for name in sys.modules if name.partition(".")[0] == "nixl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    fault = next(fault for fault in FAULTS if "nixl" in fault.command)
    with pytest.raises(ModuleNotFoundError):
        skip_if_impossible(fault)


@pytest.mark.parametrize("fault", [mark(fault) for fault in FAULTS + HOSTILE])
def test_a_fault_is_named_and_leaves_nothing_behind(begin_run, fault):
    skip_if_impossible(fault)
    runtime, *transport = fault.command.split()
    flags = ("--transport", *transport, *fault.flags) if transport else fault.flags
    if fault.inject:
        flags += ("--inject", fault.inject)
    begin = time.monotonic()
    script = begin_run(runtime, *flags, **fault.where)
    if fault.action:
        fault.action(script)
    finished = script.finish()
    if finished.code == CANNOT_PREPARE:
        pytest.skip("this machine cannot make the surroundings of this case")
    seconds, left = time.monotonic() - begin, script.leftovers(LEAVE_SECONDS)
    text = finished.stdout if fault.code == 0 else finished.stderr
    if fault.keeps or not text:
        text = finished.run.reason
    if "--help" not in flags:  # its last line says nothing
        table = "faults" if fault in FAULTS else "hostile"
        store_result(
            table, fault.name, fault.command, text.splitlines()[-1], finished.code, seconds, left
        )
    assert left == set()
    assert re.search(fault.expected, text, re.MULTILINE), text
    assert finished.code == fault.code and "Traceback" not in finished.stderr, finished.stderr
    if fault.code == 0:
        assert finished.stderr == ""
    if fault.code == 2:
        assert finished.stderr.count("\n") == 1, finished.stderr
    if fault.keeps:
        run = finished.run
        assert run.status == "failed" and len(run.seconds) >= fault.keeps
        assert f"error: {run.reason}\n" in finished.stderr
        (printed,) = re.findall(r"^Execution time: (\S+) seconds$", finished.stdout, re.MULTILINE)
        assert float(printed.replace(",", "")) == pytest.approx(sum(run.seconds), rel=0.01)


@pytest.mark.parametrize(("runtime", "transport"), ONE_OF_EACH_GROUP)
def test_a_run_listens_only_on_loopback_and_its_files_are_its_owners(begin_run, runtime, transport):
    if runtime == "peers":
        pytest.importorskip("zmq", reason="zmq: it is not installed: make peers")
    flags = (
        "--transport",
        transport,
        "--flow",
        "round-trip",
        "--iterations",
        "1000000",
        "--timeout",
        "90",
    )
    script = begin_run(runtime, *flags)
    script.wait_for_iterations(3)
    processes = {script.process.pid} | {process.pid for process in descendants()}
    sockets = [socket for socket in psutil.net_connections("inet") if socket.pid in processes]
    listening = [socket.laddr for socket in sockets if socket.status == psutil.CONN_LISTEN]
    assert listening
    addresses = [ipaddress.ip_address(address.ip) for address in listening]
    mapped = [
        getattr(address, "ipv4_mapped", None) or address for address in addresses
    ]  # ::ffff:127.0.0.1
    assert [str(address) for address in mapped if not address.is_loopback] == []
    (folder,) = script.run_folders()
    for path in (folder, SHARED_MEMORY / folder.name):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
