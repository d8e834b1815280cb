# SPDX-License-Identifier: Apache-2.0
"""Say when, where and with which code something was measured. Nothing here needs a package."""

import hashlib
import os
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SECONDS = 10  # for git
# What is measured is written into results/, so its changes do not count.
CHANGES = ("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)results")


def describe_origin() -> dict[str, Any]:
    """Return the day (UTC), the commit, the cores, the model of the CPU, and the boot; None for an unknown value.

    The names are those of the environments in records of the suite. Times of two boots are not comparable.
    """
    changes = ask_git(*CHANGES)
    return {
        "day": f"{datetime.now(UTC):%Y-%m-%d}",
        "git_commit": ask_git("rev-parse", "HEAD"),
        "git_dirty": None if changes is None else bool(changes),
        "logical_cpus": len(os.sched_getaffinity(0)),
        "cpu_model": read_cpu_model(),
        "boot": hash_boot(),
    }


def ask_git(*arguments: str) -> str | None:
    """Return what git says about this project; None without git or its history."""
    try:
        return run_git(*arguments)
    except (OSError, subprocess.SubprocessError):
        return None


def run_git(*arguments: str) -> str:
    """Return what git prints about this project; raise OSError or SubprocessError if it cannot."""
    command = ("git", *arguments)
    here = Path(__file__).parent
    done = subprocess.run(
        command, cwd=here, capture_output=True, text=True, timeout=SECONDS, check=True
    )
    return done.stdout.strip()


def read_cpu_model() -> str | None:
    """Return the model as the kernel names it: "model name" on x86, "Model" on some ARM boards."""
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^(?:model name|Model)\s*:\s*(.+)", text, re.MULTILINE)
    return found[1] if found else None


def hash_boot() -> str:
    """Return a name of this start of the machine: only a part of a hash, which is enough to tell boots apart."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    return hashlib.sha256(boot).hexdigest()[:12]
