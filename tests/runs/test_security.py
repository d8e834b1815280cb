"""While a run of any runtime works, nobody else on the network or on the machine can read or reach it."""

import ipaddress
import stat
from pathlib import Path

import psutil
import pytest
from conftest import descendants

# One of each worker group: rdt gloo has the sockets of Ray, and those of torch.distributed between its actors.
RUNS = [
    ("rdt", "gloo"), ("torch", "gloo"), pytest.param("peers", "zmq-tcp", marks=pytest.mark.optional),
    pytest.param("store", "refs", marks=pytest.mark.long), pytest.param("graph", "shm", marks=pytest.mark.long),
]  # fmt: skip


@pytest.mark.parametrize(("runtime", "transport"), RUNS)
def test_a_run_listens_only_on_loopback_and_its_files_are_its_owners(begin_run, runtime, transport):
    if runtime == "peers":
        pytest.importorskip("zmq", reason="zmq: it is not installed: make peers")
    flags = ("--transport", transport, "--flow", "round-trip", "--iterations", "1000000", "--timeout", "90")
    script = begin_run(runtime, *flags)
    script.wait_for_iterations(3)
    processes = {script.process.pid} | {process.pid for process in descendants()}
    sockets = [socket for socket in psutil.net_connections("inet") if socket.pid in processes]
    listening = [socket.laddr for socket in sockets if socket.status == psutil.CONN_LISTEN]
    assert listening
    addresses = [ipaddress.ip_address(address.ip) for address in listening]
    mapped = [getattr(address, "ipv4_mapped", None) or address for address in addresses]  # ::ffff:127.0.0.1
    assert [str(address) for address in mapped if not address.is_loopback] == []
    (folder,) = script.run_folders()
    for path in (folder, Path("/dev/shm") / folder.name):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
