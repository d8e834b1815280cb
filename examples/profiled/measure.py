"""Profile the programs of this folder, try the advice, and measure what profiling costs.

    python3 -m examples.profiled.measure programs              each program's profile
    python3 -m examples.profiled.measure advice                the time that each change saves, and the removed work
    python3 -m examples.profiled.measure cost                  the programs with and without the profiler, in pairs
    python3 -m examples.profiled.measure process               the same for a small message and for memory
    python3 -m examples.profiled.measure versions FOLDER...    known messages, with the Ray in each folder
    python3 -m examples.profiled.measure page                  write the records into docs/profile.md

Records go to results/evidence/profile/.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import redirect_stdout
from dataclasses import asdict
from io import StringIO
from itertools import product
from operator import itemgetter
from pathlib import Path
from statistics import median

from dataflow.commands.profile import add_profiler, measure_fault_seconds
from dataflow.profile.messages import load_profile, make_profile
from dataflow.profile.output import advise, print_profile
from dataflow.workers.variables import RETAIN_MEMORY

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "results" / "evidence" / "profile"
RUNS = 5
PAGE_WIDTH = 100  # characters of what the page shows
PROGRAMS = {
    "through-driver": ["examples/profiled/through_driver.py"],
    "verl": ["examples/profiled/verl_controller.py"],
    "rllib": ["examples/profiled/rllib_ppo.py"],
    "shuffle": ["-m", "ray.experimental.shuffle", "--num-partitions", "8", "--partition-size", "20e6",
                "--object-store-memory", "1e9"],
}  # fmt: skip
STEPS = {"shuffle": "shuffle_reduce"}  # what ends a step, if the command does not find it
COSTS = {name: PROGRAMS[name] for name in ("verl", "rllib", "shuffle")}
COSTS["store refs"] = [
    "simulate_chat_learn_data_flow.py",
    "--transport",
    "refs",
    "--iterations",
    "20",
]
VARIABLES = {
    "page faults": RETAIN_MEMORY,
    "tensors in the pickle": {"RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"},
}
# Program and cause whose advice is followed (none: the program as it is).
CHANGES = [
    ("through_driver", "through the driver"),
    *product(("through_driver", "verl_controller"), ("", *VARIABLES)),
]
PROCESS = """
import json, ray, timeit
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
context, reference, found = ray._private.worker.global_worker.get_serialization_context(), ray.put(1), {}
for name, call in {"serialising": lambda: context.serialize(1), "ray.get of": lambda: ray.get(reference)}.items():
    found[f"{name} one number (µs)"] = timeit.timeit(call, "gc.enable()", number=5000) / 5000 * 1e6
for _ in range(25_000):
    ray.put(bytes(110_000))
