# SPDX-License-Identifier: Apache-2.0
"""Complete slow messages of which only the time was written: what they consist of is known from others like them."""

from raymeter.profile.events import Sent
from raymeter.profile.reader import Recording

Kind = tuple[str, str, str, str]  # process, line, name of the task, and type


def complete_short(recording: Recording) -> None:
    """Give short messages the share of bytes in the pickle, and the buffers, of the last one like them, or the next.

    A result is a repeat only if its largest array is the same object. Where that array lies behind the parts that are
    looked at in short, nothing tells this of a short result, so its content is unknown.
    """
    described: dict[Kind, Sent] = {}
    for order in (recording.sent, recording.sent[::-1]):
        for sent in order:
            kind = (sent.process, sent.line, sent.by_name, sent.type)
            if not sent.is_short:
                described[kind] = sent
            elif not sent.inband_bytes and kind in described:
                complete(sent, described[kind])


def complete(sent: Sent, other: Sent) -> None:
    is_result = not sent.scope
    if is_result and other.is_hidden_in_short:
        sent.token = 0
        sent.content = 0
    sent.inband_bytes = round(sent.bytes * other.inband_bytes / max(1, other.bytes))
    sent.buffers = other.buffers
