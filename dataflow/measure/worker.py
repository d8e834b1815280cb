"""Measure one plan in a process of its own, whose environment was set before it started.

python3 -m dataflow.measure.worker RUN_FOLDER     the folder has the plan and a report, which this process replaces
"""

import os
import pickle
import sys
import traceback
from contextlib import ExitStack, suppress
from pathlib import Path
from pkgutil import resolve_name

import msgspec
import torch

from dataflow.errors import ActorRaised, RunFailed, SuiteError
from dataflow.flows.flow import DRIVER
from dataflow.measure.loop import Measurement
from dataflow.measure.monitor import WorkerReport
from dataflow.measure.references import measure_copies, measure_null_transport, measure_pipe
from dataflow.plan.plan import Plan
from dataflow.records.machine import describe_environment

ON_RAY = "ray_workers.RayWorkers"


def measure_plan(plan: Plan, report: WorkerReport) -> None:
    """Measure the references, start the workers, connect the transport, measure, and measure the references again."""
    run, runtime = report.run, plan.transport.runtime
    if plan.token:
        plan.token.wait()
        plan.token.pass_round()  # until all workers have come, so that none imports while another one measures
    if plan.gpus > torch.cuda.device_count():
        raise RunFailed(f"torch sees {torch.cuda.device_count()} GPUs, the machine has {plan.gpus}: see nvidia-smi")
    run.pipe_before_seconds = measure_pipe(plan.task_flow)
    run.null_transport_seconds = measure_null_transport(plan)
    copies = measure_copies(plan)
    run.memcpy_before_seconds, run.memcpy_all_cores_seconds = copies.warm, copies.all_cores
    run.cold_copy_before_seconds, run.cold_copy_faults = copies.cold, copies.cold_faults
    report.environment = describe_environment()
    report.write(plan.run_folder)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak memory of the references
    # Imported here, because each runtime has modules of its own.
    connect = resolve_name(f"dataflow.{plan.transport.module}.TRANSPORTS")[plan.transport.name]
    worker_group = ON_RAY if plan.options.address else runtime.worker_group
    worker_group_class = resolve_name(f"dataflow.workers.{worker_group}")
    with ExitStack() as exit_stack:
        workers = worker_group_class(plan, exit_stack)
        if workers.nodes:
            requested = {DRIVER: 0, **workers.requested_nodes()}
            workers.nodes.prepare(requested)

            def report_progress(link_bytes: int) -> None:
                report.link_bytes = link_bytes
                report.write(plan.run_folder)

            workers.nodes.measure(plan, lambda plan: measure_copies(plan).warm, report_progress)
            run.links, report.other_environments = workers.nodes.links, list(workers.nodes.environments[1:])
        with workers.closing:
            try:
                connection = connect(workers)
                if workers.nodes:
                    workers.nodes.check(requested, workers.node_indices())
                run.data_paths, run.setup_seconds = connection.data_paths, connection.setup_seconds
                report.write(plan.run_folder)
                Measurement(plan, workers, connection, report).measure()
                run.nodes = workers.node_indices()
                report.write(plan.run_folder)
            except Exception as error:
                cause = workers.explain(error)
                report.failure, report.actor_raised = str(cause or ""), isinstance(cause, ActorRaised)
                report.write(plan.run_folder)  # now, because it may take long to close the transport
                raise
        workers.stop()
    run.pipe_after_seconds = measure_pipe(plan.task_flow)
    copies = measure_copies(plan)
    run.memcpy_after_seconds, run.cold_copy_after_seconds = copies.warm, copies.cold
    report.finished = True
    report.write(plan.run_folder)
    if plan.token:
        plan.token.pass_on()


def main() -> None:
    """Measure the plan, and end without any teardown: the guard removes everything that is left."""
    folder = Path(sys.argv[1])
    report = msgspec.json.decode((folder / "report").read_bytes(), type=WorkerReport)
    try:
        measure_plan(pickle.loads((folder / "plan").read_bytes()), report)
    except BaseException as error:
        if report.failure:  # the actor is known that caused it
            pass
        elif isinstance(error, SuiteError):
            report.failure = str(error)
        else:  # a defect of the suite
            traceback.print_exc()
            report.failure = f"{type(error).__name__}: {error}"
        report.write(folder)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
