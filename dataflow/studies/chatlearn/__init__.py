"""ChatLearn's own driver loop: episodes over queue actors, its dataset, and the trainers behind them."""

from dataflow.studies import Study
from dataflow.studies.chatlearn.flags import TRANSPORT, ChatLearnFlags, find_errors

STUDY = Study(
    flags=ChatLearnFlags,
    find_errors=find_errors,
    # Behind ChatLearn's own transport, the dataset and the trainers are actors of the transport.
    is_used=lambda plan: plan.options.sink == "trainer" and plan.transport.label != TRANSPORT,
    part="trainer:TrainerPart",
    collector="trainer:TrainerCollector",
)
