# SPDX-License-Identifier: Apache-2.0
"""Name what of a machine changes how long bytes take to move. Nothing here names the machine itself.

Two machines may have the same name of the CPU, and copy twice as fast as each other. These facts tell them apart.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

CPU = Path("/sys/devices/system/cpu/cpu0")
VIRTIO = Path("/sys/bus/virtio/devices")
BALLOON = "0x0005"  # the device of a virtual machine that gives memory back to its host
# Bits of its features (Linux, include/uapi/linux/virtio_balloon.h).
BALLOON_FEATURES = {
    0: "must tell host",
    1: "statistics",
    2: "deflate on out of memory",
    3: "free page hints",
    4: "page poison",
    5: "free page reporting",
}
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def read_cpu() -> dict[str, int]:
    """Return family, model and stepping of the CPU, those that the kernel names. ARM has other names."""
    text = Path("/proc/cpuinfo").read_text()
    found = re.findall(r"^(cpu family|model|stepping)\s*:\s*(\d+)$", text, re.MULTILINE)
    return {name.removeprefix("cpu "): int(value) for name, value in found}


def read_caches() -> dict[str, int]:
    """Return the bytes of each cache of the first core, as "L1 data"; a cache of several cores is named once."""
    caches = {}
    for folder in sorted((CPU / "cache").glob("index*")):
        level = (folder / "level").read_text().strip()
        kind = (folder / "type").read_text().strip().lower()
        text = (folder / "size").read_text().strip()
        name = f"L{level}" if kind == "unified" else f"L{level} {kind}"
        caches[name] = int(text[:-1]) * UNITS[text[-1]]
    return caches


def read_balloon() -> list[str] | None:
    """Return the features of the balloon; None if the machine has none."""
    for device in VIRTIO.glob("*"):
        if (device / "device").read_text().strip() == BALLOON:
            bits = (device / "features").read_text().strip()
            return [name for bit, name in BALLOON_FEATURES.items() if bits[bit : bit + 1] == "1"]
    return None


def read_number(path: Path) -> int:
    return int(path.read_text())


def read_chosen(path: Path) -> str:
    """Return the choice that the kernel shows in brackets."""
    text = path.read_text()
    found = re.search(r"\[(\w+)\]", text)
    return found[1] if found else text.strip()


def read_limit(name: str) -> str | None:
    """Return a limit of the container in which this process runs (control groups of version 2); None without one."""
    text = (Path("/sys/fs/cgroup") / name).read_text().strip()
    return None if text.startswith("max") else text


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
FACTS: dict[str, Callable[[], Any]] = {
    "cpu": read_cpu,
    "caches": read_caches,
    "balloon": read_balloon,
    # Free blocks of 2**order pages are given back to the host.
    "page_reporting_order": lambda: read_number(
        Path("/sys/module/page_reporting/parameters/page_reporting_order")
    ),
    "defragment_hugepages": lambda: read_chosen(HUGE_PAGES / "defrag"),
    "glibc": lambda: os.confstr("CS_GNU_LIBC_VERSION"),
    "governor": lambda: (CPU / "cpufreq" / "scaling_governor").read_text().strip(),
    "cpu_limit": lambda: read_limit("cpu.max"),
    "memory_limit": lambda: read_limit("memory.max"),
}


def read_facts() -> dict[str, Any]:
    """Return each fact; None for what this machine does not show, such as a governor in a virtual machine."""
    return {name: read_or_none(read) for name, read in FACTS.items()}


def read_or_none(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (OSError, ValueError):
        return None
