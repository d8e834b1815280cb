# SPDX-License-Identifier: Apache-2.0
"""Measure several nodes on one Linux machine: each node has its own network, its own shared memory and its own raylet.

    sudo .venv/bin/python -m dataflow nodes                                    suite cluster on two nodes, five runs
    sudo .venv/bin/python -m dataflow nodes --rate 1gbit "graph shm" --runs 3  configurations and flags of run
    sudo .venv/bin/python -m dataflow nodes --nodes 3 --command "SCRIPT --address {address} ..."

Without --command, it says what it would measure and for how long, and asks before it begins; --yes begins at once.
The nodes are network namespaces that a bridge connects, and the kernel limits the rate of each link (tc tbf). All of
them run in one process namespace whose first process is a child of this one. If this process ends, even by kill -9,
the kernel ends all processes of the nodes, and removes their networks and their memory.
"""

import math
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from common.ray_settings import NODES_CLUSTER
from common.record import only_measurement
from dataflow.catalogue.catalogue import suites
from dataflow.commands.run import parse_arguments, says_what_to_measure
from dataflow.errors import INTERRUPTS, UsageError
from dataflow.plan.command_line import VerbParser
from dataflow.plan.plan import LINK_VARIABLE
from dataflow.workers.cleanup import ROOT

RATES = ("1gbit", "10gbit", "25gbit")
ADDRESS = "10.77.0.1:6379"
DEFAULT_SUITE = ("--suite", "cluster")
DEFAULT_RUN = (*DEFAULT_SUITE, "--runs", "5")
# The mean from one run to the next of the 99 runs in results/published/cluster and cluster-stages.
SECONDS_PER_RUN = 30
SI_KERNEL = 0x80  # si_code of a signal that the kernel has sent, such as the Ctrl-C of a terminal
INTERRUPT_SECONDS = 10  # for the command to end after a SIGINT that it may have got, too
NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def run_setup(count: int, rate: str, command: Sequence[str]) -> int:
    """Run a command on the first of several nodes, and return an exit code: see wait_for_nodes.

    It is 1 if a node could not be set up.
    """
    variables = {
        **NODES_CLUSTER,
        # Of each node, unlike the lock of this process.
        "TMPDIR": "/dev/shm/tmp",
        "DATA_FLOW_LOCK": "/dev/shm",
        LINK_VARIABLE: f"{rate.removesuffix('gbit')} Gbit/s",
    }
    script = ROOT / "dataflow" / "nodes" / "namespaces.sh"
    ray = Path(sys.executable).with_name("ray")
    setup = ["sh", str(script), str(count), rate, str(ray)]
    words = ["setpriv", "--pdeathsig", "KILL", *NAMESPACES, *setup, *command]
    return wait_for_nodes(subprocess.Popen(words, env=os.environ | variables))


def wait_for_nodes(nodes: subprocess.Popen) -> int:
    """Wait for the end of the nodes, and return the command's exit code: 128 + n if signal n ended it.

    It is 130 if a signal ended the nodes: one to their own first processes, or one to this process. The Ctrl-C of a
    terminal reaches the command, too, which ends its run. A SIGINT that was sent with kill may not have reached it, so
    the nodes are killed if it has not ended in INTERRUPT_SECONDS. After any other signal, they are killed at once.
    """
    watched = {signal.SIGCHLD}
    for number in INTERRUPTS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            watched.add(number)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        while nodes.poll() is None:
            received = signal.sigwaitinfo(watched)
            if received.si_signo == signal.SIGINT:
                if received.si_code != SI_KERNEL:
                    kill_later(nodes)
            elif received.si_signo != signal.SIGCHLD:
                nodes.kill()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = nodes.returncode
    return 130 if code < 0 else code


def kill_later(nodes: subprocess.Popen) -> None:
    """Kill the nodes after INTERRUPT_SECONDS, if they have not ended by then."""
    timer = threading.Timer(INTERRUPT_SECONDS, nodes.kill)
    timer.daemon = True
    timer.start()


def main(argv: Sequence[str]) -> int:
    """Run a command, or the verb `run`, on several nodes; return its exit code. Raise UsageError if it cannot begin.

    It waits until other measurements on this machine have ended.
    """
    parser = VerbParser(
        __doc__, "python3 -m dataflow nodes [flags of this verb] [configurations and flags of run]"
    )
    add = parser.add_argument
    add(
        "--nodes",
        type=int,
        choices=(2, 3),
        default=2,
        help="number of nodes (default: %(default)s)",
    )
    add(
        "--rate",
        choices=RATES,
        default="10gbit",
        help="rate of each node's link (default: %(default)s)",
    )
    add("--command", help="run this command on the first node; {address} is that of the cluster")
    add("--yes", action="store_true", help="begin without a question")
    arguments, words = parser.parse_known_args(argv)
    if arguments.command is None:
        words = complete_run(words)
        command = [sys.executable, "-m", "dataflow", "run", *words, "--address", ADDRESS]
        question = describe_run(words, arguments.nodes, arguments.rate)
        print(question, flush=True)
    else:
        command = read_command(arguments.command, words)
    require_namespaces()
    if arguments.command is None and not arguments.yes:
        confirm()
    with only_measurement():
        return run_setup(arguments.nodes, arguments.rate, command)


def complete_run(words: Sequence[str]) -> list[str]:
    """Return the words of the verb `run`, with DEFAULT_SUITE if they don't say what to measure."""
    if not words:
        return [*DEFAULT_RUN]
    return [*words] if says_what_to_measure(words) else [*DEFAULT_SUITE, *words]


def read_command(text: str, others: Sequence[str]) -> list[str]:
    """Return the words of --command; raise UsageError if it has none, or if there are others beside it."""
    if others:
        raise UsageError(f"--command has all words of a command: put {shlex.join(others)} into it")
    try:
        command = shlex.split(text.replace("{address}", ADDRESS))
    except ValueError as error:  # as for a quote that is not closed
        raise UsageError(f"--command {text}: {error}") from None
    if not command:
        raise UsageError("--command is empty: give a command, or leave it out to measure a suite")
    return command


def describe_run(words: Sequence[str], nodes: int, rate: str) -> str:
    """Return what would be measured, for how long, and as which user; raise UsageError for wrong words."""
    arguments, _ = parse_arguments(words)
    if arguments.configurations:
        count = len(arguments.configurations)
    else:
        count = sum(len(part.names) for part in suites()[arguments.suite])
    total = count * arguments.runs
    minutes = math.ceil(total * SECONDS_PER_RUN / 60)
    what = (
        f"suite {arguments.suite}, {count} configurations"
        if arguments.suite
        else f"{count} configurations"
    )
    return (
        f"{nodes} nodes at {rate}: {what} x {arguments.runs} runs = {total} runs, about {minutes} minutes\n"
        "It needs root, to make network namespaces and to limit their links, and removes them at the end."
    )


def require_namespaces() -> None:
    """Raise UsageError if this process may not make nodes."""
    if os.geteuid():
        raise UsageError(
            "network namespaces need root: run sudo .venv/bin/python -m dataflow nodes ..."
        )
    tried = subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False)
    if tried.returncode:
        raise UsageError(
            "the kernel does not allow network namespaces here: a container needs --privileged"
        )


def confirm() -> None:
    """Ask whether to begin; raise UsageError if the answer is no, or if nobody can answer."""
    if not sys.stdin.isatty():
        raise UsageError("nobody can answer, because this is no terminal: give --yes to begin")
    answer = input("Begin? [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError("nothing was measured")
