"""Profile the programs of this folder, try the advice, and measure what profiling costs.

    python3 -m examples.profiled.measure programs              each program's profile as text
    python3 -m examples.profiled.measure advice                the time that each change saves, and the removed work
    python3 -m examples.profiled.measure cost                  the programs with and without the profiler, in pairs
    python3 -m examples.profiled.measure process               the same for a small message and for memory
    python3 -m examples.profiled.measure versions FOLDER...    known messages, with the Ray in each folder
    python3 -m examples.profiled.measure page                  write the records into docs/profile.md

Records go to results/evidence/profile/.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import median

from dataflow.commands.profile import run_program
from dataflow.profile.messages import make_profile
from dataflow.profile.output import advise, print_profile

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "results" / "evidence" / "profile"
PAGE = ROOT / "docs" / "profile.md"
RUNS = 5
SHUFFLE = ["-m", "ray.experimental.shuffle", "--num-partitions", "8", "--partition-size", "20e6",
           "--object-store-memory", "1e9"]  # fmt: skip
PROGRAMS = {
    "through-driver": ["examples/profiled/through_driver.py"],
    "verl": ["examples/profiled/verl_controller.py"],
    "rllib": ["examples/profiled/rllib_ppo.py"],
    "shuffle": ["--step", "shuffle_reduce", *SHUFFLE],
}
RETAIN = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000",
          "MALLOC_TOP_PAD_": "67108864", "MALLOC_ARENA_MAX": "1"}  # fmt: skip
ZERO_COPY = {"RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}
CHANGES = {  # program and cause -> the changed program, or the variables that it starts with
    ("through_driver.py", "through the driver"): ("by_reference.py", {}),
    ("through_driver.py", "page faults"): ("through_driver.py", RETAIN),
    ("through_driver.py", "tensors in the pickle"): ("through_driver.py", ZERO_COPY),
    ("verl_controller.py", "page faults"): ("verl_controller.py", RETAIN),
    ("verl_controller.py", "tensors in the pickle"): ("verl_controller.py", ZERO_COPY),
}
REFS = ["simulate_chat_learn_data_flow.py", "--transport", "refs", "--iterations", "20"]
COSTS = {"verl": PROGRAMS["verl"], "rllib": PROGRAMS["rllib"], "shuffle": SHUFFLE, "store refs": REFS}

PROCESS = """
import json, time, ray
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
context, reference, found = ray._private.worker.global_worker.get_serialization_context(), ray.put(1), {}
for name, call in {"serialising": lambda: context.serialize(1), "ray.get of": lambda: ray.get(reference)}.items():
    start = time.perf_counter()
    for _ in range(5000):
        call()
    found[f"{name} one number (µs)"] = (time.perf_counter() - start) / 5000 * 1e6
for _ in range(25_000):
    ray.put(bytes(110_000))
