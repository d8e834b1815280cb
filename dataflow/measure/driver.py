# SPDX-License-Identifier: Apache-2.0
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

from common.gpus import gpus_in_words
from dataflow.errors import ActorRaised, RunFailed, SuiteError
from dataflow.measure.driver_report import DriverReport
from dataflow.measure.environment import require_environment
from dataflow.measure.loop import Measurement
from dataflow.measure.references import (
    measure_copies,
    measure_host_copies,
    measure_null_transport,
)
from dataflow.plan.plan import Plan
from dataflow.records.machine import describe_environment, hash_clock_code
from dataflow.workers.worker_group import WorkerGroup


def measure_plan(plan: Plan, report: DriverReport) -> None:
    """Measure the references, start the workers, connect the transport, measure, and measure the references again.

    Raise RunFailed if torch sees fewer GPUs than the plan has, or if Ray does not start, and UsageError if a cluster
    cannot be used. If the transport fails, the report has the cause, as far as the workers know it, before the error is
    raised again. Wrong bytes raise no error: the status of the run says so.
    """
    run = report.run
    seen_gpus = torch.cuda.device_count()
    if plan.gpus > seen_gpus:
        raise RunFailed(
            f"torch sees {gpus_in_words(seen_gpus)}, the machine has {plan.gpus}: see nvidia-smi"
        )
    run.null_transport_seconds = measure_null_transport(plan)
    warm, all_cores, cold, cold_faults = measure_copies(plan)
    run.memcpy_before_seconds = warm
    run.memcpy_all_cores_seconds = all_cores
    run.cold_copy_before_seconds = cold
    run.cold_copy_faults = cold_faults
    run.host_copy_seconds = measure_host_copies(plan)
    report.environments = [describe_environment()]
    report.write(plan.run_folder)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak memory of the references
    workers = make_workers(plan)
    with workers.closing:
        try:
            measure_transport(plan, workers, report)
        except Exception as error:
            cause = workers.explain(error)
            report.failure = str(cause or "")
            report.actor_raised = isinstance(cause, ActorRaised)
            report.write(plan.run_folder)  # now, because it may take long to close the transport
            raise
    workers.stop()
    run.memcpy_after_seconds, _, run.cold_copy_after_seconds, _ = measure_copies(plan)
    report.finished = True
    report.write(plan.run_folder)


def make_workers(plan: Plan) -> WorkerGroup:
    """Return the workers of a plan, which have not started. Ray is imported only if the plan needs it."""
    uses_ray = plan.transport.runtime.uses_ray or plan.options.address
    worker_group = "ray_workers:RayWorkers" if uses_ray else "worker_group:WorkerGroup"
    group_class = resolve_name(f"dataflow.workers.{worker_group}")
    return group_class(plan)


def measure_transport(plan: Plan, workers: WorkerGroup, report: DriverReport) -> None:
    """Start the workers, connect the transport, and run the iterations. The report is not finished after that.

    Raise RunFailed if nodes have several versions of torch, or if a process lacks what --env sets. Also raise what the
    transport or a worker raises. Wrong bytes raise no error: the status of the run says so.
    """
    run = report.run
    if workers.nodes:
        workers.nodes.measure(plan, report)
    # Imported here, because each runtime has modules of its own.
    transports = resolve_name(f"dataflow.{plan.transport.module}.TRANSPORTS")
    connect = transports[plan.transport.function]
    connection = connect(workers)
    require_environment(plan, workers)
    run.data_paths = connection.data_paths
    run.setup_seconds = connection.setup_seconds
    report.environments[0]["clock_code"] = hash_clock_code()
    report.write(plan.run_folder)
    Measurement(plan, workers, connection, report).measure()
    # From now on, actors may end: the monitor looks whether the report has it (Monitor._remember_first_exits).
    run.nodes = workers.worker_nodes
    report.write(plan.run_folder)


def main() -> None:
    """Measure the plan, and end without any teardown: the guard removes everything that is left.

    The exit code is 0 even if the run fails: the report says so.
    """
    folder = Path(sys.argv[1])
    report = msgspec.json.decode((folder / "report").read_bytes(), type=DriverReport)
    try:
        measure_plan(pickle.loads((folder / "plan").read_bytes()), report)
    except BaseException as error:
        is_out_of_memory = "allocate memory" in str(error)  # as torch says it
        is_known = isinstance(error, SuiteError) or is_out_of_memory
        if not report.failure and not is_known:  # a defect of the suite
            traceback.print_exc()
        text = str(error).partition("\n")[0] if is_known else f"{type(error).__name__}: {error}"
        report.failure = report.failure or text  # an actor may be known that caused it
        report.write(folder)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
