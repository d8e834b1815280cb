# SPDX-License-Identifier: Apache-2.0
"""Hold and verify the messages that one of several replicas gets."""

from collections import Counter
from collections.abc import Sequence

from dataflow.endpoints.inbox import Inbox, Views
from dataflow.endpoints.payload import Digests
from dataflow.endpoints.tensors import Payload
from dataflow.studies.chatlearn.layout import ModelLayout


class ReplicaInbox(Inbox):
    """An inbox that gets only the messages of its replica. The bytes of any other message are wrong."""

    def __init__(self, inbox: Inbox, layout: ModelLayout, replica: int) -> None:
        super().__init__(inbox.edges, inbox.device, inbox.held.maxlen or 1)
        self.layout = layout
        self.replica = replica

    def next_number(self) -> int:
        """Return the number of the next message of this replica."""
        distance = (self.replica - self.last) % self.layout.replicas
        return self.last + 1 + distance

    def take(self, inputs: Sequence[Payload]) -> int:
        """Hold the inputs of the next message of this replica, and return its number."""
        self.last = self.next_number() - 1
        return super().take(inputs)

    def verify(
        self, first: int, last: int, digests: Digests, wrong: Counter[str], views: Views
    ) -> None:
        """Verify those of the messages `first` to `last` that this replica gets, and add the wrong bytes to `wrong`.

        All bytes of a message that is missing, or one too many, are wrong.
        """
        numbers = range(first, last + 1)
        due = [number for number in numbers if self.layout.replica_of(number) == self.replica]
        received = self.received
        for index, number in enumerate(due):
            self.received = received[index : index + 1]
            super().verify(number, number, digests, wrong, views)
        # Without a number that is due, each message that is left is one too many.
        self.received = received[len(due) :]
        super().verify(last + 1, last, digests, wrong, views)