(kilobytes,) = (int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))
found["private memory of the driver after 25,000 messages of 107 KiB (MiB)"] = kilobytes / 1024
print(json.dumps(found))
"""


def profile(words: list[str], variables: dict[str, str]) -> dict:
    """Return the profile of a program, without paths of this machine."""
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        command = [sys.executable, "-m", "dataflow", "profile", "--output", folder + "/new", *words]
        environment = os.environ | {"PYTHONPATH": str(ROOT), **variables}
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        record = (Path(folder) / "new" / "profile.json").read_text()
        return json.loads(record.replace(f"{ROOT}/", "").replace(sys.prefix, ""))


def save(name: str, record: object) -> None:
    RECORDS.mkdir(parents=True, exist_ok=True)
    (RECORDS / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


def profile_programs() -> None:
    for name, words in PROGRAMS.items():
        save(name, profile(words, {}))


def show(record: dict) -> str:
    """Return what the command prints of a profile."""
    with redirect_stdout(StringIO()) as output:
        print_profile(record)
    return output.getvalue()


def try_advice() -> None:
    """Measure the seconds per step of each program as it is and with each change, interleaved."""
    programs = dict.fromkeys((program, ()) for program, _ in CHANGES)
    programs |= dict.fromkeys((program, tuple(variables.items())) for program, variables in CHANGES.values())
    steps: dict = {key: [] for key in programs}
    predicted: dict = {}
    for _ in range(RUNS):
        for key in random.sample([*programs], len(programs)):
            record = profile([f"examples/profiled/{key[0]}"], dict(key[1]))
            steps[key].append(record["step_seconds"])
            if not key[1]:
                for saved, text in advise(record):
                    predicted.setdefault((key[0], text.partition(":")[0]), []).append(saved)
    records = []
    for (program, cause), (changed, variables) in CHANGES.items():
        times = {"seconds_per_step": steps[program, ()], "after": steps[changed, tuple(variables.items())]}
        records.append(
            {"program": program, "cause": cause, **times, "predicted_to_save": predicted.get((program, cause), [0.0])}
        )
    save("advice", records)


def measure_cost() -> None:
    """Measure the wall-clock time of each program with and without the profiler, in pairs."""
    seconds: dict = {name: {"with": [], "without": []} for name in COSTS}
    for _ in range(RUNS):
        for name, words in COSTS.items():
            for side in random.sample(["with", "without"], 2):
                with tempfile.TemporaryDirectory(prefix="profile-") as folder:
                    module, program = words[0] == "-m", words[words[0] == "-m" :]
                    start = time.perf_counter()
                    if side == "with":
                        arguments = argparse.Namespace(
                            output=Path(folder), min_bytes=102_400, module=module, program=program
                        )
                        code = run_program(arguments)
                    else:
                        code = subprocess.call([sys.executable, *words])
                    seconds[name][side].append(time.perf_counter() - start)
                    assert code == 0, (name, side)
    save("cost", seconds)


def measure_process() -> None:
    """Measure the time of small messages and the memory of one process, with and without the profiler, in pairs."""
    found: dict = {}
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        path = Path(folder) / "process.py"
        path.write_text(PROCESS)
        for run in range(RUNS):
            for side, words in (
                ("without", []),
                ("with", ["-m", "dataflow", "profile", "--output", f"{folder}/{run}"]),
            ):
                environment = os.environ | {"PYTHONPATH": str(ROOT)}
                command = [sys.executable, *words, path]
                done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, check=False)
                for name, value in json.loads(done.stdout.splitlines()[0]).items():
                    found.setdefault(name, {"with": [], "without": []})[side].append(value)
    save("process", found)


def try_versions(folders: list[str]) -> None:
    """Profile the known program with the Ray in each folder, and count its messages."""
    records = []
    for folder in folders:
        with tempfile.TemporaryDirectory(prefix="profile-") as output:
            os.environ["PYTHONPATH"] = os.pathsep.join([folder, str(ROOT)])
            program = [str(ROOT / "tests" / "profile" / "known_program.py")]
            code = run_program(
                argparse.Namespace(output=Path(output), min_bytes=102_400, module=False, program=program)
            )
            found = make_profile(Path(output), 1e-6, "Rollout.generate")
            counts = {f"{m['place']} -> {', '.join(m['readers'])}": m["count"] for m in found["messages"]}
            records.append({"ray": found["ray"], "exit_code": code, "counts": counts, "missing": found["missing"]})
    save("versions", records)


def describe_seconds(values: list[float]) -> str:
    """Return the median in milliseconds, and the smallest and largest value."""
    return f"{median(values) * 1e3:,.0f} ({min(values) * 1e3:,.0f} to {max(values) * 1e3:,.0f})"


def make_table(*rows: tuple[str, ...]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def make_page() -> str:
    """Return docs/profile.md with the records of this folder between its marks."""
    names = ("advice", "cost", "process", "versions")
    advice, cost, process, versions = (json.loads((RECORDS / f"{name}.json").read_text()) for name in names)
    rows = [("program", "advice", "ms per step", "with the change", "saved", "work that it removes")]
    for row in advice:
        before, after = row["seconds_per_step"], row["after"]
        saved, predicted = (median(before) - median(after)) * 1e3, median(row["predicted_to_save"]) * 1e3
        texts = describe_seconds(before), describe_seconds(after), f"{saved:,.0f}", f"{predicted:,.0f}"
        rows.append((f"`{row['program']}`", row["cause"], *texts))
    costs = [("program", "seconds without", "seconds with", "more, median of the pairs (smallest, largest)")]
    for name, of in cost.items():
        ratios = [one / other - 1 for one, other in zip(of["with"], of["without"], strict=True)]
        share = f"{median(ratios):+.1%} ({min(ratios):+.1%}, {max(ratios):+.1%})"
        costs.append((name, f"{median(of['without']):.1f}", f"{median(of['with']):.1f}", share))
    small = [("median of five processes (smallest, largest)", "without the profiler", "with it")]
    for name, of in process.items():
        sides = (of["without"], of["with"])
        small.append((name, *(f"{median(side):.1f} ({min(side):.1f}, {max(side):.1f})" for side in sides)))
    equal = {json.dumps(row["counts"], sort_keys=True) for row in versions}
    known = [("Ray", "known messages that were found", "functions that it does not have")]
    for row in versions:
        count = f"{len(row['counts'])} of 8, with {sum(row['counts'].values())} of 30 sends"
        known.append((row["ray"], count, ", ".join(row["missing"]) or "-"))
    assert len(equal) == 1, "the versions differ: say so in the page"
    parts = {name: f"```\n{show(json.loads((RECORDS / f'{name}.json').read_text()))}```" for name in PROGRAMS}
    parts |= {
        "advice": make_table(*rows),
        "cost": make_table(*costs),
        "process": make_table(*small),
        "versions": make_table(*known),
    }
    text = PAGE.read_text()
    for name, part in parts.items():
        begin, end = text.index(f"<!-- record: {name} -->\n"), text.index(f"<!-- end of record: {name} -->")
        text = text[:begin] + f"<!-- record: {name} -->\n{part}\n" + text[end:]
    return text


if __name__ == "__main__":
    what, *others = sys.argv[1:] or [""]
    actions = {
        "programs": profile_programs,
        "advice": try_advice,
        "cost": measure_cost,
        "process": measure_process,
    }
    if what == "versions":
        try_versions(others)
    elif what == "page":
        PAGE.write_text(make_page())
    elif what in actions:
        actions[what]()
    else:
        sys.exit(__doc__)
