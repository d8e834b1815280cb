# SPDX-License-Identifier: Apache-2.0
"""Find messages most of whose numbers are one value, such as batches that are padded to the longest allowed length.

Sources: trainers of verl and NeMo RL send batches without padding (verl-project/verl#6009, NVIDIA-NeMo/RL#2439).
"""

from raymeter.causes.savings import save_reading, save_sending, total
from raymeter.findings import Finding, Saving
from raymeter.profile.events import Field
from raymeter.profile.groups import Group, groups_in_steps
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps
from raymeter.units import format_bytes, significant

CAUSE = "most of it is one value"
MIN_SHARE = 0.5  # of the bytes of a message, and of the numbers of an array in it
# Of the numbers of an array. Nobody pads more; but a test may send arrays in which only one number differs.
MAX_SHARE = 0.99
PIXELS = ("uint8", "int8")  # of images, whose background is no padding
CHANGE = (
    "If this is padding: send the columns up to the longest row of the batch, or all rows in one array with their "
    "lengths, and let the reader pad. If most are zeros that mean something: send the positions and values of the "
    "others."
)
MASK = "mask"  # in the name of a field that says which numbers of others count: it may be all ones
PRICE = (
    "raymeter has looked at a sample of the numbers in one message. Cutting and padding take time, and positions take "
    "space: neither is in this number."
)


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line whose messages mostly consist of one value."""
    findings = []
    for group in groups_in_steps(program, steps):
        field = largest_padded(group)
        if field is None:
            continue
        share = padded_bytes(group) / group.bytes
        if share >= MIN_SHARE:
            findings.append(make_finding(program, steps, group, field, min(1.0, share)))
    return findings


def is_padded(field: Field) -> bool:
    """Return whether most numbers of a field are one value, and are not the background of an image."""
    return MIN_SHARE <= field.one_value <= MAX_SHARE and field.dtype not in PIXELS


def padded_bytes(group: Group) -> float:
    """Return how many bytes of a message are the most frequent values of its fields."""
    return sum(field.one_value * field.bytes for field in group.fields if is_padded(field))


def largest_padded(group: Group) -> Field | None:
    """Return the largest field of a message that mostly consists of one value, and is no mask; None without one."""
    padded = [field for field in group.fields if is_padded(field)]
    without_masks = [field for field in padded if MASK not in field.path.lower()]
    return max(without_masks, key=lambda field: field.bytes, default=None)


def make_finding(
    program: Program, steps: Steps, group: Group, field: Field, share: float
) -> Finding:
    """Return the finding for messages of which a share of the bytes is one value, most of them in one field.

    It is a limit: what the value means, and what leaving it out takes, is not known.
    """
    savings: list[Saving] = []
    for message in group.messages:
        savings += save_sending(program, message, share)
        savings += save_reading(message, share * group.inband_share)
    percent = significant(100 * field.one_value, 2)
    place = f" in {field.path}" if field.path.strip("[]*.") else ""
    return Finding(
        cause=CAUSE,
        title=f"{format_bytes(group.bytes)} ({group.type}): {percent} % of the numbers{place} are one value (padding?)",
        line=group.line,
        change=CHANGE,
        seconds=total(savings) / steps.count,
        savings=savings,
        messages=[(message.sent.process, message.sent.number) for message in group.messages],
        price=PRICE,
        is_limit=True,
    )
