"""ChatLearn's own driver loop: episodes over queue actors, its dataset, and the trainers behind it."""

from dataflow.studies import Study
from dataflow.studies.chatlearn.flags import ChatLearnFlags, find_errors

STUDY = Study(
    flags=ChatLearnFlags,
    find_errors=find_errors,
    is_used=lambda plan: plan.options.sink == "trainer",
    part="trainer:TrainerPart",
    collector="trainer:TrainerCollector",
)
