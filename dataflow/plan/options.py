# SPDX-License-Identifier: Apache-2.0
"""Define the flags of configurations: a field per flag, with its group, default, help and bounds.

Options has those of the laboratory, and a struct with those of each study: `options.study.NAME.FLAG`. On the
command line and in records, a flag has only its name, which no other flag has.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Meta

from dataflow.catalogue.catalogue import read_files
from dataflow.flows.catalogue import FLOWS
from dataflow.flows.flow import Flow
from dataflow.flows.message import MODELS
from dataflow.plan.environment import normalise_environment, parse_environment_text
from dataflow.plan.flag import KINDS, Flag, flag, flags_of, require_different_names
from dataflow.study import Added, studies
from dataflow.units import parse_bytes, parse_seconds

RESULTS = Path(__file__).resolve().parents[2] / "results"
CAMPAIGNS = RESULTS / "campaigns"
# Of machines that differ in more than their speed, such as more cores: no cost is fitted to them.
OTHER_CAMPAIGNS = RESULTS / "evidence" / "other-campaigns"
PRESETS: dict[str, Any] = {}
for _presets in read_files(Path(__file__).with_name("presets.toml")):
    PRESETS |= _presets
# Of --message, which studies add.
FORMS: dict[str, Callable[[Flow], Flow] | None] = {}
for _study in studies().values():
    FORMS |= _study.forms
MIN_STORE_BYTES = 75 * 2**20  # Ray rejects less
MAX_WARMUP = 60  # untimed iterations
MIN_WARMUP_GROUPS = 10  # of --in-flight untimed iterations, which are compared
# With --retain-memory, heaps still grow now and then.
MAX_KEPT_WARMUP = 200  # untimed iterations
MIN_KEPT_GROUPS = 20  # of --in-flight untimed iterations, in which no heap grows
MAX_COUNT = 10**6  # of most things


def parse_warmup(text: str) -> int | None:
    """Return the number of untimed iterations; None for steady."""
    if text == "steady":
        return None
    if not text.isdecimal() or int(text) > MAX_COUNT:
        raise ValueError(f"give a whole number from 0 to {MAX_COUNT}, or steady")
    return int(text)


def parse_assignments(flag: str, text: str | None, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Return the values of a text such as `policy=2,reference=3` by name; an empty dict for None and "".

    Raise ValueError, which names `flag`, for a part without "=", a repeated name, or a value that `parse` cannot read.
    """
    values: dict[str, Any] = {}
    for part in text.split(",") if text else []:
        name, equals, value = part.partition("=")
        if not equals or name in values:
            raise ValueError(
                f"{flag} {text}: give NAME=VALUE, several names separated by commas and each of them once"
            )
        try:
            values[name] = parse(value)
        except ValueError as error:
            advice = f"give {KINDS[parse]}" if parse in KINDS else error
            raise ValueError(f"{flag} {part}: {advice}") from None
    return values


_workload = partial(flag, "workload")
_size = partial(flag, "sizes", None, size=True)
_transport = partial(flag, "transport")
_measurement = partial(flag, "measurement")
_COUNT = Meta(ge=1, le=MAX_COUNT)
_BYTES = Meta(ge=1, le=10**15)
_TIME = Meta(gt=0)
_LENGTHS = "a number, lognormal:200:0.6:512 (median, sigma, longest) or uniform:10:512"


