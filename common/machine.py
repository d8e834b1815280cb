"""Describe the machine and the versions that a measurement depends on. An unknown value is None."""

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

CPUINFO = Path("/proc/cpuinfo")


def _cpu_model() -> str | None:
    match = re.search(r"^(?:model name|Model)\s*:\s*(.+)", CPUINFO.read_text(), re.MULTILINE)
    return match[1].strip() if match else platform.processor() or None


def _versions() -> dict[str, str]:
    versions = {}
    for name in ("ray", "torch", "numpy", "cupy-cuda12x", "cupy-cuda13x", "nixl"):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _git(*arguments: str) -> str:
    here = Path(__file__).parent
    command = ["git", *arguments]
    return subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


PROBES: dict[str, Callable[[], Any]] = {
    "cpu_model": _cpu_model,
    "virtual_machine": lambda: "hypervisor" in CPUINFO.read_text(),
    # Another boot is another start of the machine, or another machine. Only a part of the hash, to tell them apart.
    "boot": lambda: hashlib.sha256(Path("/proc/sys/kernel/random/boot_id").read_bytes()).hexdigest()[:12],
    "logical_cpus": lambda: len(os.sched_getaffinity(0)),
    "memory_gib": lambda: round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
    "transparent_hugepages": lambda: Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip(),
    "kernel": platform.release,
    "python": platform.python_version,
    "versions": _versions,
    "gpus": lambda: [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
    "git_commit": lambda: _git("rev-parse", "HEAD"),
    "git_dirty": lambda: bool(_git("status", "--porcelain", "--untracked-files=no")),
}


def describe_machine() -> dict[str, Any]:
    environment: dict[str, Any] = dict.fromkeys(PROBES)
    for name, probe in PROBES.items():
        with suppress(Exception):  # a machine where a probe fails can be measured
            environment[name] = probe()
    return environment
