# SPDX-License-Identifier: Apache-2.0
"""Make functions of flows whose parameters are the fields of a dataclass."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from dataflow.flows.flow import Flow

Sizes = TypeVar("Sizes")


def of_sizes(sizes: type[Sizes], build: Callable[[Sizes], Flow]) -> Callable[..., Flow]:
    """Return a function whose parameters are the fields of `sizes`: each is a size of the flow, and a flag.

    It calls `build` with them. Both may raise ValueError for sizes that do not make a flow.
    """

    # The signature of the dataclass is what `flow_sizes` reads.
    @wraps(sizes, updated=())
    def make(*values: Any, **by_name: Any) -> Flow:
        return build(sizes(*values, **by_name))

    return make
