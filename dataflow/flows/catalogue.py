"""List the flows by name: functions whose parameters are the flow's sizes, with their defaults.

Each size is a flag. A user's flow can also be text or a function in another file.
"""

import inspect
import runpy
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from types import NoneType
from typing import Any

from common import sizes as demo_sizes
from dataflow.errors import did_you_mean
from dataflow.flows.changes import cut_messages, scale_flow
from dataflow.flows.chatlearn_messages import dpo, of_samples, rlhf, slime
from dataflow.flows.flow import DRIVER, Flow, Task
from dataflow.flows.message import flat_message
from dataflow.flows.parser import ARROW, check_reserved, parse_flow
from dataflow.studies import studies
from dataflow.units import format_bytes


def online_dpo(
    batch_size: int = 1024, prompt_seq_len: int = 4096, max_new_tokens: int = 0, num_samples: int = 2
) -> Flow:
    """The demo's simulation of ChatLearn's online DPO: one flat int64 tensor per message.

    The sizes are a lower bound of what ChatLearn moves; docs/demo.md lists the differences. Raise ValueError if a
    message is not whole int64 words.
    """
    sizes = demo_sizes.message_bytes(batch_size, prompt_seq_len, num_samples, max_new_tokens)
    tasks = (
        Task("policy", (DRIVER,), flat_message(sizes["policy"])),
        Task("reference", ("policy",), flat_message(sizes["reference"])),
        Task("reward", ("policy", "reference"), flat_message(sizes["reward"])),
    )
    return Flow("online-dpo", "online DPO", flat_message(sizes["driver"]), tasks, returns=("reward",))


def round_trip(message_bytes: int = 1024) -> Flow:
    return chain(message_bytes, 1)


def chain(message_bytes: int = 1024, actors: int = 4) -> Flow:
    """Driver -> actor-1 -> actor-2 -> ... -> driver, the same number of bytes on every edge."""
    names = [DRIVER, *(f"actor-{index}" for index in range(1, actors + 1))]
    links = tuple(Task(name, (before,), flat_message(message_bytes)) for before, name in pairwise(names))
    name, title = (f"chain-{actors}", f"chain of {actors}") if actors > 1 else ("round-trip", "round trip")
    return Flow(name, title, flat_message(message_bytes), links, returns=(names[-1],))


def scatter_gather(message_bytes: int = 1024, actors: int = 4) -> Flow:
    """The driver sends one message to every actor at once and waits for all answers."""
    names = tuple(f"actor-{index}" for index in range(1, actors + 1))
    message = flat_message(message_bytes)
    answers = tuple(Task(name, (DRIVER,), message) for name in names)
    return Flow(f"scatter-gather-{actors}", f"scatter-gather of {actors}", message, answers, returns=names)


FLOWS: dict[str, Callable[..., Flow]] = {
    "online-dpo": online_dpo,
    "ppo": of_samples(partial(rlhf, "ppo", "RLHF (PPO)", has_value=True)),
    "grpo": of_samples(partial(rlhf, "grpo", "GRPO")),
    "grpo-math": of_samples(partial(rlhf, "grpo-math", "GRPO, math", has_rule=True)),
    "dpo": of_samples(dpo),
    "slime": of_samples(slime),
    "round-trip": round_trip,
    "chain": chain,
    "scatter-gather": scatter_gather,
}
for _study in studies().values():
    FLOWS.update(_study.flows)
# The demo sends flat tensors; with --message fields or packed, the flow has ChatLearn's fields instead.
FLOWS_OF_FIELDS = {"online-dpo": of_samples(partial(rlhf, "online-dpo", "online DPO"))}


