# SPDX-License-Identifier: Apache-2.0
"""The interface of a study: what a folder of dataflow/studies/ adds to the laboratory, which names none of them.

A study meets the laboratory in three places:

    options and flows  <-- STUDY: its flows, its flags and their errors, and the tasks that they add (plan/, flows/)
    each actor         <-- Part: what it does besides sending, inside and outside of the clock       (endpoints/)
    the record         <-- collect: what the driver makes of what all parts have measured            (measure/)

The `__init__.py` of the folder has STUDY. Beside it, transports.toml has transports of its own, suites.toml its suites,
stages.toml the functions that --trace times, and sections.py its tables and charts (SECTIONS). If the folder is
deleted, everything else works.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules, resolve_name
from typing import Any, ClassVar, NamedTuple

PACKAGE = "dataflow.studies"
STUDIES_FOLDER = Path(__file__).with_name("studies")


@dataclass(frozen=True)
class Study:
    """What a study adds. Names of the form "module:object" are relative to its folder, and imported when needed."""

    # Name, also of the table -> function.
    flows: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    # A frozen dataclass of flags, which is `options.study.<name of the folder>`. None: it has no flags.
    flags: type[Any] | None = None
    # --message: name -> the flow as it is sent, from the flow of the user. None: as the user draws it, and the form
    # needs the package of its name.
    forms: Mapping[str, Callable[[Any], Any] | None] = field(default_factory=dict)
    find_errors: Callable[[Any, Any, Any], Iterator[str]] = lambda transport, options, flow: iter(
        ()
    )
    # From the options and the flow: the flow with the tasks that the flags add to it, and what these need.
    add_tasks: Callable[[Any, Any], "Added"] = lambda options, flow: Added(flow)
    # From the options: how many iterations lie between two full verifications. None: the study does not decide it.
    group_size: Callable[[Any], int | None] = lambda options: None
    # Whether the actors of a plan have its part.
    is_used: Callable[[Any], bool] = lambda plan: False
    part: str = ""  # a Part
    # A function that returns what the record keeps, and why the run has failed, or None. Its arguments are the plan,
    # what `end_group` returned for each group of iterations (by worker) and whether the group was timed, and a function
    # that returns the seconds of the driver's clock for a worker and the seconds of its clock.
    collect: str = ""


class Added(NamedTuple):
    """A flow with the tasks that flags of studies add to it, and what these need."""

    flow: Any  # a Flow
    timed_names: tuple[str, ...] = ()  # that --model-seconds takes besides the actors
    stored_bytes: int = 0  # that they put into the object store per iteration, at most
    memory_bytes: int = 0  # that they keep
    processes: int = 0  # besides one per actor
    cpu_processes: int = 0  # besides these, without a GPU

    def then(self, later: "Added") -> "Added":
        """Return the sum of both, with the flow of `later`, which was made from the flow of this."""
        return Added(
            later.flow,
            self.timed_names + later.timed_names,
            self.stored_bytes + later.stored_bytes,
            self.memory_bytes + later.memory_bytes,
            self.processes + later.processes,
            self.cpu_processes + later.cpu_processes,
        )


class Part:
    """What an actor of a study does besides sending. Each worker has an object of its own."""

    name = ""  # of the study
    traced: ClassVar[Mapping[str, str]] = {}  # method -> stage of --trace

    def __init__(self, endpoint: Any) -> None:
        self.endpoint = endpoint

    def received(self, task: str, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the inputs of a task as it holds them."""
        return inputs

    def run(self, task: str, number: int) -> None:
        """Do the work of a task, between its inputs and its message."""

    def made(self, task: str) -> None:
        """Take note of the moment at which a message is handed to the transport."""

    def end_group(self, number: int) -> Any:
        """Return what was measured of the iterations up to this one, outside of the clock."""

    def verify(self, number: int) -> Mapping[str, int]:
        """Return the wrong bytes of the work of this iteration by name, outside of the clock."""
        return {}


@cache
def studies() -> dict[str, Study]:
    names = sorted(module.name for module in iter_modules([str(STUDIES_FOLDER)]) if module.ispkg)
    return {name: import_module(f"{PACKAGE}.{name}").STUDY for name in names}


def load(name: str, attribute: str) -> Any:
    """Return an object of a study, such as load("weights", "actor:WeightsPart")."""
    return resolve_name(f"{PACKAGE}.{name}.{attribute}")
