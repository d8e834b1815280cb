"""Schedules of pipeline-parallel training: the time for which stages wait, and the activations that they hold."""

from dataclasses import dataclass
from functools import partial

from msgspec import Meta

from dataflow.plan.flag import flag
from dataflow.studies import Study
from dataflow.studies.pipeline.flow import SCHEDULES, Computation, pipeline

_size = partial(flag, "pipeline", None, size=True)


@dataclass(frozen=True, kw_only=True)
class PipelineFlags:
    # fmt: off
    pipeline_stages: int | None = _size("stages, each an actor", int, Meta(ge=1, le=64))
    micro_batches: int | None = _size("micro-batches per step", int, Meta(ge=1, le=1024))
    schedule: str | None = _size("order of the tasks: all forward, then all backward (afab), one forward and one "
        "backward (1f1b), with two chunks per stage (interleaved), or with gradients of the weights that fill the gaps "
        "(zb-h1, and zb-h2 with more memory)", str, choices=tuple(SCHEDULES), size="sender")
    task_seconds: str | None = _size("time of the forward pass of a micro-batch in a stage, and of each half of the "
        "backward pass, such as 20ms", str, metavar="TIME")
    hidden_size: int | None = _size("numbers per token that stages send", int, Meta(ge=1, le=10**6))
    # fmt: on


STUDY = Study(
    flows={"pipeline": pipeline}, flags=PipelineFlags, part="actor:StagePart", collect="actor:collect_steps",
    is_used=lambda plan: any(isinstance(task.work, Computation) for task in plan.task_flow.tasks),
)  # fmt: skip
