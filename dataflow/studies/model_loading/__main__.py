"""How long does a fresh process need to load the weights of a model, and how much memory does it add?

The weights are published once: in a file, in Ray's object store, or in shared memory. Worker processes, started one
after the other, make the module without memory (on torch's meta device), load its parameters, and read all their bytes
twice. The bytes are verified.

    python3 -m dataflow.studies.model_loading --model bert-base --workers 3 --runs 5
    python3 -m dataflow.studies.model_loading --ways "torch.load" "ray.get, arrays" --output loading.json
"""

import argparse
import pickle
import select
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from dataflow.analysis.statistics import interval, typical_seconds
from dataflow.errors import RecordError, RunFailed, UsageError, run_main
from dataflow.flows.models import MODELS, model_fields
from dataflow.measure.supervisor import only_measurement
from dataflow.plan.command_line import OneLineParser
from dataflow.plan.options import Options
from dataflow.plan.plan import resolve_plan
from dataflow.records import files
from dataflow.records.machine import machine_line
from dataflow.report.charts import Dot, DotChart
from dataflow.report.console import print_sections
from dataflow.report.tables import Column, Section, format_milliseconds, format_significant, make_table
from dataflow.studies.model_loading.page_cache import drop_from_page_cache
from dataflow.units import format_bytes
from dataflow.workers.cleanup import ROOT, RunFolder
from dataflow.workers.variables import driver_environment

TIMEOUT_SECONDS = 300  # of one run


@dataclass(frozen=True)
class Way:
    """The names of two functions of dataflow/studies/model_loading/loading.py, and their conditions."""

    publish: str
    load: str
    is_cold: bool = False  # the file is removed from the page cache before each load
    zero_copy: bool = False  # RAY_ENABLE_ZERO_COPY_TORCH_TENSORS


WAYS = {
    "torch.load": Way("save_file", "load_file"),
    "torch.load, cold": Way("save_file", "load_file", is_cold=True),
    "torch.load with mmap": Way("save_file", "map_file"),
    "torch.load with mmap, cold": Way("save_file", "map_file", is_cold=True),
    "safetensors": Way("save_safetensors", "load_safetensors"),
    "ray.get, module": Way("put_module", "get_module"),
    "ray.get, arrays": Way("put_arrays", "get_arrays"),
    "ray.get, module, zero copy": Way("put_module", "get_module", zero_copy=True),
    "shared memory": Way("write_shared", "map_shared"),
}


class Load(msgspec.Struct):
    """The load of one worker process."""

    load_seconds: float  # until the module has all parameters
    first_read_seconds: float  # of all bytes, and their hash
    second_read_seconds: float
    added_bytes: int  # memory of all processes together (Pss), from before the load to after the reads


class Published(msgspec.Struct):
    """One run: the weights are published once and loaded by each worker in turn."""

    way: str
    ended_at: str  # UTC, ISO 8601
    publish_seconds: float
    loads: list[Load]


class LoadingRecord(msgspec.Struct):
    model: str
    tensors: int
    bytes: int
    workers: int
    runs: list[Published] = []
    environment: dict[str, Any] = {}


