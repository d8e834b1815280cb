"""Updates of the weights of a model: trainers send them to rollouts, which serve them."""

from dataflow.flows.changes import changes_flow
from dataflow.studies import Study
from dataflow.studies.weights.flags import WeightsFlags, find_errors
from dataflow.studies.weights.flow import weights

STUDY = Study(
    flows={"weights": weights},
    tables={"weights": "weights"},
    flags=WeightsFlags,
    forms={"indices": changes_flow},
    find_errors=find_errors,
    is_used=lambda plan: plan.task_flow.has_parameters,
    part="actor:WeightsPart",
    collector="updates:UpdateCollector",
)
