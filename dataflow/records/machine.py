# SPDX-License-Identifier: Apache-2.0
"""Describe the machine, the versions and the commit that a measurement depends on. An unknown value is None.

Records are published, so they have no host name, user or path, and only environment variables that change how bytes
move.
"""

import ast
import ctypes
import hashlib
import os
import re
import sys
from collections.abc import Callable, Collection
from importlib import metadata
from pathlib import Path
from typing import Any

from common.facts import HUGE_PAGES
from common.record import describe_machine

# Settings that change how bytes move. Names that may hold a secret, a host, a user or an address are left out.
VARIABLE = re.compile(
    "(RAY_|MALLOC_|MIMALLOC_|OMP_|MKL_|TORCH_|PYTORCH_|NCCL_|UCX_|GLOO_|CUDA_|THP_)|"
    "(GLIBC_TUNABLES|LD_PRELOAD)$"
)
PRIVATE = re.compile(
    "TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH|ADDRESS|HOST|USER|URI|URL|EMAIL|_IP|JSON|RUNTIME_ENV"
)
DISTRIBUTIONS = ("ray", "torch", "numpy", "cupy-cuda12x", "cupy-cuda13x", "nixl")
# A flow is a value that the record has, and nothing is cleaned up while the clock runs.
CLOCK_MODULES = re.compile(
    r"common\.(timing|cuda_ipc|cuda_device)$|"
    r"dataflow\.(measure\.(loop|warm_up|verified)$|(endpoints|transports|workers|studies)\."
    r"(?!.*(flow|cleanup)$))"
)
# Records that differ in one of these are of different machines. The records of one table also have one boot: times of
# another start of the machine, or of another machine of the same kind, are not comparable.
HARDWARE_KEYS = (
    "cpu_model",
    "logical_cpus",
    "memory_gib",
    "gpus",
    "gpu_driver",
    "cuda",
    "nccl",
    "python",
    "versions",
)
MACHINE_KEYS = (
    *HARDWARE_KEYS,
    "kernel",
    "transparent_hugepages",
    "shared_memory_hugepages",
    "boot",
)
# Of records from before a value was stored.
OLDER_VALUES = {"shared_memory_hugepages": "never"}
PRIVATE_HUGE_PAGES = HUGE_PAGES / "enabled"
MOUNTS = Path("/proc/mounts")
# A line of it with the options of /dev/shm, if its files are in memory.
SHARED_MEMORY = re.compile(r"^\S+ /dev/shm tmpfs (\S+)", re.MULTILINE)


def loaded_nccl_version() -> tuple[int, int, int] | None:
    """Return the version of the NCCL that runs in this process; None if torch, or another library, has not loaded one.

    Not torch.cuda.nccl.version(), which is the version that torch was built with. The linker knows a library by its
    name, so this asks the one that torch and cupy use. From 2.9 on, ncclGetVersion returns 10,000 x major + 100 x minor
    + patch (NCCL, src/nccl.h.in).
    """
    if "libnccl.so" not in Path("/proc/self/maps").read_text():
        return None
    library = ctypes.CDLL("libnccl.so.2")
    code = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(code))
    major, rest = divmod(code.value, 10_000)
    minor, patch = divmod(rest, 100)
    return major, minor, patch


def describe_nccl() -> str | None:
    version = loaded_nccl_version()
    return ".".join(map(str, version)) if version else None


def read_versions() -> dict[str, str]:
    """Return the versions of the installed distributions."""
    versions = {}
    for name in DISTRIBUTIONS:
        for found in metadata.distributions(name=name):
            versions[found.name] = found.version
    return versions


def read_variables() -> dict[str, str]:
    """Return the environment variables that change how bytes move, without the folders of paths."""
    variables = {}
    for name, value in sorted(os.environ.items()):
        is_private = PRIVATE.search(name.upper())
        if VARIABLE.match(name) and not is_private:
            variables[name] = Path(value).name
    return variables


def read_shared_memory_huge_pages() -> str | None:
    """Return for which files in /dev/shm the kernel gives huge pages; None if they are not in memory.

    That is the option huge= of the mount. Without it, no file has them (Linux, Documentation/filesystems/tmpfs.rst).
    """
    mounts = SHARED_MEMORY.findall(MOUNTS.read_text())
    if not mounts:
        return None
    options = mounts[-1].split(",")
    for option in options:
        if option.startswith("huge="):
            return option.removeprefix("huge=")
    return "never"


