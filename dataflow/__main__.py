# SPDX-License-Identifier: Apache-2.0
"""The laboratory: measure how long the messages of an RLHF data flow take, and compare the results.

    python3 -m dataflow run        measure configurations
    python3 -m dataflow list       show the configurations, and what this machine lacks for them
    python3 -m dataflow report     print tables of records, and draw charts
    python3 -m dataflow compare    compare two measurements
    python3 -m dataflow machine    measure what copies and page faults take on this machine
    python3 -m dataflow predict    say how long configurations take on a machine, from what copies take there
    python3 -m dataflow nodes      measure several nodes on this machine
    python3 -m dataflow replay     measure the messages of a program that raymeter has profiled
    python3 -m dataflow archive    join the records of a folder in one small file

`--help` after a verb shows its flags, and `--version` the version.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import packages_distributions, version
from pathlib import Path

# A user's folder can have a `common` of its own.
sys.path.insert(0, __file__.rpartition("/dataflow/")[0])

import common as common  # before other modules, because it checks the version of Python
from dataflow.errors import UsageError, did_you_mean, run_main

VERBS = (
    "run",
    "list",
    "report",
    "compare",
    "machine",
    "predict",
    "nodes",
    "replay",
    "archive",
)
PROFILE = "profile"  # what raymeter does


def main(argv: Sequence[str]) -> int:
    """Carry out a verb, and return its exit code; raise UsageError if it is unknown."""
    verb, *flags = argv or ["--help"]
    if verb in ("-h", "--help"):
        print(__doc__)
        return 0
    if verb == "--version":
        print(describe_version())
        return 0
    if verb not in VERBS:
        others = did_you_mean(verb, VERBS) or f": give {', '.join(VERBS)}"
        if verb == PROFILE:
            others = ": the program raymeter profiles, as in `raymeter train.py` (docs/profile.md)"
        raise UsageError(f"unknown verb {verb}{others}")
    return import_module(f"dataflow.commands.{verb}").main(flags)


def describe_version() -> str:
    """Return the name and the version of the project: those of pyproject.toml in a clone, else the installed ones."""
    import tomllib  # not above, because Python 3.10 lacks it, and `common` has to say so

    project_file = Path(__file__).parents[1] / "pyproject.toml"
    if project_file.exists():
        project = tomllib.loads(project_file.read_text(encoding="utf-8"))["project"]
        return f"{project['name']} {project['version']}"
    (name,) = packages_distributions()["dataflow"]
    return f"{name} {version(name)}"


def run() -> None:
    """Carry out the words of the command line, and end this process."""
    run_main(main, sys.argv[1:])


if __name__ == "__main__":
    run()
