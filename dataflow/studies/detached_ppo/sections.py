"""Say how the updates of experience makers and trainers are shown: as other updates of parameters."""

from dataflow.studies.weights.sections import update_table

SECTIONS = {"detached-ppo": update_table("detached-ppo")}
