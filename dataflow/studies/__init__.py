"""The one interface between a study and the laboratory. A study is a folder here; the laboratory names none of them.

The `__init__.py` of the folder has STUDY. Beside it, transports.toml has transports of its own, suite.toml its suites,
and sections.py its tables and charts (SECTIONS). If the folder is deleted, everything else works.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules, resolve_name
from typing import Any, ClassVar

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Study:
    """What a study adds. Names of the form "module:object" are relative to its folder, and imported when needed."""

    flows: Mapping[str, Callable[..., Any]] = field(default_factory=dict)  # name -> function that returns a Flow
    tables: Mapping[str, str] = field(default_factory=dict)  # flow -> table of its records
    flags: type = object  # a dataclass of flags, which is a base of Options
    # --message: name -> the flow as it is sent, from the flow of the user; None: as the user draws it.
    forms: Mapping[str, Callable[[Any], Any] | None] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)  # --message -> the package that it needs
    find_errors: Callable[[Any, Any, Any], Iterator[str]] = lambda transport, options, flow: iter(())
    is_used: Callable[[Any], bool] = lambda plan: False  # whether the actors of a plan have its part
    part: str = ""  # a Part
    collector: str = ""  # a Collector of what its parts measure


@dataclass(frozen=True)
class Added:
    """A flow with the tasks that a flag of a study adds to it, and what these need."""

    flow: Any  # a Flow
    timed_names: tuple[str, ...] = ()  # that --model-seconds takes besides the actors
    store_bytes: int = 0  # that they put into the object store per iteration, at most
    memory_bytes: int = 0  # that they keep


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


class Collector:
    """What the parts of all workers measure in a run, in the measuring process."""

    def __init__(self, plan: Any) -> None:
        self.measured: Any = None  # what the record keeps

    def add(self, values: Mapping[str, Any], is_timed: bool) -> Mapping[str, int]:
        """Take what `end_group` of each worker returned; return the wrong bytes by edge."""
        return {}

    def result(self, driver_seconds: Callable[[str, float], float]) -> tuple[Any, str | None]:
        """Return the measurement that the record keeps, and why the run has failed, if it has."""
        return self.measured, None


@cache
def studies() -> dict[str, Study]:
    names = sorted(module.name for module in iter_modules([str(FOLDER)]) if module.ispkg)
    return {name: import_module(f"{__name__}.{name}").STUDY for name in names}


def load(name: str, attribute: str) -> Any:
    """Return an object of a study, such as load("weights", "actor:WeightsPart")."""
    return resolve_name(f"{__name__}.{name}.{attribute}")