# What describe_machine does not ask, or not of as many distributions.
PROBES: dict[str, Callable[[], Any]] = {
    "virtual_machine": lambda: "hypervisor" in Path("/proc/cpuinfo").read_text(),
    "transparent_hugepages": lambda: PRIVATE_HUGE_PAGES.read_text().strip(),
    "shared_memory_hugepages": read_shared_memory_huge_pages,
    "versions": read_versions,
    "nccl": describe_nccl,  # of the driver process; a process that has not imported torch has none
    "variables": read_variables,
}


def machine_values(environment: dict[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """Return the values by which machines are told apart; None for those that are not known."""
    known = OLDER_VALUES | environment
    return {key: known.get(key) or None for key in keys}


def hash_clock_code() -> str:
    """Return a hash (12 hexadecimal digits) of the modules inside the clock that this process has imported.

    Comments, docstrings and the layout of the text do not change it; another minor version of Python can. Times of
    different code are not combined.
    """
    digest = hashlib.sha256()
    for name, module in sorted(sys.modules.items()):
        if (
            CLOCK_MODULES.match(name)
            and module.__file__
            and not module.__file__.endswith("__init__.py")
        ):
            tree = ast.parse(Path(module.__file__).read_bytes())
            for node in ast.walk(tree):
                match getattr(node, "body", None):
                    case [ast.Expr(ast.Constant()), *rest]:
                        node.body = rest  # type: ignore[attr-defined]
            digest.update(f"{name} {ast.dump(tree)}".encode())
    # The variables of --retain-memory.
    digest.update((Path(__file__).parents[1] / "workers" / "variables.toml").read_bytes())
    return digest.hexdigest()[:12]


def describe_environment() -> dict[str, Any]:
    """Return each value, and under "failed_probes" the type of the error of each program that is there and failed."""
    environment = describe_machine()
    environment |= dict.fromkeys(PROBES)
    failed = {}
    for name, probe in PROBES.items():
        try:
            environment[name] = probe()
        except FileNotFoundError:
            pass  # the machine does not have it, such as a GPU's driver
        except Exception as error:  # the run continues on a machine where a probe fails
            failed[name] = type(error).__name__
    return environment | {"failed_probes": failed}


def describe_gpus(environment: dict[str, Any]) -> str:
    """Return the cards, and the versions of driver, CUDA and NCCL with which they were used."""
    gpus = environment.get("gpus")
    if not gpus:
        return "no GPU"
    texts = [f"{len(gpus)} x {gpus[0]}"]
    names = {"gpu_driver": "driver", "cuda": "CUDA", "nccl": "NCCL"}
    texts += [f"{name} {environment[key]}" for key, name in names.items() if environment.get(key)]
    return ", ".join(texts)


def chosen_huge_pages(environment: dict[str, Any]) -> str | None:
    """Return for which private memory the kernel gives huge pages: always, madvise or never; None if it is unknown."""
    setting = environment.get("transparent_hugepages") or ""
    chosen = re.search(r"\[(\w+)\]", setting)
    return chosen[1] if chosen else None


def shared_huge_pages(environment: dict[str, Any]) -> str | None:
    """Return for which files in /dev/shm the kernel gives huge pages; None if they are not in memory."""
    return (OLDER_VALUES | environment)["shared_memory_hugepages"]


def machine_line(environment: dict[str, Any]) -> str:
    """Return the machine and its versions in one line. Unknown values are shown as None, or huge pages as unknown."""
    huge_pages = chosen_huge_pages(environment) or "unknown"
    shared = shared_huge_pages(environment) or "never"
    if shared != "never":
        huge_pages += f", in /dev/shm {shared}"
    cores = "virtual CPUs" if environment.get("virtual_machine") else "cores"
    parts = [
        f"{environment.get('logical_cpus')} {cores} of {environment.get('cpu_model')}",
        f"{environment.get('memory_gib')} GiB",
        describe_gpus(environment),
        f"kernel {environment.get('kernel')}",
        f"transparent huge pages {huge_pages}",
        f"Python {environment.get('python')}",
    ]
    versions = environment.get("versions") or {}
    for name, version in versions.items():
        is_used = environment.get("gpus") or not name.startswith("cupy")
        if is_used:
            parts.append(f"{name} {version}")
    return ", ".join(parts)
