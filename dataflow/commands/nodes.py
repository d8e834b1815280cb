"""Measure several nodes on one Linux machine: each node has its own network, its own shared memory and its own raylet.

    sudo .venv/bin/python -m dataflow nodes                                    the published setups
    sudo .venv/bin/python -m dataflow nodes --nodes 2 --rate 1gbit --runs 3    one setup
    sudo .venv/bin/python -m dataflow nodes --nodes 2 --suite headline         one setup with another suite
    sudo .venv/bin/python -m dataflow nodes --nodes 2 --command "SCRIPT --address {address} ..."

The nodes are network namespaces that a bridge connects, and the kernel limits the rate of each link (tc tbf). All of
them run in one process namespace whose first process is a child of this one. If this process ends, even by kill -9,
the kernel ends all processes of the nodes, and removes their networks and their memory.
"""

import argparse
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
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")


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
    words = [*DIE_WITH_PARENT, *NAMESPACES, "sh", SCRIPT, str(count), rate, ray, *command]
    nodes = subprocess.Popen(words, env=os.environ | variables)
    signal.signal(signal.SIGTERM, lambda *_: nodes.kill())
    while True:
        with suppress(KeyboardInterrupt):  # the command got the signal too, and ends its run
            code = nodes.wait()
            return 130 if code < 0 else code


def main(argv: Sequence[str]) -> int:
    parser = OneLineParser(__doc__, "python3 -m dataflow nodes [flags]")
    add = parser.add_argument
    add("--nodes", type=int, choices=(2, 3), help="number of nodes (default: all published setups)")
    add("--rate", choices=RATES, default="10gbit", help="rate of each node's link, with --nodes (default: %(default)s)")
    add("--suite", help="suite of dataflow run, with --nodes (default: that of the published setup)")
    add("--runs", type=int, default=5, help="processes per configuration (default: %(default)s)")
    add("--output-dir", type=Path, default=RESULTS / f"run-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}",
        help="folder of records and charts (default: results/run-<time>)")  # fmt: skip
    add("--command", help="run this command on the first node instead of a suite; {address} is that of the cluster")
    arguments, flags = parser.parse_known_args(argv)
    if (arguments.command or arguments.suite) and not arguments.nodes:
        raise UsageError("--command and --suite: give --nodes too")
    if arguments.command and arguments.suite:
        raise UsageError("--command and --suite: give one of them")
    require_namespaces()  # before the lock, for which a user may have to wait
    codes = []
    with only_measurement():
        for count, rate in [(arguments.nodes, arguments.rate)] if arguments.nodes else SETUPS:
            command = shlex.split((arguments.command or "").replace("{address}", ADDRESS))
            codes.append(run_setup(count, rate, command or suite_command(count, rate, arguments, flags)))
            if codes[-1] == 130:
                break
    return max(codes)


def suite_command(count: int, rate: str, arguments: argparse.Namespace, flags: Sequence[str]) -> list[str]:
    """Return the command that measures a suite on the nodes, by default the suite of the published setup."""
    suite = arguments.suite or ("cluster" if (count, rate) == (2, "10gbit") else "cluster-rates")
    placement = ["--placement", "policy=0,reference=1,reward=2"] if count == 3 else []
    folder = arguments.output_dir / f"{suite}-{count}-nodes-{rate}"
    words = [sys.executable, "-m", "dataflow", "run", "--suite", suite, "--runs", str(arguments.runs)]
    return [*words, *placement, *flags, "--output", str(folder), "--address", ADDRESS]
