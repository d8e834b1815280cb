"""Show the configurations of the catalogue, and what this machine lacks for them.

python3 -m dataflow list
"""

from collections.abc import Sequence

from dataflow.catalogue.catalogue import VARIANTS
from dataflow.errors import UsageError
from dataflow.measure.batch import plan_configuration


def main(flags: Sequence[str]) -> int:
    width = max(len(variant.name) for variant in VARIANTS)
    for variant in VARIANTS:
        reason: UsageError | None
        try:
            reason = plan_configuration(variant.name, flags)[0][1]
        except UsageError as error:
            reason = error
        print(f"{variant.name:{width}}  {reason or variant.explanation or variant.transport.summary}")
    return 0
