"""Test flows that are written on the command line or in a file, and numbers with units."""

import pytest

from dataflow.flows.catalogue import build_flow, flow_sizes
from dataflow.units import format_bytes, parse_bytes, parse_seconds


def edges(name, **sizes):
    return [(edge.source, edge.reader, edge.bytes) for edge in build_flow(name, sizes).edges]


def test_the_driver_starts_senders_without_a_source_and_actors_that_send_nothing_acknowledge():
    text = "rollout-1, rollout-2 -> trainer: tokens int64 8MB, logprobs float32 3MB, 250 x bfloat16 4kB"
    assert edges(text) == [
        ("driver", "rollout-1", 8), ("driver", "rollout-2", 8), ("rollout-1", "trainer", 12_000_000),
        ("rollout-2", "trainer", 12_000_000), ("trainer", "driver", 8),
    ]  # fmt: skip
    tokens, logprobs, tensors = build_flow(text, {}).task("rollout-1").sends.fields
    assert (tokens.name, tokens.dtype, tokens.shape) == ("tokens", "int64", (1_000_000,))
    assert (logprobs.name, logprobs.dtype, logprobs.shape) == ("logprobs", "float32", (750_000,))
    assert (tensors.name, tensors.dtype, tensors.lengths) == ("tensors", "bfloat16", (2000,) * 250)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a -> b", "write it as"),
        ("a -> a: 1MB", "to itself"),
        ("a -> b: 1MB; b -> a: 1MB", "is a cycle"),
        ("a -> b: 1MB; a -> c: 2MB", "a sends two different messages"),
        ("query -> b: 1MB", "the name query is reserved"),
        ("a -> b: x int3 4MB", "give name, dtype"),
        ("a -> b: 0 x float32 4KB", "at least 1"),
        ("a -> b: 300000000 x bfloat16 4MB", "has more than 100000 tensors: give fewer and larger ones"),
    ],
)
def test_text_that_is_not_a_flow_is_rejected_in_one_line(text, reason):
    with pytest.raises(ValueError, match=reason) as error:
        build_flow(text, {})
    assert "\n" not in str(error.value)


def test_bytes_and_seconds_are_read_with_or_without_a_unit():
    texts = ("12", "8B", "12MB", "12MiB", "1.5 kB", "1.1MB")
    assert [parse_bytes(text) for text in texts] == [12, 8, 12 * 10**6, 12 * 2**20, 1500, 1_100_000]
    assert [parse_seconds(text) for text in ("10", "10s", "500ms", "2min", "1.5h")] == [10, 10, 0.5, 120, 5400]
    formatted = [format_bytes(count) for count in (8, 1000, 24_000_024, 448 << 20)]
    assert formatted == ["8 B", "1,000 B", "22.89 MiB", "448 MiB"]
    for text in ("", "many", "-1", "1e3", "12XB", "nan", "MB", "9" * 19):
        for parse in (parse_bytes, parse_seconds):
            with pytest.raises(ValueError, match="is not a number with"):
                parse(text)
    with pytest.raises(ValueError, match="not a whole number"):
        parse_bytes("0.3B")


FLOW_FILE = """
import sys
from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import Field, Message

def make(name="policy", actor="", rows=8):
    message = Message((Field("tokens", "int64", (rows,)),))
    return Flow("mine", "mine", message, (Task(name, (DRIVER,), message, actor),), returns=(name,))

flow = make()
def outside(): return make("good", "../../evil")
def integer(): return make(5)
def reserved(): return make("proxy")
def text(): return "a\\nb"
def object_default(n=flow): return make()
def leaves(): sys.exit(0)
def base(): raise BaseException("two\\nlines")
def fine(n=1, m=None, x=0.5, t="a"): return make("policy-1.forward", "policy-1", rows=n)
"""


@pytest.fixture
def write(tmp_path):
    """write(text) -> the path of a new file with it."""
    path = tmp_path / "mine.py"
    return lambda text: path.write_text(text) and path


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("other", r"KeyError: 'other': give FILE\.py:FUNCTION"),
        ("flow", r"is of type Flow: give FILE\.py:FUNCTION"),
        ("outside", r"line 8: ValueError: '\.\./\.\./evil' is not a name: use letters, digits, dashes"),
        ("integer", "line 8: ValueError: 5 is not a name"),
        ("reserved", "the name proxy is reserved: use another one"),
        ("text", "returned a str: it must return"),
        ("object_default", "give its parameter n a number or a text as default"),
        ("leaves", "line 16: SystemExit: 0"),
        ("base", "line 17: BaseException: two lines"),
    ],
)
def test_a_function_that_makes_no_flow_is_rejected_in_one_line(write, function, reason):
    with pytest.raises(ValueError, match=reason) as error:
        build_flow(f"{write(FLOW_FILE)}:{function}", {})
    assert "\n" not in str(error.value)


def test_a_function_in_a_file_builds_a_flow_from_its_own_sizes(write):
    name = f"{write(FLOW_FILE)}:fine"
    assert flow_sizes(name) == {"n": 1, "m": None, "x": 0.5, "t": "a"}
    assert edges(name, n=2) == [("driver", "policy-1.forward", 16), ("policy-1.forward", "driver", 16)]
