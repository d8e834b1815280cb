"""ChatLearn's own driver loop: episodes over queue actors, its dataset, and the trainer behind it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from msgspec import Meta

from dataflow.flows.flow import Flow, Task
from dataflow.flows.message import ACKNOWLEDGEMENT, ITEM_BYTES
from dataflow.plan.flag import flag
from dataflow.studies import Added, Study

TRANSPORT = "store ref-queue"
DATASET = "stream-dataset"  # the task and actor that read the results with --sink trainer
MAX_SAMPLES = 100_000  # per message that a trainer cuts into samples
_flag = partial(flag, "chatlearn", configuration=True)
_COUNT = Meta(ge=1, le=10**6)


@dataclass(frozen=True, kw_only=True)
class ChatLearnFlags:
    # fmt: off
    padding: str | None = flag("chatlearn", None, "pad to the longest sample (megatron) or to --seq-length (vllm)", str,
        choices=("megatron", "vllm"), size=True)
    sink: str = _flag("driver", "reader of the results: the driver, or a trainer that cuts them into micro-batches "
        "(and whose steps take --model-seconds trainer=50ms)", str, choices=("driver", "trainer"))
    train_micro_batch: int = _flag(8, "samples per micro-batch of --sink trainer", int, _COUNT)
    episode: int | None = _flag(None, "messages per episode of ChatLearn's driver loop, with new queues and a full "
        "verification at its end. Default: no episodes", int, _COUNT)
    keep_queues: bool = _flag(False, "make the queues once instead of in each --episode")
    train_global_batch: int = _flag(128, "samples per training step of --sink trainer", int, _COUNT)
    # fmt: on

    @property
    def group_size(self: Any) -> int:  # Options, which has these flags and those of CoreOptions
        return self.episode or self.check_every or self.in_flight

    def add_tasks(self: Any, flow: Flow) -> Added:
        """Return the flow with a reader of its results at the end, which acknowledges each iteration to the driver."""
        if self.sink != "trainer":
            return Added(flow)
        flow = replace(
            flow,
            tasks=(*flow.tasks, Task(DATASET, flow.returns, ACKNOWLEDGEMENT)),
            returns=(DATASET,),
        )
        messages = [edge.message for edge in flow.edges_to(DATASET)]
        # The dataset keeps samples, views with their storage. In its micro-batches, all are as long as the longest.
        memory_bytes = self.group_size * sum(
            message.serialised_bytes + message.bytes for message in messages
        )
        fields = [field for message in messages for field in message.fields]
        store_bytes = sum(
            ITEM_BYTES[f.dtype] * len(f.shapes) * max(map(math.prod, f.shapes)) for f in fields
        )
        return Added(flow, ("trainer",), store_bytes, memory_bytes)


def find_errors(transport: Any, options: Any, flow: Flow) -> Iterator[str]:
    for name in ChatLearnFlags.__dataclass_fields__:
        if name in options.configuration_flags and transport.label != TRANSPORT:
            yield f"--{name.replace('_', '-')} is a flag of --transport ref-queue: give this transport, or leave it out"
        elif (
            name in options.configuration_flags
            and name.startswith("train_")
            and options.sink != "trainer"
        ):
            yield f"--{name.replace('_', '-')} is a flag of the trainer: give --sink trainer too"
    if transport.label != TRANSPORT:
        return
    group = options.group_size
    if options.episode and options.check_every:
        yield "--check-every: every episode of --episode ends with a full verification: leave it out"
    if options.in_flight < group and (options.in_flight > 1 or options.sink == "trainer"):
        yield f"--in-flight {options.in_flight}: ChatLearn sends a whole episode at once: give --in-flight {group}"
    if options.iterations < group:
        yield f"--iterations {options.iterations}: give {group} (--episode) or more"
    if options.sink != "trainer":
        return
    results = [flow.message(name) for name in flow.returns]
    counts = {count for message in results for count in message.sample_counts}
    has_samples = (
        len(counts) == 1 and max(counts) <= MAX_SAMPLES and not any(m.is_flat for m in results)
    )
    if not has_samples or options.message not in ("fields", "packed", None):
        yield (f"--sink trainer: the {options.message or 'flat'} messages of {flow.name} cannot be cut into samples: "
               "give --message fields, or one of ChatLearn's flows (--help flows)")  # fmt: skip
    if options.train_global_batch % options.train_micro_batch:
        yield (f"--train-global-batch {options.train_global_batch}: give a multiple of "
               f"--train-micro-batch {options.train_micro_batch}")  # fmt: skip


STUDY = Study(flags=ChatLearnFlags, find_errors=find_errors)
