"""ChatLearn's own driver loop: episodes over queue actors, its dataset, and the trainer behind it."""

from dataflow.studies import Study
from dataflow.studies.chatlearn.flags import ChatLearnFlags, find_errors

STUDY = Study(flags=ChatLearnFlags, find_errors=find_errors)