def parse_command(argv: Sequence[str]) -> argparse.Namespace:
    parser = OneLineParser(__doc__, "python3 -m dataflow.studies.model_loading [flags]")
    add = parser.add_argument
    add("--model", default="bert-base", help=f"{', '.join(MODELS)} (default: %(default)s)")
    add("--scale", type=float, default=1.0, help="factor for the first dimension of each tensor (default: 1)")
    add("--workers", type=int, default=3, help="processes that load the model one after the other (default: 3)")
    add("--runs", type=int, default=1, help="runs per way; each run publishes the weights once (default: 1)")
    add("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="WAY", help=f"default: all: {'; '.join(WAYS)}")
    add("--output", type=Path, help="write a record to this new file")
    arguments = parser.parse_all(argv)
    if min(arguments.workers, arguments.runs) < 1 or not 0 < arguments.scale <= 1:
        raise UsageError("--workers and --runs: give 1 or more. --scale: give a number above 0 and up to 1")
    if arguments.output and (arguments.output.exists() or not arguments.output.parent.is_dir()):
        raise UsageError(f"--output {arguments.output} exists, or its folder does not: give another name")
    return arguments


def measure(way: str, arguments: argparse.Namespace, record: LoadingRecord) -> None:
    """Publish and load once, in new processes; add the result to the record, or raise RunFailed."""
    options = Options(flow="weights", model=arguments.model, model_scale=arguments.scale, transport="refs",
                      zero_copy=WAYS[way].zero_copy)  # fmt: skip
    plan, _ = resolve_plan("store", options)
    with RunFolder() as run:
        plan = replace(plan, run_folder=run.folder, shared_folder=run.shared)
        (run.folder / "plan").write_bytes(pickle.dumps((plan, asdict(WAYS[way]), arguments.workers)))
        command = [sys.executable, "-m", "dataflow.studies.model_loading.loading", str(run.folder)]
        run.start_driver(command, ROOT, driver_environment(plan))
        ended = select.select([run.poll_handle], [], [], TIMEOUT_SECONDS)[0]
        if not ended:
            raise RunFailed(f"{way}: the run timed out after {TIMEOUT_SECONDS} s")
        if (error := run.folder / "error").exists():
            raise RunFailed(f"{way}: {error.read_text()}")
        if run.returncode():
            raise RunFailed(f"{way}: the worker failed: see above")
        result = msgspec.json.decode((run.folder / "result.json").read_bytes())
    record.environment = result.pop("environment")
    ended_at = datetime.now(UTC).isoformat(timespec="seconds")
    record.runs.append(msgspec.convert({"way": way, "ended_at": ended_at} | result, Published))


def loading_section(record: LoadingRecord) -> Section:
    """Return a table and a chart. Times are geometric means of the runs' medians over the workers."""
    by_way = {way: runs for way in WAYS if (runs := [run for run in record.runs if run.way == way])}
    first = next(iter(by_way))

    def medians(way: str, *parts: str) -> list[float]:
        return [median(sum(getattr(load, part) for part in parts) for load in run.loads) for run in by_way[way]]

    def typical(*parts: str) -> dict[str, float]:
        return {way: typical_seconds(medians(way, *parts)) for way in by_way}

    def milliseconds(seconds: dict[str, float]) -> Callable[[str], str]:
        return lambda way: format_milliseconds(seconds[way])

    def speed_up(seconds: dict[str, float]) -> Callable[[str], str]:
        return lambda way: format_significant(seconds[first] / seconds[way])

    def added_share(way: str) -> str:
        later = [load.added_bytes for run in by_way[way] for load in run.loads[1:]]
        # Each worker of a cold way has a file of its own, so that no pages can be shared.
        return f"{median(later) / record.bytes:.1%}" if later and not WAYS[way].is_cold else "-"

    def make_dot(way: str, *parts: str) -> Dot:
        times = [1e3 * seconds for seconds in medians(way, *parts)]
        low, high = interval(times) or (min(times), max(times))
        return Dot(way, typical_seconds(times), low, high, format_milliseconds(typical_seconds(times) / 1e3))

    load, both = typical("load_seconds"), typical("load_seconds", "first_read_seconds")
    publish = {way: typical_seconds([run.publish_seconds for run in runs]) for way, runs in by_way.items()}
    columns = [
        Column("way", lambda way: way),
        Column("publish ms", milliseconds(publish)),
        Column("load ms", milliseconds(load)),
        Column("first read ms", milliseconds(typical("first_read_seconds"))),
        Column("second read ms", milliseconds(typical("second_read_seconds"))),
        Column(f"load: times as fast as {first}", speed_up(load)),
        Column("load and first read: times as fast", speed_up(both)),
        Column("memory that each further worker adds (share of the model)", added_share),
    ]
    title = f"Loading {record.model}: {format_bytes(record.bytes)} in {record.tensors:,} tensors"
    days = sorted({run.ended_at[:10] for run in record.runs})
    notes = (
        machine_line(record.environment),
        f"Runs per way: {min(map(len, by_way.values()))}, each with {record.workers} processes that load one after the "
        f"other. Measured on {' and '.join(days)}, commit {str(record.environment.get('git_commit'))[:10]}.",
    )
    groups = {
        "load": [make_dot(way, "load_seconds") for way in by_way],
        "load, and read all bytes once": [make_dot(way, "load_seconds", "first_read_seconds") for way in by_way],
    }
    chart = DotChart("loading", title, groups, "milliseconds (logarithmic axis)", caption=notes)
    return Section("loading", title, "", make_table([*by_way], columns), chart, notes)


def read_record(path: Path) -> LoadingRecord:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=LoadingRecord)
    except (OSError, msgspec.DecodeError) as error:
        raise RecordError(f"{path} is no record of load_model.py ({error}): leave it out") from None
    if not WAYS.keys() & {run.way for run in record.runs}:
        raise RecordError(f"{path} has no run of a known way: leave it out")
    return record


def main(argv: Sequence[str]) -> int:
    arguments = parse_command(argv)
    try:
        fields = model_fields(arguments.model, arguments.scale)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if any(WAYS[way].is_cold for way in arguments.ways):
        folder = RunFolder().folder.parent
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(bytes(2**20))
            file.flush()
            if not drop_from_page_cache(file.name):
                raise UsageError(f"files in {folder} stay in the page cache: give --ways without the cold ones, or "
                                 "set TMPDIR to a folder on a disk with a short name")  # fmt: skip
    record = LoadingRecord(arguments.model, len(fields), sum(field.bytes for field in fields), arguments.workers)
    total = arguments.runs * len(arguments.ways)
    with only_measurement():
        for index in range(total):
            way = arguments.ways[index % len(arguments.ways)]
            measure(way, arguments, record)
            loads = ", ".join(format_milliseconds(load.load_seconds) for load in record.runs[-1].loads)
            print(f"{index + 1:3} of {total}  {way}: loaded in {loads} ms", flush=True)
            if arguments.output:
                files.replace(arguments.output, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    print_sections([loading_section(record)])
    return 0


if __name__ == "__main__":
    run_main(main, sys.argv[1:])
