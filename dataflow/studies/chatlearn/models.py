# SPDX-License-Identifier: Apache-2.0
"""Define the actors of ChatLearn's models, without their computation: each process of a model is one."""

from typing import Any

from dataflow.endpoints.actor import Actor
from dataflow.plan.plan import Plan
from dataflow.studies.chatlearn.dataset import StreamDataset
from dataflow.studies.chatlearn.flags import chatlearn_flags
from dataflow.studies.chatlearn.layout import ModelLayout
from dataflow.studies.chatlearn.replica_inbox import ReplicaInbox


class ChatLearnActor(StreamDataset, Actor):
    """One process of a model, or the dataset.

    alibaba/ChatLearn at 85ee7dfe: models/base_module.py, and utils of runtime/decorator.py. Every rank of a replica
    copies its result to the host, and all but the last one return None.
    """

    def __init__(self, plan: Plan, name: str, codec: Any, replica: int = 0, rank: int = 0) -> None:
        super().__init__(plan, name, codec)
        layouts = chatlearn_flags(plan.options).layouts(plan.task_flow.actors)
        layout: ModelLayout = layouts[name]
        self.answers = layout.answers(rank)
        if layout.replicas > 1:
            for task, inbox in self.inboxes.items():
                self.inboxes[task] = ReplicaInbox(inbox, layout, replica)

    def forward_step(self, task: str, *inputs: Any) -> Any:
        data = super().forward_step(task, *inputs)
        return data if self.answers else None
