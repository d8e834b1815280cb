# SPDX-License-Identifier: Apache-2.0
"""Read the flow of a user: a text, a TOML file, or a function in a Python file."""

import inspect
import re
import runpy
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec

from dataflow.flows.flow import DRIVER, PROXY, Flow, Task, check_name
from dataflow.flows.message import (
    ACKNOWLEDGEMENT,
    ITEM_BYTES,
    PYTHON_DTYPES,
    Field,
    Message,
    flat_message,
)
from dataflow.flows.user_modules import user_modules
from dataflow.units import parse_bytes

ARROW = "->"
EXAMPLE = "'rollout-1, rollout-2 -> trainer: 12MB'"
MAX_TENSORS = 100_000  # of a message that is written as text
RESERVED_NAMES = (PROXY, "query", "result")  # tasks and actors that the suite adds to flows


def check_reserved(names: Iterable[str]) -> None:
    for name in names:
        if name in RESERVED_NAMES:
            raise ValueError(f"the name {name} is reserved: use another one")


def parse_flow(text: str) -> Flow:
    """Return the flow that a text describes; raise ValueError with the part that is wrong, such as a cycle.

        rollout-1, rollout-2 -> trainer: 12MB
        actor -> critic, reward: tokens int64 8MB, logprobs float32 4MB; critic, reward -> trainer: 4MB
        trainer -> rollout: 300 x bfloat16 4MB

    Semicolons separate the steps. Each sender sends one message, and every reader gets all of it. A size alone is one
    flat tensor; fields with a dtype are a dict, in which `300 x` is a list of tensors. `driver` may stand on either
    side. It starts actors that nobody sends to with 8 bytes. Actors that send nothing acknowledge to it, and the
    iteration ends with the last acknowledgement.
    """
    steps = [step.strip() for step in text.split(";") if step.strip()]
    if not steps:
        raise ValueError(f"the flow is empty: write it as {EXAMPLE}")
    reads, sends = _parse_steps(steps)
    names = [name for name in dict.fromkeys([*sends, *reads]) if name != DRIVER]
    check_reserved(names)
    sources = {name: tuple(reads.get(name) or [DRIVER]) for name in names}
    order = _sort_tasks(sources)
    tasks = [Task(name, sources[name], sends.get(name, ACKNOWLEDGEMENT)) for name in order]
    silent = [name for name in order if name not in sends]
    results = [*reads.get(DRIVER, []), *silent]
    return Flow(
        name=text,
        title="; ".join(map(_name_step, steps)),
        query=sends.get(DRIVER, ACKNOWLEDGEMENT),
        tasks=tuple(tasks),
        returns=tuple(dict.fromkeys(results)),
    )


def _parse_steps(steps: Iterable[str]) -> tuple[dict[str, list[str]], dict[str, Message]]:
    """Return the senders that each reader reads, and the message of each sender.

    Raise ValueError for a step that cannot be read, a sender of two different messages, or one that sends to a reader
    twice or to itself.
    """
    reads: dict[str, list[str]] = {}
    sends: dict[str, Message] = {}
    for step in steps:
        match = re.fullmatch(rf"([^:]+?){ARROW}([^:]+):(.+)", step, re.DOTALL)
        if not match:
            raise ValueError(f"cannot read {step!r}: write it as {EXAMPLE}")
        senders = _split_names(match[1])
        readers = _split_names(match[2])
        message = _parse_message(match[3])
        for sender in senders:
            if sends.setdefault(sender, message) != message:
                raise ValueError(
                    f"{sender} sends two different messages: use two names for its two tasks"
                )
            for reader in readers:
                if sender in reads.setdefault(reader, []) or sender == reader:
                    raise ValueError(f"{sender} sends to {reader} twice, or to itself")
                reads[reader].append(sender)
    return reads, sends


def _split_names(text: str) -> list[str]:
    """Return the names of actors; raise ValueError for a text that is none."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        check_name(name)
    return names


def _sort_tasks(sources: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the tasks, each after those that it reads; raise ValueError if there is a cycle."""
    try:
        return [name for name in TopologicalSorter(sources).static_order() if name != DRIVER]
    except CycleError as error:
        cycle = " -> ".join(error.args[1])
        raise ValueError(
            f"{cycle} is a cycle, and an iteration must end: leave one message out. For weights "
            "that go back, measure them with --flow weights, or beside this flow with --beside "
            "'trainer -> rollout: 1GB'"
        ) from None


