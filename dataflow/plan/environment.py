# SPDX-License-Identifier: Apache-2.0
"""Read and check the environment variables of --env, which all processes of a run get.

A variable that nothing reads would measure something else than its record says. So names and values that glibc passes
over without a word, and libraries that are not there, are found before a run starts.
"""

import re
import shlex
import subprocess
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from dataflow.errors import Skipped, did_you_mean
from dataflow.records.machine import PRIVATE

VARIABLES: dict[str, dict[str, str]] = tomllib.loads(
    (Path(__file__).parents[1] / "workers" / "variables.toml").read_text(encoding="utf-8")
)
# Flags that set variables of a section of their own name.
FLAGS_WITH_VARIABLES = ("retain_memory", "huge_pages")
# Of the driver and its guard, besides those of variables.toml (workers/variables.py, workers/cleanup.py).
OTHERS_OF_THE_SUITE = {"no_proxy", "NO_PROXY", "TMPDIR", "PYTHONSAFEPATH", "PYTHONOPTIMIZE"}
NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
# Folders in a value, which may be a list of paths or of name:value.
FOLDERS = re.compile(r"[^\s:=,;]*/")
# The older names of settings of glibc, and those that it has now (elf/dl-tunables.list).
TUNABLES = {
    "MALLOC_ARENA_MAX": "glibc.malloc.arena_max",
    "MALLOC_ARENA_TEST": "glibc.malloc.arena_test",
    "MALLOC_CHECK_": "glibc.malloc.check",
    "MALLOC_MMAP_MAX_": "glibc.malloc.mmap_max",
    "MALLOC_MMAP_THRESHOLD_": "glibc.malloc.mmap_threshold",
    "MALLOC_PERTURB_": "glibc.malloc.perturb",
    "MALLOC_TOP_PAD_": "glibc.malloc.top_pad",
    "MALLOC_TRIM_THRESHOLD_": "glibc.malloc.trim_threshold",
}
HUGE_PAGES_TUNABLE = "glibc.malloc.hugetlb"
TUNABLES_VARIABLE = "GLIBC_TUNABLES"
PRELOAD = "LD_PRELOAD"
JEMALLOC_VARIABLE = "MALLOC_CONF"
LOADER = re.compile(r"/\S*/ld-(?:linux\S*|2\S*)\.so\S*")


def parse_environment(text: str | None) -> dict[str, str]:
    """Return the variables of a text such as "A=1 B='x y'", which is split as a shell does; {} for None.

    Raise ValueError, whose text says what to give, for a part without "=", a wrong or repeated name, or an open quote.
    """
    try:
        parts = shlex.split(text or "")
    except ValueError:
        raise ValueError("close every quote") from None
    variables: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(
                f"{part} has no =: give NAME=VALUE, several of them separated by spaces"
            )
        if not NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is no name of a variable: give letters, digits and _, and no digit first"
            )
        if name in variables:
            raise ValueError(f"{name} is there twice: give it once")
        variables[name] = value
    return variables


def parse_environment_text(text: str) -> str:
    """Return the text of --env; raise ValueError if it has no variable, or if it cannot be read."""
    if not parse_environment(text):
        raise ValueError("give NAME=VALUE, several of them separated by spaces")
    return text


def normalise_environment(text: str | None) -> str | None:
    """Return the variables as records have them: by name, and without the folders of paths."""
    if text is None:
        return None
    parts = []
    for name, value in sorted(parse_environment(text).items()):
        public_value = FOLDERS.sub("", value)
        parts.append(shlex.quote(f"{name}={public_value}"))
    return " ".join(parts)


def preloaded_paths(variables: Mapping[str, str]) -> list[str]:
    """Return the libraries of LD_PRELOAD, which the loader separates at spaces and colons."""
    return re.split("[: ]+", variables[PRELOAD].strip(": ")) if variables.get(PRELOAD) else []


def find_environment_errors(
    text: str | None, has_address: bool, flags: Collection[str]
) -> Iterator[str]:
    """Yield the errors of --env that are the same on every machine.

    flags: those of FLAGS_WITH_VARIABLES that are given.
    """
    variables = parse_environment(text)
    if variables and has_address:
        yield (
            "--env: the processes of an existing cluster do not get it: leave it out, and set the variables where "
            "you start the cluster (ray start)"
        )
    for name in variables:
        if error := explain_name(name, flags):
            yield f"--env {name}: {error}"
    yield from find_allocator_errors(variables, flags)


