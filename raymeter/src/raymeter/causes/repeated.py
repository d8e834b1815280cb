"""Find content that is sent again although it has not changed.

Sources: "Anti-pattern: passing the same large argument by value repeatedly harms performance" and "Anti-pattern:
returning ray.put() ObjectRefs" in Ray's documentation of design patterns, and reports such as ray#61379.
"""

from raymeter.causes.savings import save_sending, total
from raymeter.findings import Finding
from raymeter.profile.groups import Group, group_messages, in_steps
from raymeter.profile.program import Message, Program
from raymeter.profile.steps import Steps
from raymeter.units import format_bytes, significant

CAUSE = "the same content is sent again"
CHANGES = {
    "argument": "Call `ref = ray.put(value)` once, before the loop over the readers (or over the steps, while the "
    "value does not change), and pass `ref`.",
    "put": "Call ray.put once, and keep the reference as long as the value does not change.",
    "result": "Keep `self.ref = ray.put(value)` in the actor, and return `[self.ref]` until the value changes.",
    "channel": "Write the value once, and let the readers keep it.",
}


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return a finding for each line that sends equal content again."""
    findings = []
    for group in group_messages(program.messages):
        repeats = in_steps(find_repeats(group.messages), steps)
        if repeats:
            findings.append(make_finding(program, steps, Group(repeats)))
    return findings


def find_repeats(messages: list[Message]) -> list[Message]:
    """Return the messages of one line whose content was sent before by the same process.

    Nothing is a repeat if a comparison of all bytes has shown a difference, or if there was none.
    """
    verified = [message.sent.is_same for message in messages]
    if False in verified or True not in verified:
        return []
    seen: set[tuple[str, int, int]] = set()
    repeats = []
    for message in messages:
        key = identity_of(message)
        if key in seen:
            repeats.append(message)
        seen.add(key)
    return repeats


def identity_of(message: Message) -> tuple[str, int, int]:
    """Return what is equal for the same content of the same owner.

    A task may compute equal results again, so a result is the same only if its array is the same object. Of arguments
    and of ray.put, equal content is enough.
    """
    sent = message.sent
    token = sent.token if message.how == "result" else 0
    return sent.process, sent.content, token


def make_finding(program: Program, steps: Steps, group: Group) -> Finding:
    savings = [saving for message in group.messages for saving in save_sending(program, message)]
    per_step = len(group.messages) / steps.count
    size = format_bytes(group.bytes)
    title = f"The same {size} are sent again {significant(per_step, 2)} times per step"
    if per_step > 1:
        title += f" ({group.type}, to {len(reader_processes(group))} processes)"
    return Finding(
        cause=CAUSE,
        title=title,
        line=group.line,
        change=CHANGES.get(group.how, CHANGES["argument"]),
        seconds=total(savings) / steps.count,
        savings=savings,
        messages=[(message.sent.process, message.sent.number) for message in group.messages],
        section="the-same-content-is-sent-again",
    )


def reader_processes(group: Group) -> set[str]:
    return {received.process for message in group.messages for received in message.received}
