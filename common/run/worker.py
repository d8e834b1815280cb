"""The process in which a run happens: its environment was set before it began, and its supervisor ends it.

    python3 -m common.run.worker FOLDER     the folder holds the plan, and takes the report

It reports as it goes, a line of JSON with fields of record.schema.Run each time, so that what is known survives it.
"""

import importlib
import json
import os
import pickle
import sys
import traceback
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch

from common.errors import RunFailed, SuiteError
from common.machine.ceiling import Ceiling
from common.machine.hand_over import measure_hand_over
from common.plan.plan import Plan
from common.record.environment import describe_environment
from common.record.rows import RUNTIMES
from common.run.trips import measure


class Report:
    """The lines of what is known."""

    def __init__(self, folder: Path) -> None:
        self.file = (folder / "report").open("a", buffering=1)

    def __call__(self, **fields: Any) -> None:
        self.file.write(json.dumps(fields) + "\n")


def crew_of(plan: Plan, runtime: ExitStack) -> Any:
    """Participants of this runtime; Ray is imported where it is used."""
    if plan.row.runtime == "torch":
        from common.runtime.process_crew import ProcessCrew

        return ProcessCrew(plan)
    from common.runtime.ray_crew import RayCrew

    return RayCrew(plan, runtime)


def run(plan: Plan, report: Report) -> None:
    """Measure the ceilings, start the crew, connect the transport, run the trips, measure the ceilings again."""
    if plan.turn:
        plan.turn.wait()
        plan.turn.go_round()  # until all have come, and none imports while another measures
    if plan.gpus > torch.cuda.device_count():
        raise RunFailed(f"torch sees {torch.cuda.device_count()} GPUs and the machine {plan.gpus}: see nvidia-smi")
    report(hand_over_before_seconds=measure_hand_over(plan.flow))
    ceiling = Ceiling(plan)
    report(
        environment=describe_environment(),
        ceiling_before_seconds=ceiling.measure(),
        ceiling_all_cores_seconds=ceiling.measure_all_cores(),
    )
    del ceiling.pairs[:]
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak of this process's memory begins anew
    script = importlib.import_module(Path(RUNTIMES[plan.row.runtime]).stem)
    transport = getattr(script, "by_" + plan.row.transport.replace("-", "_"))
    with ExitStack() as runtime:
        crew = crew_of(plan, runtime)
        with crew.closing:
            try:
                wiring = transport(crew)
                report(path=wiring.path, setup_seconds=wiring.setup_seconds)
                measure(plan, crew, wiring, report)
                report(nodes=crew.placement())
            except Exception as error:
                explained = crew.explain(error)
                if explained is None:
                    raise
                report(failure=explained)
                return
        crew.stop()
    report(hand_over_after_seconds=measure_hand_over(plan.flow))
    report(ceiling_after_seconds=Ceiling(plan).measure(), finished=True)
    if plan.turn:
        plan.turn.pass_on()


def main() -> None:
    """Ends at once, without the teardown of anything: the supervisor removes what is left."""
    folder = Path(sys.argv[1])
    report = Report(folder)
    try:
        run(pickle.loads((folder / "plan").read_bytes()), report)
    except BaseException as error:
        known = isinstance(error, SuiteError)
        if not known:  # a defect of the suite's own
            traceback.print_exc()
        report(failure=str(error) if known else f"{type(error).__name__}: {error}")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
