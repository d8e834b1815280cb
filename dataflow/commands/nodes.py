"""Measure several nodes on one Linux machine: each node has its own network, its own shared memory and its own raylet.

    sudo .venv/bin/python -m dataflow nodes                                    the published setups
    sudo .venv/bin/python -m dataflow nodes --nodes 2 --rate 1gbit --runs 3    one setup
    sudo .venv/bin/python -m dataflow nodes --nodes 2 --command "SCRIPT --address {address} ..."

The nodes are network namespaces that a bridge connects, and the kernel limits the rate of each link (tc tbf). All of
them run in one process namespace whose first process is a child of this one. If this process ends, even by kill -9,
the kernel ends all processes of the nodes, and removes their networks and their memory.
"""

import os
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dataflow.errors import UsageError
from dataflow.measure.supervisor import only_measurement
from dataflow.plan.command_line import OneLineParser
from dataflow.plan.options import RESULTS
from dataflow.plan.plan import LINK_VARIABLE
from dataflow.workers.cleanup import ROOT

RATES = ("1gbit", "10gbit", "25gbit")
SETUPS = ((2, "10gbit"), (2, "1gbit"), (2, "25gbit"), (3, "10gbit"))
ADDRESS = "10.77.0.1:6379"
SCRIPT = str(ROOT / "dataflow" / "nodes" / "namespaces.sh")
NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def require_namespaces() -> None:
    if os.geteuid():
        raise UsageError("network namespaces need root: run sudo .venv/bin/python -m dataflow nodes ...")
    if subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode:
        raise UsageError("the kernel does not allow network namespaces here: a container needs --privileged")


def run_setup(count: int, rate: str, command: Sequence[str]) -> int:
    """Run a command on the first of several nodes, and return its exit code; 130 if it was interrupted."""
    variables = {
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_enable_metrics_collection": "0",
        "RAY_worker_niceness": "0", "RAY_enable_worker_prestart": "0", "TMPDIR": "/dev/shm/tmp",  # of each node
        LINK_VARIABLE: f"{rate.removesuffix('gbit')} Gbit/s",
    }  # fmt: skip
    ray = str(Path(sys.executable).with_name("ray"))
    words = ["setpriv", "--pdeathsig", "KILL", *NAMESPACES, "sh", SCRIPT, str(count), rate, ray, *command]
    nodes = subprocess.Popen(words, env=os.environ | variables)
    signal.signal(signal.SIGTERM, lambda *_: nodes.kill())
    while True:
        with suppress(KeyboardInterrupt):  # the command got the signal too, and ends its run
            code = nodes.wait()
            return 130 if code < 0 else code


def main(argv: Sequence[str]) -> int:
    parser = OneLineParser(__doc__, "python3 -m dataflow nodes [flags of dataflow run]")
    add = parser.add_argument
    add("--nodes", type=int, choices=(2, 3), help="number of nodes (default: all published setups)")
    add("--rate", choices=RATES, default="10gbit", help="rate of each node's link, with --nodes (default: %(default)s)")
    new_folder = RESULTS / f"run-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    add("--output-dir", type=Path, default=new_folder, help="folder of records (default: results/run-<time>)")
    add("--command", help="run this command on the first node instead of a suite; {address} is that of the cluster")
    arguments, flags = parser.parse_known_args(argv)
    if arguments.command and not arguments.nodes:
        raise UsageError("--command: give --nodes too")
    require_namespaces()  # before the lock, for which a user may have to wait
    codes = []
    with only_measurement():
        for count, rate in [(arguments.nodes, arguments.rate)] if arguments.nodes else SETUPS:
            if arguments.command:
                command = shlex.split(arguments.command.replace("{address}", ADDRESS))
            else:
                suite = "cluster" if (count, rate) == (2, "10gbit") else "cluster-rates"
                placement = ["--placement", "policy=0,reference=1,reward=2"] if count == 3 else []
                folder = str(arguments.output_dir / f"{suite}-{count}-nodes-{rate}")
                command = [sys.executable, "-m", "dataflow", "run", "--suite", suite, "--runs", "5", *placement,
                           *flags, "--output", folder, "--address", ADDRESS]  # fmt: skip
            codes.append(run_setup(count, rate, command))
            if codes[-1] == 130:
                break
    return max(codes)
