# SPDX-License-Identifier: Apache-2.0
"""Properties of flows that are written as text: a right one is read as it is written, and a wrong one is one error."""

import string

from hypothesis import example, given
from hypothesis import strategies as st
from made_inputs import spaces, words

from dataflow.flows.flow import DRIVER, Flow
from dataflow.flows.message import ACKNOWLEDGEMENT, ITEM_BYTES
from dataflow.flows.parser import RESERVED_NAMES, parse_flow

names = words.filter(lambda name: name not in (DRIVER, *RESERVED_NAMES))
SYMBOLS = [
    *string.printable, "->", "->", ": ", "; ", ", ", "driver", "query", "a", "b", "rollout-1", "8B", "12 MB", "1.5kB",
    " x ", "300 x float32 4KB", "tokens int64 8MB", "\u2028", "\x85", "²", "\ud800",
]  # fmt: skip


@st.composite
def written_fields(draw):
    """Return the text of a field, and its bytes."""
    dtype = draw(st.sampled_from(sorted(ITEM_BYTES)))
    items = draw(st.integers(1, 99))
    size = items * ITEM_BYTES[dtype]
    tensors = draw(st.none() | st.integers(1, 5))
    name = draw(words)
    count = "" if tensors is None else f"{tensors} x "
    return f"{name} {count}{dtype} {size}B", (tensors or 1) * size


@st.composite
def written_messages(draw):
    """Return the text of a message, and its bytes: one flat tensor, or a number and other fields."""
    if draw(st.booleans()):
        size = draw(st.integers(1, 10**6))
        return f"{size}{draw(spaces)}B", size
    texts = ["number_ int64 8B"]
    total = 8
    seen = {"number_"}
    for text, size in draw(st.lists(written_fields(), max_size=3)):
        name = text.split()[0]
        if name not in seen:
            seen.add(name)
            texts.append(text)
            total += size
    return ", ".join(texts), total


@st.composite
def written_flows(draw):
    """Return the text of a flow, and the bytes of each of its edges (sender, reader).

    Each actor reads some of those before it, so there is no cycle. The steps are in any order.
    """
    actors = draw(st.lists(names, min_size=2, max_size=6, unique=True))
    steps = []
    edges = {}
    for index, sender in enumerate(actors[:-1]):
        others = st.lists(st.sampled_from(actors[index + 1 :]), unique=True, max_size=3)
        readers = draw(others)
        if readers:
            text, size = draw(written_messages())
            gap = draw(spaces)
            steps.append(
                f"{gap}{sender}{gap} ->{gap}{f'{gap},{gap}'.join(readers)}{gap}:{text}{gap}"
            )
            edges.update({(sender, reader): size for reader in readers})
    if not steps:
        steps.append(f"{actors[0]} -> {actors[1]}: 8B")
        edges[actors[0], actors[1]] = 8
    return ";".join(draw(st.permutations(steps))), edges


@given(written_flows())
def test_a_flow_has_the_edges_and_bytes_that_are_written(written):
    text, edges = written
    flow = parse_flow(text)
    senders = {sender for sender, _ in edges}
    readers = {reader for _, reader in edges}
    expected = dict(edges)
    # The driver starts those that nobody sends to, and those that send nothing acknowledge to it.
    expected.update({(DRIVER, name): ACKNOWLEDGEMENT.bytes for name in senders - readers})
    expected.update({(name, DRIVER): ACKNOWLEDGEMENT.bytes for name in readers - senders})
    assert {(edge.source, edge.reader): edge.bytes for edge in flow.edges} == expected
    assert flow.bytes_per_iteration == sum(expected.values())


@given(written_flows())
def test_each_task_runs_after_those_that_it_reads(written):
    done = {DRIVER}
    for task in parse_flow(written[0]).tasks:
        assert done.issuperset(task.reads)
        done.add(task.name)


@given(st.lists(st.sampled_from(SYMBOLS), max_size=25).map("".join))
@example("")
@example(";")
@example("a\nb -> c: 1B; a\nb -> d: 2B")
@example("a -> b\nc: 1B; b\nc -> a: 1B")
@example("a -> b: " + "9" * 5000 + " x float32 4B")
@example("a -> b: x int64 " + "9" * 5000 + "B")
def test_any_text_is_a_flow_or_one_error_in_one_line(text):
    check_text(text)


@given(written_flows(), st.data())
def test_a_flow_with_a_mistake_is_a_flow_or_one_error_in_one_line(written, data):
    text, _ = written
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(len(text), begin + 5)))
    inserted = data.draw(st.sampled_from(["", *SYMBOLS]))
    check_text(text[:begin] + inserted + text[end:])


def check_text(text):
    try:
        flow = parse_flow(text)
    except ValueError as error:
        message = str(error)
        assert message and len(message.splitlines()) == 1, repr(message)
    else:
        assert isinstance(flow, Flow)
