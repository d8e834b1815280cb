"""Start the user's program with the recorder, and wait for it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO

from raymeter.errors import UserError

HOOK = "raymeter.inside.hook.add_to_runtime_env"
USERS_HOOK = "RAY_RUNTIME_ENV_HOOK"
REPORT_INTERVAL = "RAY_task_events_report_interval_ms"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def find_program(words: Sequence[str], is_module: bool) -> list[str]:
    """Return the words after the Python interpreter; raise UserError if there is no such script."""
    if not words:
        raise UserError(
            "no program: give a script and its arguments, such as raymeter train.py --lr 1e-4"
        )
    if is_module:
        return ["-m", *words]
    if not Path(words[0]).is_file():
        raise UserError(f"{words[0]}: no such script. Flags of your program go after the script")
    return [*words]


def environment_of(environment: Mapping[str, str], folder: Path, min_bytes: int) -> dict[str, str]:
    """Return the environment with which a program of Ray writes its events into a folder."""
    if environment.get("RAY_ADDRESS", "").startswith("ray://"):
        raise UserError(
            "RAY_ADDRESS=ray://: a client cannot be profiled. Start the program on a node of the cluster"
        )
    changed = dict(environment)
    package_folder = str(Path(__file__).resolve().parents[1])
    if (
        "site-packages" not in package_folder
    ):  # not installed: its folder must be found by the program
        paths = [environment.get("PYTHONPATH"), package_folder]
        changed["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    changed["RAYMETER_USERS_HOOK"] = environment.get(USERS_HOOK, "")
    changed[USERS_HOOK] = HOOK
    changed["RAYMETER_FOLDER"] = str(folder.resolve())
    changed["RAYMETER_MIN_BYTES"] = str(min_bytes)
    changed.setdefault(REPORT_INTERVAL, "200")
    return changed


def run_program(
    words: Sequence[str],
    environment: Mapping[str, str],
    watch: Callable[[int], AbstractContextManager] = nullcontext,
    output: IO[bytes] | None = None,
    folder: Path | None = None,
) -> int:
    """Run a program, and return its exit code. Signals go to the program.

    `watch(process id)` is open while the program runs. It is started in `folder`, and writes to `output`.
    """
    process = subprocess.Popen(
        [sys.executable, *words],
        env=dict(environment),
        stdout=output,
        stderr=output,
        cwd=folder,
    )
    earlier = {number: signal.getsignal(number) for number in SIGNALS}

    def pass_on(number: int, _: object) -> None:
        if number != signal.SIGINT:  # a terminal sends Ctrl-C to the program, too
            process.send_signal(number)

    for number in SIGNALS:
        signal.signal(number, pass_on)
    try:
        with watch(process.pid):
            code = process.wait()
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code  # of a signal, as shells say it
