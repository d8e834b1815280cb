"""ColossalAI's detached PPO: experience makers and trainers, which send their weights back."""

from dataflow.flows.flow import of_sizes
from dataflow.studies import Study
from dataflow.studies.detached_ppo.flags import DetachedPpoFlags
from dataflow.studies.detached_ppo.flow import Sizes, detached_ppo

STUDY = Study(
    flows={"detached-ppo": of_sizes(Sizes, detached_ppo)},
    tables={"detached-ppo": "detached-ppo"},
    flags=DetachedPpoFlags,
)
