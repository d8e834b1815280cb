# SPDX-License-Identifier: Apache-2.0
"""ChatLearn's own driver loop: episodes over queue actors, replicas of models, its dataset, and the trainers behind it.

Facts about alibaba/ChatLearn are those of commit 85ee7dfe (v1.0.1).
"""

from dataflow.flows.chatlearn_messages import of_samples, offline_dpo
from dataflow.studies.chatlearn.flags import ChatLearnFlags, add_tasks, is_chatlearns_transport
from dataflow.studies.chatlearn.rules import find_errors
from dataflow.study import Study

STUDY = Study(
    flows={"dpo": of_samples(offline_dpo)},
    flags=ChatLearnFlags,
    find_errors=find_errors,
    add_tasks=add_tasks,
    group_size=lambda options: options.study.chatlearn.episode,
    is_used=lambda plan: is_chatlearns_transport(plan.transport),
    part="counts:CountingPart",
    collect="counts:collect_counts",
)