@contextmanager
def name_errors(name: str) -> Iterator[None]:
    """Raise ValueError, with the line of FILE.py, for anything that the user's file raises."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        path = name.rpartition(":")[0]
        lines = [
            f", line {frame.lineno}" for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path
        ]
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{name}{''.join(lines[-1:])}: {reason}: give FILE.py:FUNCTION") from None


def flow_function(name: str, message: str | None = None) -> Callable[..., Flow]:
    """Return the function that builds the flow of this name, text or FILE.py:FUNCTION; raise ValueError for others."""
    if ARROW in name:
        return lambda: parse_flow(name)
    if ".py:" in name:
        path, _, function = name.rpartition(":")
        with name_errors(name):
            value = runpy.run_path(path)[function]
        if not callable(value):
            raise ValueError(f"{name} is of type {type(value).__name__}: give FILE.py:FUNCTION")
        return value
    if name not in FLOWS:
        others = f": give {', '.join(FLOWS)}, 'rollout -> trainer: 12MB', or my_flow.py:my_flow"
        raise ValueError(f"unknown flow {name}{did_you_mean(name, FLOWS) or others}")
    return FLOWS_OF_FIELDS.get(name, FLOWS[name]) if message else FLOWS[name]


def flow_sizes(name: str, message: str | None = None) -> dict[str, Any]:
    """Return the sizes of a flow with their defaults. A flow that is written as text has none.

    Raise ValueError if a parameter of a user's function has no default, or one that no record can hold.
    """
    parameters = inspect.signature(flow_function(name, message)).parameters
    sizes = {size: parameter.default for size, parameter in parameters.items()}
    for size, default in sizes.items():
        if not isinstance(default, (int, float, str, NoneType)):  # without a default, it is a class
            raise ValueError(f"{name}: give its parameter {size} a number or a text as default")
    return sizes


def build_flow(name: str, sizes: Mapping[str, Any], message: str | None = None) -> Flow:
    """Return the flow at these sizes. Sizes that are None or missing have the flow's defaults.

    `iteration_bytes` is a size of every flow of flat messages, `fields` (parts of each tensor) of every
    flow.
    Raise ValueError if the sizes do not make a flow, or if one of them belongs to another flow.
    """
    given = {size: value for size, value in sizes.items() if value is not None}
    iteration_bytes, fields = given.pop("iteration_bytes", None), given.pop("fields", None)
    if fields:
        message = None  # --fields cuts the flat message
    defaults = flow_sizes(name, message)
    for size in given.keys() - defaults.keys():
        owners = [flow for flow in FLOWS if size in flow_sizes(flow)]
        owners += [f"{flow} --message fields" for flow in FLOWS_OF_FIELDS if size in flow_sizes(flow, "fields")]
        others = f"; {name} has {', '.join(map(flag_name, defaults))}" if defaults else ""
        raise ValueError(f"{flag_name(size)} is a size of {', '.join(owners)}: leave it out{others}")
    function = flow_function(name, message)
    if ".py:" in name:
        with name_errors(name):
            flow = function(**{**defaults, **given})
        if not isinstance(flow, Flow):
            raise ValueError(f"{name} returned a {type(flow).__name__}: it must return a dataflow.flows.flow.Flow")
        check_reserved([*flow.actors, *(task.name for task in flow.tasks)])
    else:
        flow = function(**{**defaults, **given})
    if iteration_bytes and not flow.is_flat:
        raise ValueError(f"--iteration-bytes changes flat messages, and {name} has messages of fields: leave it out, "
                         "and use --batch-size")  # fmt: skip
    if iteration_bytes:
        flow = scale_flow(flow, iteration_bytes)
    return cut_messages(flow, fields) if fields else flow


def describe_flows() -> str:
    """Return each flow with its bytes and its sizes. --dry-run shows the messages."""
    lines = []
    for name, message in [(flow, None) for flow in FLOWS] + [(flow, "fields") for flow in FLOWS_OF_FIELDS]:
        flow = build_flow(name, {}, message)
        sizes = ", ".join(f"{flag_name(size)} {value}" for size, value in flow_sizes(name, message).items() if value)
        form = " --message fields" if message else ""
        lines.append(f"{name}{form}: {flow.title}, {format_bytes(flow.bytes_per_iteration)} per iteration ({sizes})")
    return "\n".join([*lines, "--dry-run shows the messages of a flow."])


def flag_name(option: str) -> str:
    return "--" + option.replace("_", "-")
