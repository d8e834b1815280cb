"""Schedules of pipeline-parallel training: the time for which stages wait, and the activations that they hold."""

from dataflow.studies import Study
from dataflow.studies.pipeline.flags import PipelineFlags
from dataflow.studies.pipeline.flow import pipeline

STUDY = Study(
    flows={"pipeline": pipeline},
    tables={"pipeline": "pipeline"},
    flags=PipelineFlags,
    is_used=lambda plan: plan.task_flow.has_compute,
    part="actor:StagePart",
    collector="actor:StepCollector",
)