def _name_step(step: str) -> str:
    """Return who sends to whom, with one space between words."""
    names, _, _ = step.partition(":")
    return " ".join(names.split())


def _parse_size(text: str) -> int:
    """Return the bytes of a size with a unit; raise ValueError for a number alone, which could mean megabytes."""
    if re.fullmatch(r"\s*[\d.]+\s*", text):
        raise ValueError(
            f"the size {text.strip()} has no unit: is it {text.strip()} B or {text.strip()} MB?"
        )
    return parse_bytes(text)


def _parse_message(text: str) -> Message:
    """Return a message of one flat tensor for a size, or of fields; raise ValueError for other text."""
    if re.fullmatch(r"\s*[\d.]+\s*[A-Za-z]*\s*", text):
        return flat_message(_parse_size(text))
    fields: list[Field] = []
    tensors = 0
    for part in map(str.strip, text.split(",")):
        match = re.fullmatch(
            rf"(?:(\S+)\s+)??(?:(\d+)\s*x\s+)?({'|'.join(ITEM_BYTES)})\s+(.+)", part, re.DOTALL
        )
        if not match or not (match[1] or match[2]):
            dtypes = ", ".join(ITEM_BYTES)
            raise ValueError(
                f"cannot read {part!r}: give name, dtype ({dtypes}) and bytes, or 300 x float32 4KB"
            )
        name = match[1] or "tensors"
        dtype = match[3]
        count = int(match[2] or 1)
        if not name.isidentifier():
            raise ValueError(
                f"{name} is not the name of a field: use letters, digits and underscores, a letter first"
            )
        items, remainder = divmod(_parse_size(match[4]), ITEM_BYTES[dtype])
        if remainder or not count:
            raise ValueError(
                f"field {name}: give at least 1 tensor, and a multiple of the item size of {dtype}"
            )
        tensors += count
        if tensors > MAX_TENSORS:
            raise ValueError(
                f"{text.strip()!r} has more than {MAX_TENSORS} tensors: give fewer and larger ones"
            )
        is_list = match[2] or dtype in PYTHON_DTYPES  # strings and numbers are in lists
        fields.append(
            Field(name, dtype, lengths=(items,) * count)
            if is_list
            else Field(name, dtype, shape=(items,))
        )
    return Message(tuple(fields))


def read_flow(path: str) -> Flow:
    """Return the flow of a TOML file; raise ValueError if it cannot be read."""
    require_file(path, path, "give a flow.toml that raymeter has written")
    try:
        return msgspec.toml.decode(Path(path).read_bytes(), type=Flow)
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(
            f"--flow {path}: {error}: give a flow.toml that raymeter has written"
        ) from None


def require_file(flow: str, path: str, advice: str) -> None:
    """Raise ValueError if the file that a flow names does not exist."""
    if not Path(path).is_file():
        raise ValueError(f"--flow {flow}: there is no file {path}: {advice}")


def load_function(name: str) -> Callable[..., Flow]:
    """Run FILE.py, and return its function. Raise ValueError for anything that it raises, now or when it is called."""
    path, _, function_name = name.rpartition(":")
    require_file(name, path, "give FILE.py:FUNCTION")

    def call(function: Callable[..., Any], **sizes: Any) -> Any:
        try:
            with user_modules(Path(path).parent, Path.cwd()):
                return function(**sizes)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [f", line {frame.lineno}" for frame in frames if frame.filename == path]
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise ValueError(
                f"{name}{''.join(lines[-1:])}: {reason}: give FILE.py:FUNCTION"
            ) from None

    function = call(lambda: runpy.run_path(path)[function_name])
    if not callable(function):
        raise ValueError(f"{name} is of type {type(function).__name__}: give FILE.py:FUNCTION")
    for size, parameter in inspect.signature(function).parameters.items():
        # The default of a parameter without one is a class.
        if not isinstance(parameter.default, (int, float, str, NoneType)):
            raise ValueError(f"{name}: give its parameter {size} a number or a text as default")

    @wraps(function)
    def build(**sizes: Any) -> Flow:
        flow = call(function, **sizes)
        if not isinstance(flow, Flow):
            raise ValueError(
                f"{name} returned a {type(flow).__name__}: it must return a dataflow.flows.flow.Flow"
            )
        check_reserved([*flow.actors, *(task.name for task in flow.tasks)])
        return flow

    return build
