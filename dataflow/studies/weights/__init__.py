"""Updates of the weights of a model: trainers send them to rollouts, which serve them."""

from dataflow.flows.flow import of_sizes
from dataflow.studies import Study
from dataflow.studies.weights.flags import WeightsFlags, find_errors
from dataflow.studies.weights.flow import Sizes, changes_flow, weights

STUDY = Study(
    flows={"weights": of_sizes(Sizes, weights)},
    tables={"weights": "weights"},
    flags=WeightsFlags,
    forms={"indices": changes_flow},
    find_errors=find_errors,
    is_used=lambda plan: plan.task_flow.has_parameters,
    part="actor:WeightsPart",
    collector="updates:UpdateCollector",
)