# The dataclass of flags of each study that has one. --help shows the flags of the first study last.
STUDY_FLAGS = {name: study.flags for name, study in reversed(studies().items()) if study.flags}
StudyFlags = dataclasses.make_dataclass(
    "StudyFlags",
    [
        (name, flags, dataclasses.field(default_factory=flags))
        for name, flags in STUDY_FLAGS.items()
    ],
    frozen=True,
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The flags of a configuration. `of` makes them from values by name."""

    # fmt: off
    flow: str = _workload("online-dpo", f"actors and the messages between them: {', '.join(FLOWS)}, text such as "
        "'rollout-1, rollout-2 -> trainer: tokens int64 8MB, logprobs float32 4MB', or a function that returns a Flow, "
        "for example my_flow.py:make, or the data of a known system (--help presets)", str)
    message: str | None = _workload(None, "send messages of several fields as a dict of tensors (fields, the default), "
        "copied into one buffer (packed), with lists of tensors as tensors of values and of offsets (jagged), or in a "
        "form of a study. The flat messages of online-dpo become ChatLearn's fields with this flag", str,
        choices=("fields", "packed", "jagged", *FORMS))
    batch_size: int | None = _size("samples or prompts per message", int, _COUNT)
    prompt_seq_len: int | None = _size("tokens per prompt, in flows whose prompts have equal lengths", int, _COUNT)
    prompt_len: str | None = _size(f"tokens per prompt of ChatLearn's flows: {_LENGTHS}", str)
    response_len: str | None = _size(f"tokens per response of ChatLearn's flows: {_LENGTHS}", str)
    seq_length: int | None = _size("tokens per sample, to which shorter samples are padded", int, _COUNT)
    as_sent: bool | None = _size("send views of larger tensors, as ChatLearn does; pickle writes the whole storage")
    message_bytes: int | None = _size("bytes per message of round-trip, chain, scatter-gather, ring, all-to-all, "
        "fan-in and fan-out", parse_bytes, _BYTES)
    actors: int | None = _size("actors of the flows chain, scatter-gather, ring, all-to-all, fan-in and fan-out", int,
        Meta(ge=1, le=64))
    iteration_bytes: int | None = _size("scale all flat messages to this number of bytes per iteration, such as 64MiB",
        parse_bytes, _BYTES)
    changing_sizes: float | None = _size("change the size of all messages from iteration to iteration, as lengths do "
        "in training: log-normal with this sigma, such as 0.5. The mean stays, and equal --iterations send equal sizes",
        float, Meta(gt=0, le=2), metavar="SIGMA")
    fields: int | None = _size("cut each tensor of a message into this many tensors", int, Meta(ge=1, le=10_000))
    model: str | None = _size(f"tensors of flows of models: {', '.join(MODELS)}, or the size of one flat tensor, such "
        "as 1GiB", str)
    model_scale: float | None = _size("multiply the first dimension of all tensors of --model by this share", float,
        Meta(gt=0, le=1))
    lora_rank: int | None = _size("send adapters of this rank for the matrices of the layers of --model instead of all "
        "tensors", int, Meta(ge=1, le=4096))
    device: str = _transport("auto", "device of the tensors; auto: GPUs if there are any and the transport uses them",
        str, choices=("auto", "cpu", "cuda"))
    zero_copy: bool = _transport(False, "object store: readers map tensors and do not copy them", configuration=True)
    copy_in: bool = _transport(False, "mapped transports and torch multiprocessing: producers write into memory of "
        "their own, and copy each message into shared memory inside the clock", configuration=True)
    copy_out: bool = _transport(False, "readers copy the view that they get, into memory that the next message uses "
        "again, or with --keep into new memory", configuration=True)
    reuse_buffers: bool = _transport(False, "rdt nixl-pull: readers receive into memory that they have registered "
        "(set_target_for_ref)", configuration=True)
    one_by_one: bool = _transport(False, "rdt nixl-pull: readers fetch the messages of a call one after the other, and "
        "not together", configuration=True)
    keep: bool = _transport(False, "torch gloo and broadcast, graph nixl-read, and --copy-out: readers may keep what "
        "they get; otherwise, the next message overwrites it", configuration=True)
    registration: str = _transport("once", "rdt nixl and nixl-pull: producers register their memory once, Ray copies "
        "each message into a registered pool, or Ray registers each message, as it does by itself (none)", str,
        choices=("once", "pool", "none"), configuration=True)
    retain_memory: bool = _transport(False, "processes keep memory that they have freed, so there are fewer page "
        "faults (four MALLOC_ variables of glibc: docs/page-faults.md)", configuration=True)
    preallocate_store: bool = _transport(False, "a private cluster takes all memory of the object store at its start: "
        "twice as much as the messages need, or --object-store-bytes", configuration=True)
    ray_defaults: bool = _transport(False, "a private cluster has the settings of `ray start`: a lower priority of "
        "workers, workers that are started ahead, metrics, and a dashboard if it is installed. Python collects garbage "
        "as usual", configuration=True)
    huge_pages: bool = _transport(False, "torch uses pages of 2 MiB, so there are fewer page faults "
        "(THP_MEM_ALLOC_ENABLE=1)", configuration=True)
    env: str | None = _transport(None, "environment variables of all processes of a run: 'NAME=VALUE NAME=VALUE', "
        "separated as in a shell. Records have them, without the folders of paths", parse_environment_text,
        metavar="'NAME=VALUE ...'", configuration=True, normal_form=normalise_environment)
    address: str | None = _transport(None, "use the Ray cluster at ip:port (or auto) instead of a private one", str)
    placement: str | None = _transport(None, "node of each actor on the cluster of --address: all on the driver's "
        "node (pack), one per node round-robin (spread, the default), or numbers: policy=0,reference=1,reward=1. The "
        "driver's node is 0, and so is that of other actors", str, metavar="pack|spread|ACTOR=NODE,...")
    object_store_bytes: int | None = _transport(None, "object store of a private Ray cluster, such as 4GiB. Default: "
        "30 %% of the free memory, as in Ray", parse_bytes, Meta(ge=MIN_STORE_BYTES, le=10**15))
    iterations: int = _measurement(30, "timed iterations", int, Meta(ge=1, le=10**7))
    warmup: int | None = _measurement(None, "untimed iterations after the first one: a number, or steady, which goes "
        "on until neither the times nor the page faults change: 10 to 60 iterations, or 30 s; with --retain-memory 20 "
        "to 200, or 60 s; at least 10 or 20 times --in-flight. Default: steady", parse_warmup, metavar="N|steady")
    check_every: int | None = _measurement(None, "iterations between two full verifications. All bytes of the last "
        "--in-flight iterations and the sequence numbers of the others are verified. Default: the value of "
        "--in-flight, so that all bytes of every iteration are verified", int, _COUNT, configuration=True)
    allow_disturbed: bool = _measurement(False, "count runs during which other programs used more than 0.3 cores, or "
        "more than a tenth of the idle ones, or the hypervisor took more than 0.1, and do not measure them again")
    in_flight: int = _measurement(1, "largest number of iterations that run at the same time",
        int, Meta(ge=1, le=64), configuration=True)
    timeout: float = _measurement(120.0, "end the run with an error if its start or an iteration takes longer (in s)",
        parse_seconds, _TIME, metavar="TIME")
    run_limit: float | None = _measurement(None, "end a run with an error if it takes longer altogether, with its "
        "start and the verification (in s)", parse_seconds, _TIME, metavar="TIME")
    sweep: str | None = _measurement(None, "measure at several values of iteration-bytes, batch-size, fields, "
        "in-flight or actors, with one record each: iteration-bytes=1KiB,1MiB,1GiB or fields=1,8,64", str,
        metavar="NAME=VALUE,...")
    model_seconds: str | None = _measurement(None, "time that actors sleep per message instead of computing: "
        "policy=200ms,reward=50ms", str, metavar="ACTOR=TIME,...", configuration=True)
    threads: int = _measurement(1, "torch threads per actor, for copies", int, _COUNT, configuration=True)
    trace: bool = _measurement(False, "record what each process does and when: a table shows the stages of an "
        "iteration, and a Chrome trace (.trace) lies beside the record. Tracing itself costs time")
    beside: str | None = _measurement(None, "send another flow over the same transport, in processes of its own, from "
        "before the first iteration to the last: a flow as in --flow, such as 'trainer -> rollout: 100MB'", str,
        configuration=True)
    inject: str | None = _measurement(None, "", str, configuration=True)  # tests/fault_injection.py
    # fmt: on
    transport: str | None = None
    preset: str | None = None  # the known system that --flow names
    study: Any = dataclasses.field(default_factory=StudyFlags)  # a struct of flags per study

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Options":
        """Return the options with these values of flags, by name. The others have their defaults.

        Values are not checked. Raise TypeError for an unknown name.
        """
        own = dict(values)
        given: dict[str, dict[str, Any]] = {name: {} for name in STUDY_FLAGS}
        for known in FLAGS:
            if known.study and known.name in own:
                given[known.study][known.name] = own.pop(known.name)
        structs = {name: flags(**given[name]) for name, flags in STUDY_FLAGS.items()}
        return cls(**own, study=StudyFlags(**structs))

    def __post_init__(self) -> None:
        if self.as_sent and self.message is None:
            object.__setattr__(self, "message", "fields")
        object.__setattr__(
            self, "placement", self.placement or ("spread" if self.address else "pack")
        )

    @property
    def sizes(self) -> dict[str, Any]:
        """Return the parameters of the flow by name; None: the flow's default."""
        return {flag.name: self.value_of(flag) for flag in FLAGS if flag.size}

    @property
    def group_size(self) -> int:
        """Return the number of iterations between two full verifications.

        A study may decide it; of several that do, the smallest number counts.
        """
        decided = [study.group_size(self) for study in studies().values()]
        return min(filter(None, decided), default=self.check_every or self.in_flight)

    @property
    def model_times(self) -> dict[str, float]:
        return parse_assignments("--model-seconds", self.model_seconds, parse_seconds)

    @property
    def nodes_of_actors(self) -> dict[str, int]:
        """Return the node numbers of --placement; nothing for pack and spread."""
        return parse_assignments(
            "--placement", self.placement if "=" in str(self.placement) else None, int
        )

    @property
    def table(self) -> str:
        """Return the table of a record that no suite asked for."""
        if not self.sweep:
            is_of_study = any(self.flow in study.flows for study in studies().values())
            return "stages" if self.trace else self.flow if is_of_study else "configurations"
        name = self.sweep.partition("=")[0]
        return name if name == "in-flight" else f"sweep-{name}"

    def add_tasks(self, flow: Flow) -> Added:
        """Return the flow with the tasks that studies add to it, one after the other, and what these need."""
        added = Added(flow)
        for study in studies().values():
            added = added.then(study.add_tasks(self, added.flow))
        return added

    def value_of(self, flag: Flag) -> Any:
        owner = getattr(self.study, flag.study) if flag.study else self
        return getattr(owner, flag.name)

    @property
    def configuration_flags(self) -> dict[str, Any]:
        """Return the given flags that make another configuration."""
        flags = {}
        for candidate in FLAGS:
            if candidate.makes_configuration:
                flags[candidate.name] = candidate.normal_form(self.value_of(candidate))
        given = {name: value for name, value in flags.items() if value != DEFAULTS[name]}
        return normal_flags(given)

    @property
    def values(self) -> dict[str, Any]:
        """Return the value of every flag by its name, those of studies last."""
        values = dataclasses.asdict(self)
        for flags in values.pop("study").values():
            values |= flags
        return values

    # Another checkout (--against) may have other studies, so a pickle has the flags by name.
    def __getstate__(self) -> dict[str, Any]:
        return self.values

    def __setstate__(self, values: Mapping[str, Any]) -> None:
        known = Options().values.keys()
        flags = {name: value for name, value in values.items() if name in known}
        self.__dict__.update(vars(Options.of(flags)))

    @property
    def arguments(self) -> dict[str, Any]:
        """Return every flag as a value for JSON, without anything private: no folder and no address."""
        values = self.values | {"address": bool(self.address)}
        if ".py:" in self.flow:
            values["flow"] = Path(self.flow).name  # others have the file elsewhere
        values["env"] = normalise_environment(self.env)
        return values


def normal_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags of a configuration without a --check-every that is its default, the value of --in-flight.

    Older records have both.
    """
    normal = dict(flags)
    if normal.get("check_every") == normal.get("in_flight", Options.in_flight):
        del normal["check_every"]
    return normal


def options_of(flow: str, flags: Mapping[str, Any]) -> Options:
    """Return the options of a record: its flow, and the flags that make a configuration. Unknown ones are left out."""
    known = {flag.name for flag in FLAGS}
    values = {name: value for name, value in flags.items() if name in known}
    return Options.of({"flow": flow, **values})


FLAGS = flags_of(Options)  # those of studies are last
for _name, _flags in STUDY_FLAGS.items():
    FLAGS += flags_of(_flags, _name)
require_different_names(FLAGS)
DEFAULTS = {flag.name: flag.default for flag in FLAGS}
# Sizes that change how senders send, but not what readers get.
SENDER_SIZES = {flag.name for flag in FLAGS if flag.size == "sender"}
