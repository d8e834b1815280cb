"""Test flows that are written on the command line or in a file, and numbers with units."""

import pytest

from common.flows.catalogue import build_flow, flow_sizes
from common.units import format_bytes, parse_bytes, parse_seconds

TEXT = "rollout-1, rollout-2 -> trainer: tokens int64 8MB, logprobs float32 4MB"


def edges(name, **sizes):
    return [(edge.source, edge.reader, edge.bytes) for edge in build_flow(name, sizes).edges]


def test_the_driver_starts_senders_without_a_source_and_actors_that_send_nothing_acknowledge():
    assert edges(TEXT) == [
        ("driver", "rollout-1", 8), ("driver", "rollout-2", 8), ("rollout-1", "trainer", 12_000_000),
        ("rollout-2", "trainer", 12_000_000), ("trainer", "driver", 8),
    ]  # fmt: skip
    tokens, logprobs = build_flow(TEXT, {}).task("rollout-1").sends.fields
    assert (tokens.name, tokens.dtype, tokens.shape) == ("tokens", "int64", (1_000_000,))
    assert (logprobs.name, logprobs.dtype, logprobs.shape) == ("logprobs", "float32", (1_000_000,))


def test_the_driver_can_send_and_read_and_the_order_of_the_steps_does_not_matter():
    assert edges("judge -> driver: 1kB; left -> judge: 2kB; driver -> left, judge: 4kB") == [
        ("driver", "left", 4000), ("left", "judge", 2000), ("driver", "judge", 4000), ("judge", "driver", 1000)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a -> b", "write it as"),
        ("a b -> c: 12MB", "'a b' is not a name"),
        ("a -> a: 1MB", "to itself"),
        ("a -> b: 1MB; b -> a: 1MB", "is a cycle"),
        ("a -> b: 1MB; a -> c: 2MB", "a sends two different messages"),
        ("query -> b: 1MB", "the name query is reserved"),
        ("a -> b: 12XB", "unknown unit XB"),
        ("a -> b: x int3 4MB", "give name, dtype"),
        ("a -> b: 300 float32 4KB", "300 is not the name of a field"),
        ("a -> b: 0 x float32 4KB", "at least 1"),
    ],
)
def test_text_that_is_not_a_flow_is_rejected_in_one_line(text, reason):
    with pytest.raises(ValueError, match=reason) as error:
        build_flow(text, {})
    assert "\n" not in str(error.value)


def test_many_tensors_are_a_list_with_or_without_a_name():
    for name, text in (("tensors", ""), ("weights", "weights ")):
        (field,) = build_flow(f"a -> b: {text}300 x bfloat16 4KB", {}).task("a").sends.fields
        assert (field.name, field.dtype, field.lengths, field.bytes) == (name, "bfloat16", (2000,) * 300, 1_200_000)


def test_a_function_in_a_file_builds_a_flow_from_its_own_sizes(tmp_path):
    path = tmp_path / "my_flow.py"
    path.write_text("from common.flows.catalogue import chain\n"
                    "def make(actors=2):\n    return chain(16, actors)\n"
                    "def fail():\n    return undefined\n")  # fmt: skip
    assert flow_sizes(f"{path}:make") == {"actors": 2}
    assert edges(f"{path}:make", actors=1) == [("driver", "actor-1", 16), ("actor-1", "driver", 16)]
    for name, reason in (("fail", "my_flow.py:fail, line 5: NameError"), ("other", "has no function other")):
        with pytest.raises(ValueError, match=reason):
            build_flow(f"{path}:{name}", {})


def test_bytes_and_seconds_are_read_with_or_without_a_unit():
    texts = ("12", "8B", "12MB", "12MiB", "1.5 kB", "1.1MB")
    assert [parse_bytes(text) for text in texts] == [12, 8, 12 * 10**6, 12 * 2**20, 1500, 1_100_000]
    assert [parse_seconds(text) for text in ("10", "10s", "500ms", "2min", "1.5h")] == [10, 10, 0.5, 120, 5400]
    formatted = [format_bytes(count) for count in (8, 1000, 24_000_024, 448 << 20)]
    assert formatted == ["8 B", "1,000 B", "22.89 MiB", "448 MiB"]
    for text in ("", "many", "-1", "1e3", "12XB", "0.3B", "nan", "MB"):
        with pytest.raises(ValueError, match=r"bytes|unit"):
            parse_bytes(text)
        with pytest.raises(ValueError, match=r"seconds|unit"):
            parse_seconds(text)
