"""Measure one plan in a process of its own, whose environment was set before it started.

python3 -m dataflow.measure.driver RUN_FOLDER     the folder has the plan and a report, which this process replaces
"""

import os
import pickle
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name

import msgspec
import torch

from dataflow.errors import ActorRaised, RunFailed, SuiteError
from dataflow.measure.loop import Measurement
from dataflow.measure.monitor import DriverReport
from dataflow.measure.references import measure_copies, measure_null_transport
from dataflow.plan.plan import Plan
from dataflow.records.machine import describe_environment, hash_clock_code


def measure_plan(plan: Plan, report: DriverReport) -> None:
    """Measure the references, start the workers, connect the transport, measure, and measure the references again."""
    run = report.run
    if plan.gpus > torch.cuda.device_count():
        raise RunFailed(
            f"torch sees {torch.cuda.device_count()} GPUs, the machine has {plan.gpus}: see nvidia-smi"
        )
    run.null_transport_seconds = measure_null_transport(plan)
    warm, all_cores, cold, run.cold_copy_faults = measure_copies(plan)
    run.memcpy_before_seconds, run.memcpy_all_cores_seconds, run.cold_copy_before_seconds = (
        warm,
        all_cores,
        cold,
    )
    report.environments = [describe_environment()]
    report.write(plan.run_folder)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak memory of the references
    uses_ray = (
        plan.transport.runtime.uses_ray or plan.options.address
    )  # otherwise, Ray is not imported
    worker_group = "ray_workers:RayWorkers" if uses_ray else "worker_group:WorkerGroup"
    workers = resolve_name(f"dataflow.workers.{worker_group}")(plan)
    with workers.closing:
        try:
            if workers.nodes:
                workers.nodes.measure(plan, report)
            # Imported here, because each runtime has modules of its own.
            connect = resolve_name(f"dataflow.{plan.transport.module}.TRANSPORTS")[
                plan.transport.function
            ]
            connection = connect(workers)
            run.data_paths, run.setup_seconds = connection.data_paths, connection.setup_seconds
            report.environments[0]["clock_code"] = hash_clock_code()
            report.write(plan.run_folder)
            Measurement(plan, workers, connection, report).measure()
            run.nodes = workers.worker_nodes
            report.write(plan.run_folder)
        except Exception as error:
            cause = workers.explain(error)
            report.failure, report.actor_raised = str(cause or ""), isinstance(cause, ActorRaised)
            report.write(plan.run_folder)  # now, because it may take long to close the transport
            raise
    workers.stop()
    run.memcpy_after_seconds, _, run.cold_copy_after_seconds, _ = measure_copies(plan)
    report.finished = True
    report.write(plan.run_folder)


def main() -> None:
    """Measure the plan, and end without any teardown: the guard removes everything that is left."""
    folder = Path(sys.argv[1])
    report = msgspec.json.decode((folder / "report").read_bytes(), type=DriverReport)
    try:
        measure_plan(pickle.loads((folder / "plan").read_bytes()), report)
    except BaseException as error:
        is_known = isinstance(error, SuiteError) or "allocate memory" in str(
            error
        )  # the latter is of torch
        if not report.failure and not is_known:  # a defect of the suite
            traceback.print_exc()
        text = str(error).partition("\n")[0] if is_known else f"{type(error).__name__}: {error}"
        report.failure = report.failure or text  # an actor may be known that caused it
        report.write(folder)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
