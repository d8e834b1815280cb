# SPDX-License-Identifier: Apache-2.0
"""Find messages whose bytes lie inside of the pickle, or which are pickled slowly, and what in them brings this.

Ray keeps only buffers outside of the pickle (protocol 5): contiguous numpy arrays, and Arrow tables. Readers look at
them in the object store. Everything else is copied into the pickle by the sender, and out of it by each reader.

What a change saves is measured: the sender has serialised one message of each kind in the other ways that fit it.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from statistics import median

from raymeter.causes.savings import save_reading, save_sending, total
from raymeter.findings import Finding, Saving
from raymeter.profile.asked_variables import find_asked_variables
from raymeter.profile.events import Alternative, Field, OwnPickling, Sent
from raymeter.profile.groups import Group, groups_in_steps
from raymeter.profile.program import Program
from raymeter.profile.steps import Steps, short_line
from raymeter.units import format_bytes, format_milliseconds, significant

MIN_SHARE = 0.3  # of the bytes that a cause must bring
MAIN_SHARE = 0.5  # of the bytes of a message, above which a field has most of them
VIEW_FACTOR = 1.5  # of the memory that views look at, and their own bytes
MIN_CODE_SHARE = 0.02  # of serialising a message, above which the code of a class is named
MANY_BUFFERS = 500
MANY_CHUNKS = 64
MANY_COLUMNS = 256
MAX_CONVERT_SHARE = 0.2  # of what is saved, above which the time of the conversion is named
ENOUGH = 0.75  # of what the best kind saves
MAX_BYTES_OF_ARRAY = 20  # that an array takes in the pickle of a list of arrays; 16 to 19 were seen
MIN_OBJECT_BYTES = 50_000  # of a message inside of the pickle
SLOW_BYTES_PER_SECOND = 400e6  # of pickling Python objects; arrays are copied at several GB/s
MIN_SAVED_SHARE = 0.15  # of sending and reading a message, by the alternative

ZERO_COPY = "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"
ZERO_COPY_SINCE = (2, 53)
OWN_CHANGE = "Let {class}, which pickles itself ({line}), return numpy arrays there, or send its fields as arrays."
LIBRARY_CHANGE = (
    "Send the fields as arrays: {class} belongs to a library, and pickles itself ({line})."
)
VARIABLE_CHANGE = (
    "Set {setting} before Ray starts, which may help: {class} asks for this variable when it pickles itself ({line}). "
    "`raymeter try` measures it. Or send the fields as arrays, of which the saving was measured."
)
LIBRARY_FOLDERS = ("/site-packages/", "/dist-packages/")
ITS_ARRAYS = "its arrays"  # the name of the alternative, in inside/conversions.py
BFLOAT16 = "bfloat16"  # which numpy does not have
ALL_BFLOAT16 = "There, view(torch.bfloat16) gives these bytes their type again."
SOME_BFLOAT16 = "Those in bfloat16 need view(torch.int16) before numpy(), and view(torch.bfloat16) in the reader."
GRADIENT = "Nothing requires a gradient there."
NUMBERS = "arrays of numbers"
BYTES = "arrays of bytes"
COLUMNS = "columns"
ONE_ARRAY = "one array"
READ_ONLY = (
    "numpy arrays",
    "contiguous arrays",
    "without its own pickling",
    ITS_ARRAYS,
    NUMBERS,
    BYTES,
    COLUMNS,
    ONE_ARRAY,
)
READ_ONLY_PRICE = (
    "The arrays arrive read-only: readers must not write into them, nor into tensors made of them. "
    "Those that write need a copy."
)
LIST_PRICE = (
    "An array is no list: +, * and == work on each number, append and pop are missing, and what is beyond 64 bits "
    "wraps around. Readers that need a list call tolist()."
)
BYTES_PRICE = (
    "An array is no bytes object: + and == work on each byte, and wrap around at 256. Readers that need one call "
    "tobytes(), which copies."
)
OWN_BYTES_CHANGES = {  # by the form of bytes that the program has made of other values
    "pickle": (
        "These bytes are a pickle, which the program has made itself: send the object, of which Ray leaves arrays "
        "outside of the pickle. What pickle.dumps and pickle.loads take is saved on top of this number."
    ),
    "torch.save": (
        "These bytes are those of torch.save: send its tensors as arrays (tensor.numpy(), and torch.from_numpy in the "
        "reader), which readers look at in the store. What torch.save and torch.load take is saved on top of this "
        "number."
    ),
}
NO_ARRAYS_PRICE = "An object without large arrays saves less: Ray pickles it as the program does."
ALTERNATIVE_PRICES = {NUMBERS: LIST_PRICE, COLUMNS: LIST_PRICE, BYTES: BYTES_PRICE}


@dataclass(frozen=True)
class Kind:
    """Why a message is pickled, and the alternative that was measured for it."""

    cause: str
    alternative: str  # a name in inside/conversions.py
    change: str
    fits: Callable[[Group], bool]


def find(program: Program, steps: Steps) -> list[Finding]:
    """Return at most one finding for each group of messages: the kind that fits and saves most."""
    findings = []
    for group in groups_in_steps(program, steps):
        finding = examine(program, steps, group)
        if finding is not None:
            findings.append(finding)
    return findings


def examine(program: Program, steps: Steps, group: Group) -> Finding | None:
    """Return the best finding of a group; None if no kind fits, or if each was measured and saves too little.

    Of the kinds that save enough, that is the first one which saves about as much as any: the kinds are in an order
    from special to general. If none does, the first kind that was not measured is named, without savings: its `seconds`
    are all that its messages take.
    """
    measured = find_measured(group)
    candidates = [kind for kind in KINDS if kind.fits(group)]
    ways = []
    for kind in candidates:
        way = make_finding(program, steps, group, kind, measured)
        if way is not None:
            ways.append(way)
    if ways:
        return choose(ways)
    unmeasured = [kind for kind in candidates if kind.alternative not in measured]
    if not unmeasured:
        return None
    first = unmeasured[0]
    change = change_of(program, group, first)
    taken_seconds = group.seconds() / steps.count  # by its messages: what can be saved is not known
    finding = build_finding(group, first, change, [], taken_seconds)
    finding.settings = settings_of(program, group, first, change)
    return finding


@dataclass(frozen=True)
class Way:
    """A finding, and what is left of its savings per step if each message is converted; negative if nothing is."""

    finding: Finding
    seconds: float


def choose(ways: list[Way]) -> Finding:
    """Return the first of the ways that save about as much as any.

    If each way takes longer to convert than it saves, each is worth what it saves in a program that makes its messages
    that way from the start.
    """
    if not any(way.seconds > 0 for way in ways):
        ways = [Way(way.finding, way.finding.seconds) for way in ways]
    most = max(way.seconds for way in ways)
    return next(way.finding for way in ways if way.seconds >= ENOUGH * most)


def find_measured(group: Group) -> dict[str, Alternative | None]:
    """Return what was measured of the messages of a group; None for an alternative that does not fit them."""
    measured: dict[str, Alternative | None] = {}
    for message in group.described:
        measured.update(message.sent.alternatives)
        measured.update(dict.fromkeys(message.sent.unfit))
    return measured


def make_finding(
    program: Program,
    steps: Steps,
    group: Group,
    kind: Kind,
    measured: dict[str, Alternative | None],
) -> Way | None:
    """Return what the alternative of a kind would save; None if it was not measured, does not fit, or saves little.

    measured: what one message took as it is, and in each other way. From that comes the share of sending and of
    reading that is saved of each recorded message. The conversion is left out: programs can make each message in the
    other way from the start. If it takes long, the price says that these savings are the most.
    """
    now = measured.get("as it is")
    other = measured.get(kind.alternative)
    if now is None or other is None:
        return None
    saved = find_saved(program, group, now, other)
    if saved is None:
        return None
    savings = []
    for message in group.messages:
        savings += save_sending(program, message, saved.sending_share)
        savings += save_reading(message, saved.reading_share)
    change = change_of(program, group, kind)
    if other.share < 1:
        change += f" (Measured with {significant(100 * other.share, 2)} % of the items.)"
    saved_seconds = total(savings) / steps.count
    finding = build_finding(group, kind, change, savings, saved_seconds)
    finding.settings = settings_of(program, group, kind, change)
    # What a setting of the class saves was not measured. Readers at once may save less than what sending takes longer,
    # before them, adds.
    has_own_setting = bool(finding.settings) and kind.fits is pickles_itself
    finding.is_limit = saved.is_sent_slower or has_own_setting
    finding.is_least = is_own_pickle(group, kind)
    use = find_use(group)
    if other.convert > MAX_CONVERT_SHARE * saved.seconds:
        add_conversion(finding, other.convert, saved.seconds, use)
    converted_share = 0.0 if use is Use.KEPT else other.convert / saved.seconds
    return Way(finding, (1 - converted_share) * saved_seconds)


@dataclass(frozen=True)
class Saved:
    """What an alternative saves of each message, in all its readers together."""

    seconds: float
    sending_share: float
    reading_share: float
    is_sent_slower: bool


def find_saved(
    program: Program, group: Group, now: Alternative, other: Alternative
) -> Saved | None:
    """Return what an alternative saves of a message of a group; None if that is less than MIN_SAVED_SHARE of its time.

    What sending takes longer than now is subtracted from what reading saves, and sending saves 0 then. Reading saves 0
    if it was not measured for the alternative.
    """
    sending = typical_sending(program, group)
    other_sending = sending.with_alternative(now, other)
    saved_sending = sending.seconds - other_sending.seconds
    reading = readers_of(group) * typical_reading(group, now)
    other_reading = readers_of(group) * other.deserialise
    saved_reading = max(0.0, reading - other_reading) if other.is_read else 0.0
    seconds = saved_sending + saved_reading
    if seconds <= 0 or seconds < MIN_SAVED_SHARE * (sending.seconds + reading):
        return None
    is_sent_slower = saved_sending < 0
    if is_sent_slower:  # what sending takes longer is taken off what all readers together save
        saved_sending, saved_reading = 0.0, seconds
    sending_share = as_share(saved_sending, sending.seconds)
    reading_share = as_share(saved_reading, reading)
    return Saved(seconds, sending_share, reading_share, is_sent_slower)


def readers_of(group: Group) -> float:
    """Return how many times each message is read, in the mean."""
    messages = sum(message.sent.weight for message in group.messages)
    readings = sum(item.weight for message in group.messages for item in message.received)
    return readings / messages


def add_conversion(finding: Finding, convert: float, saved: float, use: "Use") -> None:
    """Name a slow conversion in the price; the savings are a limit unless one conversion is enough."""
    finding.is_limit = finding.is_limit or use is not Use.KEPT
    finding.price += f" {price_of_conversion(convert, saved, use)}"
    finding.price = finding.price.lstrip()


class Use(Enum):
    """How the messages of a group belong together, which says when a conversion is needed."""

    KEPT = "one object or content is sent again"
    FILLED = "one object is filled again in place, and sent again"
    NEW = "other objects"


def price_of_conversion(convert: float, saved: float, use: Use) -> str:
    """Return a text that says how long converting a message takes, and how to do without it.

    convert, saved: seconds per message that its conversion takes, and that its new form saves.
    """
    taken = (
        f"Converting one message took {format_milliseconds(convert)}, which is not in this number"
    )
    if use is Use.KEPT:
        return f"{taken}, since one object is sent again: keep what is converted."
    if use is Use.FILLED:
        return f"{taken}, since one object is filled again: fill it in the new form."
    if convert < saved:
        return f"{taken}: make it that way from the start."
    return f"{taken}, and takes longer than what it saves: make it that way from the start, or leave it as it is."


def find_use(group: Group) -> Use:
    """Return how the messages of a group belong together: in each process that sends some of them.

    Objects have numbers of their own in each process.
    """
    by_process: dict[str, list[Sent]] = defaultdict(list)
    for message in group.described:
        if message.sent.content or message.sent.token:
            by_process[message.sent.process].append(message.sent)
    uses = {find_use_in_process(messages) for messages in by_process.values() if len(messages) > 1}
    return uses.pop() if len(uses) == 1 else Use.NEW  # which needs no proof


def find_use_in_process(messages: list[Sent]) -> Use:
    """Return how messages of one process belong together.

    An array that is filled again in place is one object with other bytes: what was converted of it would be stale.
    """
    contents = {sent.content for sent in messages}
    tokens = {sent.token for sent in messages}
    is_one_object = len(tokens) == 1 and 0 not in tokens
    if len(contents) > 1 or any(sent.is_same is False for sent in messages):
        return Use.FILLED if is_one_object else Use.NEW
    has_same_bytes = any(sent.is_same for sent in messages)
    return Use.KEPT if has_same_bytes or is_one_object else Use.NEW


def as_share(part: float, whole: float) -> float:
    """Return a part as a share of a time, from 0 to 1."""
    return part / whole if whole > 0 else 0.0


def saved_share(now: float, other: float) -> float:
    """Return the share of a time that is saved, from 0 to 1."""
    return max(0.0, 1 - other / now) if now > 0 else 0.0


@dataclass(frozen=True)
class Sending:
    """What sending a message takes: serialising it, and then the copy into the store."""

    serialise: float
    copy: float

    @property
    def seconds(self) -> float:
        return self.serialise + self.copy

    def with_alternative(self, now: Alternative, other: Alternative) -> "Sending":
        """Return what sending the message in another way takes. The copy goes with the bytes."""
        added = max(0.0, other.serialise - now.serialise)
        kept_share = 1 - saved_share(now.serialise, other.serialise)
        serialise = kept_share * self.serialise + added
        copy = self.copy * other.bytes / max(1, now.bytes)
        return Sending(serialise, copy)


def typical_reading(group: Group, now: Alternative) -> float:
    """Return what reading one message takes: as its sender has measured it, or in the median of its readers.

    The sender reads no message whose classes would run their own code.
    """
    if now.is_read:
        return now.deserialise
    read = [item.seconds for message in group.messages for item in message.received]
    return median(read) if read else 0.0


def typical_sending(program: Program, group: Group) -> Sending:
    """Return what sending a message of a group takes in the median, as it was recorded."""
    serialise = median(message.sent.seconds for message in group.messages)
    seconds = median(total(save_sending(program, message)) for message in group.messages)
    return Sending(serialise, max(0.0, seconds - serialise))


def build_finding(
    group: Group, kind: Kind, change: str, savings: list[Saving], seconds: float
) -> Finding:
    """Return the finding of a kind; `seconds` are those per step that are lost to it.

    If the line that sends the messages is not known, its line is that of the class which pickles itself, or "".
    """
    own = own_pickling(group)
    line = group.line or (own.line if own else "")
    others = [own.line] if own and own.line != line else []
    return Finding(
        cause=kind.cause,
        title=f"{describe_group(group)}: {kind.cause}",
        line=line,
        change=change + say_class_code(group),
        seconds=seconds,
        savings=savings,
        messages=[(message.sent.process, message.sent.number) for message in group.messages],
        price=price_of_kind(group, kind),
        other_lines=others,
    )


def price_of_kind(group: Group, kind: Kind) -> str:
    """Return what readers must do if the messages of a group are sent in the way of a kind; "" if nothing.

    Who sends the object in place of its own pickle of it has arrays that can't be written into, and no array of bytes.
    """
    if is_own_pickle(group, kind):
        return f"{READ_ONLY_PRICE} {NO_ARRAYS_PRICE}"
    return price_of_alternative(kind.alternative)


def is_own_pickle(group: Group, kind: Kind) -> bool:
    """Return whether messages are bytes that the program has made of other values, which takes time of its own."""
    return kind.alternative == BYTES and form_of_bytes(group) in OWN_BYTES_CHANGES


def price_of_alternative(alternative: str) -> str:
    """Return what readers must do in another way if a message is sent so; "" if nothing."""
    if alternative not in READ_ONLY:
        return ""
    words = ALTERNATIVE_PRICES.get(alternative, "")
    return f"{READ_ONLY_PRICE} {words}".rstrip()


def say_class_code(group: Group) -> str:
    """Return that the code of a class travels with each message, and what this takes; "" if it takes little."""
    codes = [message.sent.class_code for message in group.described]
    code = next((code for code in codes if code is not None), None)
    seconds = median(message.sent.seconds for message in group.messages)
    if code is None or code.seconds < MIN_CODE_SHARE * seconds:
        return ""
    return (
        f" The code of the class {code.type} ({format_bytes(code.bytes)}) travels with each message, of which it takes "
        f"{format_milliseconds(code.seconds)}: define the class in a module that workers import."
    )


def describe_group(group: Group) -> str:
    """Return what is sent, with its size and the field that has most of its bytes."""
    field = main_field(group)
    text = f"{format_bytes(group.bytes)} ({group.type})"
    if field is not None and field.path:
        text += f", most of it in {name_path(field.path)}"
        if field.form:
            text += f" ({field.type})"
    if field is not None and field.one_value > MAIN_SHARE:
        text += f", {significant(100 * field.one_value, 2)} % of it one value (padding?)"
    return text


def name_path(path: str) -> str:
    """Return the path of a field in words: "[].mask" is "mask of its items".

    Items of lists ("[]") have no name, nor have those of dicts whose keys are data of the user ("*").
    """
    named = path.strip("[]*.")
    if not named:
        return "its items"
    text = named
    if path.endswith(("[]", "*")):
        text = f"the items of {text}"
    if path.startswith(("[]", "*")):
        text = f"{text} of its items"
    return text


def main_field(group: Group) -> Field | None:
    """Return the field that has most of the bytes; None if there is none, or if its share is not known.

    If only a part of the items was looked at, it is the share of what is known.
    """
    if not group.fields:
        return None
    largest = max(group.fields, key=field_bytes)
    size = group.bytes
    if any(field.is_part for field in group.fields):
        size = sum(field_bytes(field) for field in group.fields)
    return largest if field_bytes(largest) > MAIN_SHARE * size else None


def field_bytes(field: Field) -> int:
    """Return the bytes of a field, with the memory that a view brings."""
    return max(field.bytes, field.storage_bytes)


def own_pickling(group: Group) -> OwnPickling | None:
    return next((m.sent.own_pickling for m in group.described if m.sent.own_pickling), None)


def share_of(group: Group, is_meant: Callable[[Field], bool]) -> float:
    """Return the share of the described bytes in fields that are meant."""
    known = sum(field_bytes(field) for field in group.fields)
    meant = sum(field_bytes(field) for field in group.fields if is_meant(field))
    return meant / known if known else 0.0


def is_torch_pickle(group: Group) -> bool:
    return any(message.sent.is_torch_pickle for message in group.described)


def pickles_itself(group: Group) -> bool:
    """Return whether a class has its own way of pickling, and is no more than a wrapper of tensors."""
    own = own_pickling(group)
    return own is not None and group.inband_share > MIN_SHARE and not is_torch_pickle(group)


def has_views(group: Group) -> bool:
    held = sum(field.bytes for field in group.fields)
    return bool(held) and group.bytes > VIEW_FACTOR * held and share_of(group, is_view) > MIN_SHARE


def has_views_of_tensors(group: Group) -> bool:
    return has_views(group) and share_of(group, is_tensor) > MIN_SHARE


def has_views_of_tables(group: Group) -> bool:
    return has_views(group) and share_of(group, lambda field: field.dtype == "arrow") > MIN_SHARE


def is_view(field: Field) -> bool:
    return field.storage_bytes > VIEW_FACTOR * field.bytes


def is_tensor(field: Field) -> bool:
    return field.type.startswith("torch.") and not field.form


def has_tensors(group: Group) -> bool:
    """Return whether tensors are pickled, and not by a class that makes something else of them."""
    is_pickled = share_of(group, is_tensor) > MIN_SHARE and group.inband_share > MIN_SHARE
    return is_pickled and (own_pickling(group) is None or is_torch_pickle(group))


def is_strided(field: Field) -> bool:
    is_array = field.type.startswith("numpy.") and field.dtype != "object"
    return is_array and not field.form and not field.is_contiguous


def has_strided_arrays(group: Group) -> bool:
    return share_of(group, is_strided) > MIN_SHARE and group.inband_share > MIN_SHARE


def has_form(*forms: str) -> Callable[[Group], bool]:
    """Return whether fields of these forms are in the pickle of a group."""

    def fits(group: Group) -> bool:
        share = share_of(group, lambda field: field.form in forms)
        return share > MIN_SHARE and group.inband_share > MIN_SHARE

    return fits


def has_numbers(group: Group) -> bool:
    return share_of(group, lambda field: field.dtype in ("int", "float")) > MIN_SHARE


def has_bytes(group: Group) -> bool:
    share = share_of(group, lambda field: field.dtype == "bytes")
    return share > MIN_SHARE and own_pickling(group) is None


def has_frames(group: Group) -> bool:
    """Return whether frames are pickled by value, or have a column with an array in each row."""
    share = share_of(group, lambda field: field.dtype == "frame")
    is_slow = group.inband_share > MIN_SHARE or has_many_buffers(group)
    return share > MIN_SHARE and is_slow


def has_many_chunks(group: Group) -> bool:
    return any(field.chunks >= max(MANY_CHUNKS, 2 * field.columns) for field in group.fields)


def has_many_columns(group: Group) -> bool:
    return any(
        field.columns >= MANY_COLUMNS
        and field.dtype == "arrow"
        and field.chunks < 2 * field.columns
        for field in group.fields
    )


def has_many_arrays(group: Group) -> bool:
    is_table = has_many_chunks(group) or has_many_columns(group)
    return not is_table and has_many_buffers(group)


def has_many_buffers(group: Group) -> bool:
    return max(message.sent.buffers for message in group.messages) >= MANY_BUFFERS


def has_objects(group: Group) -> bool:
    """Return whether Python objects make sending slow: less than SLOW_BYTES_PER_SECOND of the pickle, without buffers.

    False if the pickles are small on average, or if something else explains them: arrays, tensors, or a class that
    pickles itself.
    """
    seconds = sum(message.sent.seconds for message in group.messages)
    size = sum(message.sent.inband_bytes for message in group.messages)
    is_slow = size < SLOW_BYTES_PER_SECOND * seconds
    buffers = sum(message.sent.buffers for message in group.messages)
    is_other = (
        size < MAX_BYTES_OF_ARRAY * buffers
        or has_tensors(group)
        or pickles_itself(group)
        or has_strided_arrays(group)
        or share_of(group, lambda field: bool(field.form)) > MIN_SHARE
    )
    return is_slow and size >= MIN_OBJECT_BYTES * len(group.messages) and not is_other


def change_of(program: Program, group: Group, kind: Kind) -> str:
    """Return the text of what to do: the change of a kind, with the names and calls that fit a group.

    For a class that pickles itself, this depends on where its code is. Tensors without a gradient may also be sent with
    a setting, from Ray 2.53 on.
    """
    own = own_pickling(group)
    if kind.alternative == BYTES:
        return OWN_BYTES_CHANGES.get(form_of_bytes(group), kind.change)
    if own is not None and OWN_CHANGE in kind.change:
        change = kind.change.replace(OWN_CHANGE, change_of_class(program, own))
        return change.replace("{class}", own.type).replace("{line}", name_of_line(own.line))
    if kind.alternative == ITS_ARRAYS:
        change = kind.change.replace("{type}", type_of_form(group))
        return say_tensors(group, change)
    change = say_tensors(group, kind.change)
    is_plain = kind.alternative == "numpy arrays" and not any(
        field.requires_grad for field in group.fields
    )
    if is_plain and version_of(program) >= ZERO_COPY_SINCE:
        return f"{change} Or, if readers only read, set {ZERO_COPY}=1 before Ray starts."
    return change


def change_of_class(program: Program, own: OwnPickling) -> str:
    """Return what to do about a class with its own pickling: a setting if its code asks for one."""
    variables = settings_of_class(program, own)
    if variables:
        texts = [f"{name}={value}" for name, value in variables.items()]
        return VARIABLE_CHANGE.replace("{setting}", " or ".join(texts))
    return LIBRARY_CHANGE if is_library(own.line) else OWN_CHANGE


def settings_of(program: Program, group: Group, kind: Kind, change: str) -> dict[str, str]:
    """Return the variables of the environment that a change names; {} if it needs other code."""
    if ZERO_COPY in change:
        return {ZERO_COPY: "1"}
    own = own_pickling(group)
    if own is None or OWN_CHANGE not in kind.change:
        return {}
    return settings_of_class(program, own)


def settings_of_class(program: Program, own: OwnPickling) -> dict[str, str]:
    """Return the variable of the environment that changes how a class pickles itself; {} if its code asks for none."""
    variables = find_asked_variables(own.line, program.recording.start)
    first = list(variables.items())[:1]  # they may exclude each other
    return dict(first)


def name_of_line(line: str) -> str:
    """Return "package/file:line" of a line in an installed package, and "file:line" of others."""
    if not is_library(line):
        return short_line(line)
    for folder in LIBRARY_FOLDERS:
        line = line.rpartition(folder)[2]
    return line


def say_tensors(group: Group, change: str) -> str:
    """Return a change with how the tensors of a group become arrays, and become tensors like these again.

    `.numpy()` raises RuntimeError for a tensor that requires a gradient, and TypeError for bfloat16. The alternative
    that was measured does the same as is said here.
    """
    tensors = [field for field in group.fields if field.type.startswith("torch.")]
    bfloat16 = [field for field in tensors if field.dtype == BFLOAT16]
    numpy = ".detach()" if any(field.requires_grad for field in tensors) else ""
    if not all(field.is_contiguous or field.form for field in tensors):
        numpy += ".contiguous()"
    back = ""
    if bfloat16 and len(bfloat16) == len(tensors):
        numpy += ".view(torch.int16)"
        back = f" {ALL_BFLOAT16}"
    elif bfloat16:
        back = f" {SOME_BFLOAT16}"
    if ".detach()" in numpy:
        back += f" {GRADIENT}"
    return change.replace("{numpy}", f"{numpy}.numpy()").replace("{back}", back)


def is_library(line: str) -> bool:
    """Return whether a line is in a package that was installed, whose code its users do not change."""
    return any(folder in line for folder in LIBRARY_FOLDERS)


def form_of_bytes(group: Group) -> str:
    """Return what most of the bytes of a group were made by: "pickle" or "torch.save"; "" if it is not known."""
    for form in OWN_BYTES_CHANGES:
        if share_of(group, has_same_form(form)) > MAIN_SHARE:
            return form
    return ""


def has_same_form(form: str) -> Callable[[Field], bool]:
    """Return whether a field is of this form, as a function."""
    return lambda field: field.form == form


def type_of_form(group: Group) -> str:
    """Return the type of the largest field whose arrays are copied into the pickle."""
    fields = [field for field in group.fields if field.form]
    return max(fields, key=field_bytes).type if fields else group.type


def version_of(program: Program) -> tuple[int, ...]:
    """Return the version of Ray, such as (2, 60)."""
    numbers = program.recording.processes[0].ray.split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


KINDS = (
    Kind(
        "the class pickles itself",
        "without its own pickling",
        OWN_CHANGE + " All bytes are inside of the pickle now, and no setting of Ray helps.",
        pickles_itself,
    ),
    Kind(
        "subclasses of arrays in the pickle",
        ITS_ARRAYS,
        "{type} is a subclass of numpy.ndarray, whose bytes are copied into the pickle: send numpy.asarray(array), "
        "which copies nothing, and call array.view with the class in the reader (which is in this number).",
        has_form("subclass"),
    ),
    Kind(
        "subclasses of arrays in the pickle",
        ITS_ARRAYS,
        "{type} is a subclass of numpy.ndarray, whose bytes are copied into the pickle: send numpy.asarray(array) with "
        "its attributes beside it, and call array.view with the class in the reader (which is in this number).",
        has_form("subclass with state"),
    ),
    Kind(
        "masked arrays in the pickle",
        ITS_ARRAYS,
        "A masked array is copied into the pickle: send array.data and array.mask as two arrays, with array.fill_value "
        "and array.hardmask. The reader makes numpy.ma.MaskedArray(data, mask, fill_value=fill_value, "
        "hard_mask=hardmask, copy=False) of them, which is in this number.",
        has_form("masked"),
    ),
    Kind(
        "a sparse matrix of Python lists",
        ITS_ARRAYS,
        "{type} keeps its rows or items as Python objects, which are pickled one by one: send matrix.tocsr(), whose "
        "three arrays readers look at in the store. The number is without making it {type} again in the reader.",
        has_form("lil", "dok"),
    ),
    Kind(
        "sparse tensors in the pickle",
        ITS_ARRAYS,
        "A sparse tensor is copied into the pickle: send its values and indices with {numpy} (of a COO tensor those "
        "of tensor.coalesce()), and make the tensor of them in the reader (torch.sparse_coo_tensor with "
        "is_coalesced=True, or torch.sparse_compressed_tensor), which is in this number.{back}",
        has_form("sparse"),
    ),
    Kind(
        "nested tensors in the pickle",
        ITS_ARRAYS,
        "A nested tensor is copied into the pickle, with all memory behind it: send the values and offsets of "
        "tensor.contiguous(), which has no gaps, with {numpy}. Call torch.nested.nested_tensor_from_jagged in the "
        "reader, which is in this number.{back}",
        has_form("nested"),
    ),
    Kind(
        "nested tensors in the pickle",
        ITS_ARRAYS,
        "A nested tensor is copied into the pickle: send one tensor of the values of all pieces (torch.cat of "
        "piece.reshape(-1)) with {numpy}, and the shape of each. Make it again of them in the reader "
        "(torch.nested.as_nested_tensor), which copies the values, and is in this number.{back}",
        has_form("nested strided"),
    ),
    Kind(
        "images in the pickle",
        ITS_ARRAYS,
        "{type} is pickled with its pixels: send numpy.asarray(image), or one array of all images (numpy.stack), and "
        "let readers work with arrays. The number is without PIL.Image.fromarray in the reader.",
        has_form("image"),
    ),
    Kind(
        "views bring their whole storage",
        "clones of views",
        "A view of a tensor is pickled with all of its storage: send view.clone(), or the whole tensor once.",
        has_views_of_tensors,
    ),
    Kind(
        "views bring their whole storage",
        "own rows",
        "A slice of a record batch or an Arrow array brings all rows behind it. Ray sends only the rows of a table: "
        "pyarrow.Table.from_batches([batch]), or pyarrow.concat_arrays([array]), which copies them.",
        has_views_of_tables,
    ),
    Kind(
        "tensors in the pickle",
        "numpy arrays",
        "Torch tensors are copied into the pickle, and out of it by each reader. Send tensor{numpy}, and use "
        "torch.from_numpy in the reader, which looks at the object store.{back}",
        has_tensors,
    ),
    Kind(
        "arrays that are not contiguous",
        "contiguous arrays",
        "The array is strided or flipped, so each message copies it into the pickle: call "
        "numpy.ascontiguousarray once.",
        has_strided_arrays,
    ),
    Kind(
        "lists of numbers",
        NUMBERS,
        "Each number is a Python object: send one numpy array (numpy.asarray) in place of the list.",
        has_numbers,
    ),
    Kind(
        "bytes in the pickle",
        BYTES,
        "Bytes are copied by each reader: send numpy.frombuffer(data, numpy.uint8), which readers look at "
        "in the store.",
        has_bytes,
    ),
    Kind(
        "a data frame in the pickle",
        "Arrow tables",
        "The columns of this frame are pickled, and arrays in them one by one: send an Arrow table "
        "(pyarrow.Table.from_pandas(frame), or frame.to_arrow()).",
        has_frames,
    ),
    Kind(
        "many small arrays",
        "one chunk",
        "The time goes with the number of chunks, not with their bytes: call table.combine_chunks() once, before the "
        "table is sent.",
        has_many_chunks,
    ),
    Kind(
        "many small arrays",
        "one column",
        "The time goes with the number of columns, not with their bytes: put columns of one type into one of "
        "fixed-size lists (pyarrow.FixedSizeListArray), or send one array and the names of its columns.",
        has_many_columns,
    ),
    Kind(
        "many small arrays",
        ONE_ARRAY,
        "The time goes with the number of arrays, not with their bytes: send one array, and the offsets of the parts.",
        has_many_arrays,
    ),
    Kind(
        "Python objects in the pickle",
        COLUMNS,
        "Python objects are pickled one by one, and made again by each reader. Send one array for each field (of "
        "strings: an Arrow array; of lists or arrays of numbers: one array of all numbers, and one of the lengths), "
        "and let readers work with the arrays.",
        has_objects,
    ),
)
