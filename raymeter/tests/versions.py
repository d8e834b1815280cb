# SPDX-License-Identifier: Apache-2.0
"""Profile a program with known messages, with the Ray in each folder, and count the messages that are found.

python raymeter/tests/versions.py --output versions.json FOLDER ...
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from origin import load_origin

TESTS = Path(__file__).resolve().parent
SOURCE = TESTS.parent / "src"
PROGRAM = TESTS / "known_program.py"
MAX_SECONDS = 240

Route = tuple[str, str, str]  # who sends, who reads, and how

KNOWN: dict[Route, int] = {  # messages per step
    ("Rollout.generate", "driver", "result"): 1,
    ("driver", "Trainer.train", "argument"): 1,
    ("Rollout.split", "Trainer.read", "result"): 1,
    ("Rollout.route", "count", "result"): 1,
    ("Rollout.wait_long", "driver", "result"): 1,
    ("driver", "Trainer.read", "argument"): 2,
    ("driver", "Trainer.load", "put"): 0,  # it is put before the steps, and read in them
}


TASKS = {
    "Rollout.__init__",
    "Rollout.generate",
    "Rollout.split",
    "Rollout.route",
    "Rollout.wait_long",
    "Trainer.__init__",
    "Trainer.train",
    "Trainer.read",
    "Trainer.load",
    "count",
}
TIMES = {"submitted", "deserialise", "execute", "store"}  # that Ray has of a task


def profile(folder: Path, paths: Sequence[str] = ()) -> dict[str, Any]:
    """Profile the program with these folders in front of Python's, and return the summary of its profile.

    Raise subprocess.CalledProcessError if the program fails.
    """
    environment = dict(os.environ)
    inherited = environment.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*paths, str(SOURCE), inherited]))
    command = [sys.executable, "-m", "raymeter", "--output", str(folder), str(PROGRAM)]
    subprocess.run(
        command,
        cwd=folder.parent,
        env=environment,
        check=True,
        capture_output=True,
        timeout=MAX_SECONDS,
    )
    summary: dict[str, Any] = json.loads((folder / "profile.json").read_text(encoding="utf-8"))
    return summary


def find_messages(summary: dict[str, Any]) -> dict[Route, int]:
    """Return the messages per step of each route."""
    found: dict[Route, int] = {}
    for message in summary["messages"]:
        readers = ", ".join(message["read_by"])
        route = message["sent_by"], readers, message["sent_as"]
        found[route] = found.get(route, 0) + round(message["per_step"])
    return found


def count_found(summary: dict[str, Any]) -> int:
    """Return how many of the known routes have as many messages per step as they should have."""
    found = find_messages(summary)
    return sum(1 for route, count in KNOWN.items() if found.get(route) == count)


def count_timed(folder: Path) -> int:
    """Return of how many of the known tasks Ray's own times are in a profile."""
    timed = set()
    for path in folder.glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["event"] == "task" and event.keys() >= TIMES:
                timed.add(event["name"])
    return len(TASKS & timed)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Find known messages with several versions of Ray."
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument(
        "folders", nargs="+", metavar="FOLDER", help="in which a version of Ray is installed"
    )
    arguments = parser.parse_args(words)
    records = []
    for ray_folder in arguments.folders:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "profile"
            summary = profile(folder, [str(Path(ray_folder).resolve())])
            timed = count_timed(folder)
        record = {"ray": summary["ray"], "missing": summary["missing"]}
        record["errors"] = sorted(summary["errors"].values())  # by which recording has ended
        record["origin"] = load_origin()
        record["known"] = len(KNOWN)
        record["found"] = count_found(summary)
        record["known_tasks"] = len(TASKS)
        record["timed_tasks"] = timed
        print(record)
        records.append(record)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
