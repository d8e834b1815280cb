"""A flow of one's own in a file, written as ChatLearn's users write theirs: a function of model calls.

    def my_flow(models, query):
        policy = models.policy(query)
        reference = models.reference(policy)
        return models.reward(policy, reference)

Each call is a task on the actor of that name; a second call of one model is a second task on it. Models that ChatLearn
has send what they send there, others say what they send: `models.critic(policy, emits="values float32 4MB")`, and so
may the query, as its default: `def my_flow(models, query="tokens int64 8MB")`.
"""

import inspect
import sys
from dataclasses import dataclass
from typing import Any

from common.flow import chatlearn
from common.flow.chatlearn import Batch
from common.flow.flow import DRIVER, Flow, Task
from common.flow.message import Message
from common.flow.own_code import explained, load_function
from common.flow.written import NAME, TAKEN, read_message


@dataclass(frozen=True)
class Output:
    """What a call gives, to be handed to other calls."""

    task: str


class Models:
    """Every attribute is a model that can be called; the calls are kept as tasks."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._tasks: list[Task] = []
        self._lines: dict[str, int] = {}  # of the user's file, in which each task is called

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*inputs: Output, emits: str | None = None) -> Output:
            return self._call(name, inputs, emits, sys._getframe(1).f_lineno)

        return call

    def _call(self, model: str, inputs: tuple[Any, ...], emits: str | None, line: int) -> Output:
        if not NAME.fullmatch(model) or model in (*TAKEN, DRIVER):
            raise ValueError(f"the name {model} is taken: give the model another one")
        if not inputs:
            raise ValueError(f"{model} reads nothing: hand it the query or what another model gave")
        for given in inputs:
            if not isinstance(given, Output):
                raise ValueError(f"{model} was handed {given!r}, which no model gave")
        if emits is None and model not in chatlearn.MESSAGES:
            raise ValueError(f"what {model} sends is unknown: say emits='values float32 4MB', or 12MB")
        message: Message = read_message(emits) if emits else chatlearn.MESSAGES[model](self._batch)
        calls = sum(task.actor == model for task in self._tasks)
        name = f"{model}-{calls + 1}" if calls else model
        self._tasks.append(Task(name, tuple(given.task for given in inputs), message, actor=model))
        self._lines[name] = line
        return Output(name)


def trace_flow(text: str, batch: Batch) -> Flow:
    """The flow of `path/to/my_flow.py:my_flow`.

    Raises:
        ValueError: it is none; the message names the line of the file.
    """
    file, _, name = text.rpartition(":")
    function, models = load_function(text), Models(batch)
    try:
        given = [parameter.default for parameter in inspect.signature(function).parameters.values()][1:2]
        query = read_message(given[0]) if given and isinstance(given[0], str) else chatlearn.query(batch)
        result = function(models, Output(DRIVER))
        returned = result if isinstance(result, (tuple, list)) else [result]
        if not returned or not all(isinstance(output, Output) and output.task != DRIVER for output in returned):
            raise ValueError(f"{name} must return what models gave, and returns {result!r}")
    except Exception as error:  # whatever the user's file raises is told with its line
        raise ValueError(explained(file, error, function.__code__.co_firstlineno)) from None
    returns = tuple(output.task for output in returned)
    read = {source for task in models._tasks for source in task.reads} | {*returns}
    for task in models._tasks:
        if task.name not in read:
            raise ValueError(f"{file}:{models._lines[task.name]}: nobody reads what {task.name} emits")
    return Flow(name, name.replace("_", " "), query, tuple(models._tasks), returns)
