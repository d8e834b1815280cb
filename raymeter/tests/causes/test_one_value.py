# SPDX-License-Identifier: Apache-2.0
"""Messages that mostly consist of padding are named with their share, and other ones are not."""

import pytest
from made_programs import LINE, MIB, STEP_SECONDS, STEPS, Builder, make_steps
from raymeter.causes import one_value
from raymeter.findings import Finding
from raymeter.profile.events import Field

SERIALISE_SECONDS = 0.02


def find(*fields: Field) -> list[Finding]:
    """Return what is found if each step sends a message of 1 MiB with these fields."""
    builder = Builder()
    for step in range(STEPS):
        begin = 1.0 + STEP_SECONDS * step
        call = builder.call("call", begin, SERIALISE_SECONDS + 0.0002, line=LINE)
        builder.send(call, begin + 0.001, SERIALISE_SECONDS, fields=list(fields))
    return one_value.find(builder.program(), make_steps())


def tokens(share: float, size: int = MIB, dtype: str = "int64") -> Field:
    return Field(path="tokens", dtype=dtype, bytes=size, one_value=share)


def test_a_batch_that_is_mostly_padding_would_be_sent_without_it():
    (finding,) = find(tokens(0.9))
    assert finding.line == LINE
    assert "90 % of the numbers in tokens are one value" in finding.title
    assert finding.is_limit
    assert finding.seconds == pytest.approx(0.9 * SERIALISE_SECONDS, rel=0.05)


@pytest.mark.parametrize("fields", [
    [tokens(0.4)],
    [tokens(1.0)],  # as in tests
    [tokens(0.9, dtype="uint8")],  # images with a background
    [Field(path="batch.attention_mask", dtype="int64", bytes=MIB, one_value=0.9)],
    [tokens(0.9, size=MIB // 4), Field(path="logits", dtype="float32", bytes=MIB - MIB // 4)],
])  # fmt: skip
def test_other_batches_are_not_named(fields):
    assert not find(*fields)
