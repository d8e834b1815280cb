# SPDX-License-Identifier: Apache-2.0
"""Say why it is not known what a change saves."""

from raymeter.advice import Profile
from raymeter.findings import Finding
from raymeter.profile.events import Sent
from raymeter.units import format_bytes

MAX_BYTES = 512 * 2**20  # as in inside/alternatives.py, which imports the user's Ray


def say_why(profile: Profile, finding: Finding) -> str:
    """Return why a finding has no savings.

    A sender measures no message that has references inside of it, or that is too large, however much time it has.
    Without messages, it is what the tasks need of each other that is not known.
    """
    names = set(finding.messages)
    sent = [item for item in profile.program.recording.sent if (item.process, item.number) in names]
    if not sent:
        return "What this saves is not known."
    if all(map(is_too_large, sent)):
        return f"What this saves is not measured for messages above {format_bytes(MAX_BYTES)}."
    if all(item.references or is_too_large(item) for item in sent):
        return "What this saves is not measured for messages with references inside of them."
    return "What this saves was not measured."


def is_too_large(item: Sent) -> bool:
    return item.bytes > MAX_BYTES
