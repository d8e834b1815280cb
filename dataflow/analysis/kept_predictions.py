# SPDX-License-Identifier: Apache-2.0
"""Keep what a campaign will measure on a machine, as it is predicted before (outcomes.py compares both afterwards)."""

from pathlib import Path

import msgspec

from dataflow.analysis.prediction import (
    FITTED_CORES,
    FlowVolume,
    MachineSpeed,
    Prediction,
    predict_one,
    speed_of_samples,
)
from dataflow.analysis.stored_costs import CostFile, StoredCost, shorten
from dataflow.errors import RecordError
from dataflow.machine.samples import MachineSamples
from dataflow.plan.options import RESULTS

PREDICTIONS = RESULTS / "evidence" / "predictions"


class KeptPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """The predicted time of an iteration of a configuration, with its messages as in the campaigns."""

    configuration: str
    table: str
    flow: str
    iteration_bytes: int
    seconds: float
    interval: tuple[float, float] | None  # of 95 %, in seconds; None: it is not known


class PredictionFile(msgspec.Struct, frozen=True, kw_only=True):
    """The predictions for a machine, and what it took when they were made."""

    predicted_at: str  # UTC, ISO 8601
    boot: str
    commit: str | None  # of the code
    cores: int
    copy_gbps: float  # by all cores, of the largest messages
    fault_seconds: float
    fitted_boots: list[str]  # to whose campaigns the costs were fitted
    predictions: list[KeptPrediction]

    @property
    def is_of_new_machine(self) -> bool:
        """Return whether no cost was fitted to this boot when its times were predicted."""
        return self.boot not in self.fitted_boots


def predict_campaign(machine: MachineSamples, stored: CostFile) -> list[KeptPrediction]:
    """Return a prediction for each configuration with stored costs, for the messages to which they were fitted."""
    return [keep(predict_as_fitted(machine, cost, stored)) for cost in stored.costs]


def predict_as_fitted(machine: MachineSamples, cost: StoredCost, stored: CostFile) -> Prediction:
    """Return the prediction for the messages to which a cost was fitted.

    As many actors work at the same time as the machines of the campaigns have cores: how many the flow has is not
    stored. With more cores, the interval is wider, as for each prediction, and configurations that copy with one thread
    at a time are predicted by one.
    """
    speed: MachineSpeed = speed_of_samples(machine, "this machine", cost.iteration_bytes)
    volume = FlowVolume(cost.flow, cost.iteration_bytes, tensors=1, workers=FITTED_CORES)
    return predict_one(speed, cost, stored.machines, volume)


def keep(prediction: Prediction) -> KeptPrediction:
    cost = prediction.cost
    interval = None
    if prediction.interval is not None:
        low, high = prediction.interval
        interval = shorten(low), shorten(high)
    return KeptPrediction(
        configuration=cost.configuration,
        table=cost.table,
        flow=cost.flow,
        iteration_bytes=cost.iteration_bytes,
        seconds=shorten(prediction.seconds),
        interval=interval,
    )


def load_predictions(folder: Path = PREDICTIONS) -> list[PredictionFile]:
    """Return all files of predictions, the oldest first; raise RecordError if one cannot be read."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=PredictionFile))
        except (OSError, msgspec.DecodeError) as error:
            raise RecordError(
                f"{path} has no predictions ({error}): move it away, or take it from git again"
            ) from None
    return sorted(found, key=lambda file: file.predicted_at)