def explain_name(name: str, flags: Collection[str]) -> str:
    """Return why --env may not set a variable, and what to do; "" if it may."""
    of_the_suite = set(OTHERS_OF_THE_SUITE)
    for section, names in VARIABLES.items():
        if section not in FLAGS_WITH_VARIABLES:
            of_the_suite |= names.keys()
        elif section in flags and name in names:
            dashed = section.replace("_", "-")
            return f"--{dashed} sets it too: leave one of them out"
    if name in of_the_suite:
        return "the suite sets it itself: leave it out"
    upper = name.upper()
    if PRIVATE.search(upper) or "PROXY" in upper:
        return (
            "records are published, and its value may be a secret or an address: leave it out, and export it in your "
            "shell"
        )
    is_of_malloc = name.startswith("MALLOC_") and name != JEMALLOC_VARIABLE
    if is_of_malloc and name not in TUNABLES:
        advice = did_you_mean(name, TUNABLES) or ": leave it out"
        return f"neither glibc nor jemalloc reads it{advice}"
    return ""


def find_allocator_errors(variables: Mapping[str, str], flags: Collection[str]) -> Iterator[str]:
    """Yield the errors of variables for an allocator that the processes do not use."""
    paths = preloaded_paths(variables)
    for path in paths:
        if not path.startswith("/"):
            yield f"--env {PRELOAD}={path}: give the full path of the library"
    file_names = [Path(path).name for path in paths]
    allocators = [name for name in file_names if "malloc" in name]
    if JEMALLOC_VARIABLE in variables and not allocators:
        yield (
            f"--env {JEMALLOC_VARIABLE}: only jemalloc reads it: give {PRELOAD} with the full path of libjemalloc too"
        )
    of_glibc = [name for name in variables if name in TUNABLES]
    if "glibc.malloc." in variables.get(TUNABLES_VARIABLE, ""):
        of_glibc.append(TUNABLES_VARIABLE)
    if "retain_memory" in flags:
        of_glibc.append("--retain-memory")
    if allocators and of_glibc:
        names = ", ".join(of_glibc)
        yield (
            f"--env {PRELOAD}: {allocators[0]} takes the place of glibc's allocator, and does not read {names}: leave "
            "one of them out"
        )


def require_effect(text: str | None, has_huge_pages: bool) -> None:
    """Raise Skipped if this machine would pass over a variable of --env: a library, or a setting of glibc.

    Neither the loader nor glibc says so with an exit code. The reasons name no folders, because records have them.
    has_huge_pages: the kernel gives transparent huge pages to a process that asks for them.
    """
    variables = parse_environment(text)
    for path in preloaded_paths(variables):
        if not Path(path).is_file():
            raise Skipped(
                f"--env {PRELOAD}: there is no {Path(path).name} at its path: install it, or give another path"
            )
    wanted = wanted_tunables(variables)
    if not wanted:
        return
    known = read_tunables(variables)
    for name, value in wanted.items():
        if not known:
            raise Skipped(
                f"--env: this machine cannot say whether glibc takes {name}={value}: it needs glibc 2.33 or newer"
            )
        if name not in known:
            raise Skipped(f"--env: glibc of this machine has no {name}: leave it out")
        if not is_equal(known[name], value):
            raise Skipped(
                f"--env: glibc of this machine does not take {name}={value} (it uses {known[name]}): give another value"
            )
    if wanted.get(HUGE_PAGES_TUNABLE) == "1" and not has_huge_pages:
        raise Skipped(f"--env: this machine gives no huge pages for {HUGE_PAGES_TUNABLE}=1")


def wanted_tunables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of glibc that variables ask for, by the names that glibc has for them now."""
    wanted = {TUNABLES[name]: value for name, value in variables.items() if name in TUNABLES}
    for part in filter(None, variables.get(TUNABLES_VARIABLE, "").split(":")):
        name, _, value = part.partition("=")
        wanted[name] = value
    return wanted


def read_tunables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of glibc in a process with these variables, as its loader lists them; {} if it cannot."""
    loader = LOADER.search(Path("/proc/self/maps").read_text())
    if not loader:
        return {}
    settings = {
        name: variables[name] for name in (TUNABLES_VARIABLE, *TUNABLES) if name in variables
    }
    done = subprocess.run(
        [loader[0], "--list-tunables"], env=settings, capture_output=True, check=False, text=True
    )
    # A line is "glibc.malloc.arena_max: 0x1 (min: 0x1, max: 0xffffffffffffffff)".
    return dict(re.findall(r"^([\w.]+): (\S*)", done.stdout, re.MULTILINE))


def is_equal(listed: str, value: str) -> bool:
    """Return whether glibc lists a value that was asked for. It may list a number in hexadecimal."""
    try:
        return int(listed, 0) == int(value, 0)
    except ValueError:
        return listed == value