(kilobytes,) = (int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))
found["private memory of the driver after 25,000 messages of 107 KiB (MiB)"] = kilobytes / 1024
print(json.dumps(found))
"""


def run(
    words: list[str], side: str = "with", step: str | None = None, **variables: str
) -> tuple[float, str, dict]:
    """Run a program, and return its seconds, its output, and its profile (without paths of this machine), if any."""
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        environment = os.environ | {"PYTHONPATH": str(ROOT), **variables}
        if side == "with":
            environment = add_profiler(environment, Path(folder))
        command, start = [sys.executable, *words], time.perf_counter()
        output = subprocess.check_output(command, cwd=ROOT, env=environment, text=True)
        seconds = time.perf_counter() - start
        profile = {}
        if side == "with":
            profile = asdict(make_profile(Path(folder), measure_fault_seconds(), step))
    text = json.dumps(profile).replace(f"{ROOT}/", "").replace(sys.prefix, "")
    return seconds, output, json.loads(text)


def load(name: str) -> dict:
    return json.loads((RECORDS / f"{name}.json").read_text())


def try_advice() -> list[dict]:
    """Return the seconds per step of each program as it is and with each change, interleaved."""
    steps, predicted = defaultdict(list), defaultdict(list)
    for _ in range(RUNS):
        for name, cause in random.sample(CHANGES, len(CHANGES)):
            changed = "by_reference" if cause == "through the driver" else name
            profile = run([f"examples/profiled/{changed}.py"], **VARIABLES.get(cause, {}))[2]
            steps[name, cause].append(profile["step_seconds"])
            if cause == "":
                for advice in advise(load_profile(profile)):
                    predicted[name, advice.cause].append(advice.seconds)
    return [{"program": f"{name}.py", "cause": cause, "seconds_per_step": steps[name, ""],
             "after": steps[name, cause], "predicted_to_save": predicted[name, cause] or [0.0]}
            for name, cause in CHANGES if cause]  # fmt: skip


def measure_pairs(programs: dict[str, list[str]]) -> dict[str, dict[str, list[float]]]:
    """Return what the program "process" prints as JSON, and the seconds of others, with and without the profiler."""
    found = defaultdict(lambda: {"with": [], "without": []})
    for _ in range(RUNS):
        for name, words in programs.items():
            for side in random.sample(["with", "without"], 2):
                seconds, output, _ = run(words, side)
                for key, value in (
                    json.loads(output) if name == "process" else {name: seconds}
                ).items():
                    found[key][side].append(value)
    return found


def try_versions(folders: list[str]) -> list[dict]:
    """Profile the known program with the Ray in each folder, and return the counts of its messages."""
    records = []
    for folder in folders:
        path = os.pathsep.join([str(Path(folder).resolve()), str(ROOT)])
        profile = run(["tests/profile/known_program.py"], step="Rollout.generate", PYTHONPATH=path)[
            2
        ]
        counts = {
            f"{m['place']} -> {', '.join(m['readers'])}": m["count"] for m in profile["messages"]
        }
        records.append({"ray": profile["ray"], "counts": counts, "missing": profile["missing"]})
    return records


def describe(values: list[float], form: str) -> str:
    """Return the median, the smallest and the largest value in this format."""
    return form.format(median(values), min(values), max(values))


def make_tables() -> dict[str, list[tuple[str, ...]]]:
    """Return the headers and rows of the tables of the page."""
    advice = [
        (
            "program",
            "advice",
            "ms per step",
            "with the change",
            "saved",
            "work that it removes, at most",
        )
    ]
    for row in load("advice"):
        before, after = (
            [seconds * 1e3 for seconds in row[key]] for key in ("seconds_per_step", "after")
        )
        times = [describe(side, "{:,.0f} ({:,.0f} to {:,.0f})") for side in (before, after)]
        saved, predicted = median(before) - median(after), median(row["predicted_to_save"]) * 1e3
        advice.append(
            (f"`{row['program']}`", row["cause"], *times, f"{saved:,.0f}", f"{predicted:,.0f}")
        )
    cost = [
        (
            "program",
            "seconds without",
            "seconds with",
            "more, median of the pairs (smallest, largest)",
        )
    ]
    for name, of in load("cost").items():
        ratios = [one / other - 1 for one, other in zip(of["with"], of["without"], strict=True)]
        medians = [f"{median(of[side]):.1f}" for side in ("without", "with")]
        cost.append((name, *medians, describe(ratios, "{:+.1%} ({:+.1%}, {:+.1%})")))
    process = [("median of five processes (smallest, largest)", "without the profiler", "with it")]
    for name, of in load("process").items():
        process.append(
            (name, *(describe(of[side], "{:.1f} ({:.1f}, {:.1f})") for side in ("without", "with")))
        )
    versions = [("Ray", "known messages that were found", "functions that it does not have")]
    for row in load("versions"):
        assert row["counts"] == load("versions")[0]["counts"], (
            "the versions differ: say so in the page"
        )
        count = f"{len(row['counts'])} of 8, with {sum(row['counts'].values())} of 30 sends"
        versions.append((row["ray"], count, ", ".join(row["missing"]) or "-"))
    return {"advice": advice, "cost": cost, "process": process, "versions": versions}


def write_page(folder: Path = ROOT) -> None:
    """Write the records between their marks in docs/profile.md of a folder."""
    # Not above, because .venv-profiled has no package that only the suite needs.
    from dataflow.report.render import rewrite_pages
    from dataflow.report.tables import Column, Section, make_table

    built = []
    for name, (headers, *rows) in make_tables().items():
        columns = [
            Column(header, itemgetter(index), is_text=True) for index, header in enumerate(headers)
        ]
        built.append(Section(f"profile-{name}", "", table=make_table(rows, columns)))
    for name in PROGRAMS:
        with redirect_stdout(StringIO()) as printed:
            print_profile(load_profile(load(name)), PAGE_WIDTH)
        built.append(Section(f"profile-{name}", "", f"```\n{printed.getvalue()}```"))
    rewrite_pages(folder, built)


if __name__ == "__main__":
    what, *folders = sys.argv[1:] or [""]
    actions = {
        "programs": lambda: (
            (name, run(words, step=STEPS.get(name))[2]) for name, words in PROGRAMS.items()
        ),
        "advice": lambda: [("advice", try_advice())],
        "cost": lambda: [("cost", measure_pairs(COSTS))],
        "process": lambda: [("process", measure_pairs({"process": ["-c", PROCESS]}))],
        "versions": lambda: [("versions", try_versions(folders))],
        "page": write_page,
    }
    for name, record in actions.get(what, lambda: sys.exit(__doc__))() or ():
        (RECORDS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
