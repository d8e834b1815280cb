# SPDX-License-Identifier: Apache-2.0
"""Add up what the verifications of a run have found: wrong bytes, and whether readers got views or copies."""

from collections import Counter
from collections.abc import Mapping

from dataflow.catalogue.catalogue import INLINED_BYTES
from dataflow.plan.plan import Plan
from dataflow.records.schema import Run

# By whether readers found views of shared memory.
READ_AS = {True: "views", False: "copies", None: "partly copies"}

Wrong = Mapping[str, int]  # wrong bytes by edge and field
Views = Mapping[str, bool | None]  # by edge; None: some of the tensors are views


class Verified:
    """What all verifications have found so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.wrong: Counter[str] = Counter()  # bytes by edge and field
        self.views: dict[str, bool | None] = {}

    def add_wrong(self, wrong: Wrong) -> None:
        """Add the wrong bytes of a verification."""
        self.wrong.update(wrong)

    def add_views(self, views: Views) -> None:
        """Note which edges had views. Once one had another data path than expected, that stays."""
        expected = self.plan.expects_views
        for edge, is_view in views.items():
            earlier = self.views.get(edge, expected)
            if earlier is expected:
                self.views[edge] = is_view

    def set_wrong_bytes(self, run: Run) -> None:
        """Set the wrong bytes of a run."""
        run.wrong_bytes = self.wrong.total()
        run.wrong_bytes_by_field = dict(self.wrong)

    def readers_own_a_copy(self) -> bool:
        """Return whether each reader has got a copy of its own."""
        # Views of a GPU's memory cannot be seen. The transport's own check of its data path stands for them.
        is_on_gpu = self.plan.device == "cuda"
        has_unseen_views = is_on_gpu and self.plan.expects_views
        found = set(self.views.values())
        has_only_copies = found <= {False}
        return has_only_copies and not has_unseen_views

    def find_failure(self) -> str | None:
        """Return why the run has failed; None if all bytes are right and took the expected data path."""
        return find_failure(self.plan, self.wrong, self.views)


def find_failure(
    plan: Plan, wrong: Mapping[str, int], views: Mapping[str, bool | None]
) -> str | None:
    """Return why the run has failed: wrong bytes, or an edge with another data path than expected; None if it is ok.

    `wrong` has bytes by edge and field, none of them 0. `views` has for each edge whether its readers found views of
    shared memory; None: for some of the tensors. It counts on CPUs only. Instead of views, edges of up to INLINED_BYTES
    may have copies.
    """
    if wrong:
        total = sum(wrong.values())
        worst = max(wrong, key=lambda name: wrong[name])
        has_parts = len(wrong) > 1 or "," in worst
        where = f", most of them in {worst}" if has_parts else ""
        return f"{total} bytes differ from what was sent{where}: this transport loses data"
    expected = plan.expects_views
    if plan.device != "cpu":
        return None
    for edge in plan.task_flow.edges:
        is_view = views[str(edge)]
        may_be_copied = expected and edge.bytes <= INLINED_BYTES
        if is_view is not expected and not may_be_copied:
            found = READ_AS[is_view]
            name = plan.configuration.name
            return f"{edge}: readers got {found}, but {READ_AS[expected]} are expected of {name}"
    return None
