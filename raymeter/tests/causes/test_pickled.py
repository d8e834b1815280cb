# SPDX-License-Identifier: Apache-2.0
"""A pickled message has the cause of its type, advice that fits the type, and no number without a measurement."""

import os
import re
from dataclasses import replace

import pytest
from made_programs import make_finding, make_loop, make_profile, make_steps
from raymeter.causes import pickled
from raymeter.findings import Finding
from raymeter.inside import alternatives, conversions
from raymeter.profile.events import Alternative, ClassCode, Field, OwnPickling
from raymeter.profile.program import Program
from raymeter.report import terminal, unmeasured

MIB = 2**20
NOW = Alternative(serialise=0.02, deserialise=0.01, bytes=MIB, inband_bytes=MIB)
FAST = Alternative(serialise=0.001, deserialise=0.001, bytes=MIB)
LARGER = Alternative(serialise=0.0015, deserialise=0.0012, bytes=MIB)
TENSOR = Field(path="x", type="torch.Tensor", dtype="float32", bytes=MIB, storage_bytes=MIB)
VIEW = replace(TENSOR, bytes=MIB // 8)
SLICE = Field(
    type="pyarrow.RecordBatch", dtype="arrow", bytes=MIB // 8, storage_bytes=MIB, columns=1
)
OWN = OwnPickling("data.Batch", "batch", "/made/data.py:7", "__getstate__")


def make_program(*fields: Field, number: int = 2, **values) -> Program:
    """Return a loop in which the message with this number was described, all of them with these values."""
    program = make_loop()
    for message in program.messages:
        message.sent.inband_bytes = MIB
        message.sent.fields = []
        for name in ("own_pickling", "is_torch_pickle", "buffers", "inband_bytes", "seconds"):
            if name in values:
                message.sent.__dict__[name] = values[name]
    sent = program.messages[number].sent
    sent.fields = list(fields)
    sent.alternatives = values.get("alternatives", {})
    sent.unfit = values.get("unfit", [])
    program.recording.processes[0].ray = "2.60.0"
    return program


def find(program: Program) -> Finding | None:
    findings = pickled.find(program, make_steps())
    assert len(findings) < 2
    return findings[0] if findings else None


def test_a_message_that_was_measured_before_the_first_step_counts():
    program = make_program(TENSOR, number=0, alternatives={"as it is": NOW, "numpy arrays": FAST})
    steps = make_steps()
    steps.times = steps.times[1:]
    steps.__post_init__()
    (finding,) = pickled.find(program, steps)
    assert finding.cause == "tensors in the pickle"
    assert len(finding.savings) == 2 * 5


def test_a_kind_that_saves_too_little_makes_room_for_one_that_was_not_measured():
    little = replace(NOW, serialise=0.019)
    finding = find(make_program(VIEW, alternatives={"as it is": NOW, "clones of views": little}))
    assert (finding.cause, finding.savings) == ("tensors in the pickle", [])
    assert finding.seconds > 0  # which its messages take


def test_a_view_is_named_as_such_although_arrays_save_a_little_more():
    measured = {"as it is": NOW, "numpy arrays": FAST, "clones of views": LARGER}
    finding = find(make_program(VIEW, alternatives=measured))
    assert finding.cause == "views bring their whole storage"
    assert "view.clone()" in finding.change


def test_a_slice_of_a_record_batch_is_named_with_its_own_change():
    finding = find(
        make_program(SLICE, alternatives={"as it is": NOW, "own rows": FAST}, inband_bytes=500)
    )
    assert finding.cause == "views bring their whole storage"
    assert "pyarrow.Table.from_batches" in finding.change


def test_the_copy_into_the_store_takes_as_long_as_it_was_recorded():
    """Of a call of 40 ms, 0.2 ms are serialising, and the rest is a copy that goes with the bytes."""
    now = replace(NOW, serialise=0.0002, deserialise=0.0001)
    own_rows = replace(now, serialise=0.001, bytes=MIB // 8)
    measured = {"as it is": now, "own rows": own_rows}
    finding = find(make_program(SLICE, alternatives=measured, inband_bytes=500, seconds=0.0002))
    assert finding.seconds == pytest.approx(7 / 8 * 0.04, abs=0.002)


def test_ways_that_change_no_bytes_save_nothing_of_a_slow_copy():
    now = replace(NOW, serialise=0.002, deserialise=0.0)
    faster = replace(now, serialise=0.0)
    program = make_program(alternatives={"as it is": now, "columns": faster}, seconds=0.004)
    assert find(program) is None  # 4 of 40 ms


@pytest.mark.parametrize(("field", "name", "word"), [
    (replace(SLICE, bytes=MIB, chunks=2_000), "one chunk", "combine_chunks"),
    (replace(SLICE, bytes=MIB, columns=2_000, chunks=2_000), "one column", "FixedSizeListArray"),
])  # fmt: skip
def test_many_chunks_and_many_columns_have_their_own_change(field, name, word):
    finding = find(make_program(
        field, alternatives={"as it is": NOW, name: FAST, "one array": FAST}, buffers=2_000, inband_bytes=10_000,
    ))  # fmt: skip
    assert finding.cause == "many small arrays"
    assert word in finding.change


@pytest.mark.parametrize(("inband_bytes", "cause"), [
    (90_000, "many small arrays"), (110_000, "Python objects in the pickle"),
])  # fmt: skip
def test_a_list_of_nothing_but_arrays_has_no_objects(inband_bytes, cause):
    """Columns may save more, because converting to one array took longer on a busy machine."""
    slow = replace(FAST, convert=0.1)
    measured = {"as it is": NOW, "one array": slow, "columns": FAST}
    finding = find(
        make_program(alternatives=measured, buffers=5_000, inband_bytes=inband_bytes, seconds=0.3)
    )
    assert finding.cause == cause


def test_tensors_in_a_class_that_packs_them_get_no_setting_that_it_ignores():
    measured = {"as it is": NOW, "numpy arrays": FAST, "without its own pickling": FAST}
    finding = find(make_program(TENSOR, alternatives=measured, own_pickling=OWN))
    assert finding.cause == "the class pickles itself"
    assert finding.change.startswith("Let data.Batch, which pickles itself (data.py:7), ")
    assert not finding.settings
    assert finding.other_lines == ["/made/data.py:7"]


def test_a_class_that_hands_its_tensors_to_torch_is_not_blamed():
    measured = {"as it is": NOW, "numpy arrays": FAST, "without its own pickling": FAST}
    program = make_program(TENSOR, alternatives=measured, own_pickling=OWN, is_torch_pickle=True)
    finding = find(program)
    assert finding.cause == "tensors in the pickle"
    assert finding.settings


def test_tensors_that_require_a_gradient_get_no_setting_that_drops_it():
    measured = {"as it is": NOW, "numpy arrays": FAST}
    finding = find(make_program(replace(TENSOR, requires_grad=True), alternatives=measured))
    assert finding.cause == "tensors in the pickle"
    assert not finding.settings


def test_slow_objects_are_named_with_what_columns_were_measured_to_save():
    measured = {"as it is": NOW, "columns": FAST}
    finding = find(make_program(alternatives=measured))
    assert finding.cause == "Python objects in the pickle"
    assert finding.seconds > 0
    assert find(make_program(alternatives=measured, seconds=0.0001)) is None  # 10 GB/s: no objects


def test_a_way_that_was_never_measured_is_named_without_a_number():
    finding = find(make_program(TENSOR))
    assert finding.cause == "tensors in the pickle"
    assert not finding.savings
    assert "tensors made of them" in finding.price
    profile = make_profile(make_program(TENSOR), make_steps())
    profile.findings = [finding]
    text = " ".join(terminal.render(profile).split())
    assert "The largest cause: tensors in the pickle, line" in text
    assert "What this saves was not measured" in text
    assert "saves " not in text.replace("this saves", "")


@pytest.mark.parametrize(("values", "reason"), [
    ({}, "What this saves was not measured."),
    ({"references": 1}, "not measured for messages with references inside of them."),
    ({"bytes": 513 * MIB}, "not measured for messages above 512 MiB."),
    ({"bytes": 512 * MIB}, "What this saves was not measured."),
])  # fmt: skip
def test_the_reason_why_nothing_was_measured_is_the_true_one(values, reason):
    program = make_program(TENSOR)
    for message in program.messages:
        message.sent = replace(message.sent, **values)
    program.recording.sent = [message.sent for message in program.messages]
    profile = make_profile(program, make_steps())
    profile.findings = pickled.find(program, make_steps())
    text = " ".join(terminal.render(profile, 120).split())
    assert reason in text


def test_the_largest_message_that_is_measured_is_that_of_the_recorder():
    assert unmeasured.MAX_BYTES == alternatives.MAX_BYTES


def test_without_a_message_it_is_not_said_that_time_was_missing():
    profile = make_profile(make_program(TENSOR), make_steps())
    profile.findings = [make_finding(seconds=0.02)]
    text = " ".join(terminal.render(profile, 120).split())
    assert "What this saves is not known." in text


@pytest.mark.parametrize(("size", "is_part", "is_named"), [
    (MIB, False, True), (384, False, False), (384, True, True),
])  # fmt: skip
def test_a_field_is_named_only_if_it_has_most_of_the_bytes(size, is_part, is_named):
    """If only a part of the items was looked at, the field has most of what is known."""
    field = Field(path="[]._mode", type="str", dtype="str", bytes=size, is_part=is_part)
    finding = find(make_program(field, alternatives={"as it is": NOW, "columns": FAST}))
    assert ("most of it in _mode of its items" in finding.title) == is_named


@pytest.mark.parametrize(("kind", "form", "cause", "words"), [
    ("made.Frames", "subclass", "subclasses of arrays in the pickle", "made.Frames is a subclass"),
    ("made.Units", "subclass with state", "subclasses of arrays in the pickle", "its attributes beside"),
    ("numpy.MaskedArray", "masked", "masked arrays in the pickle", "array.fill_value and array.hardmask"),
    ("scipy.lil_matrix", "lil", "a sparse matrix of Python lists", "matrix.tocsr()"),
    ("scipy.dok_matrix", "dok", "a sparse matrix of Python lists", "scipy.dok_matrix keeps"),
    ("torch.Tensor", "sparse", "sparse tensors in the pickle", "is_coalesced=True"),
    ("torch.Tensor", "nested", "nested tensors in the pickle", "values and offsets"),
    ("torch.Tensor", "nested strided", "nested tensors in the pickle", "the shape of each"),
    ("PIL.Image", "image", "images in the pickle", "numpy.asarray(image)"),
])  # fmt: skip
def test_a_type_whose_arrays_are_pickled_has_its_own_cause_and_change(kind, form, cause, words):
    field = replace(TENSOR, type=kind, form=form, is_contiguous=False)
    measured = {"as it is": NOW, "its arrays": FAST, "numpy arrays": FAST, "columns": LARGER}
    finding = find(make_program(field, alternatives=measured))
    assert finding.cause == cause
    assert words in finding.change
    assert f"most of it in x ({kind})" in finding.title
    assert finding.seconds > 0
    assert "arrive read-only" in finding.price  # they were writable copies before
    assert not finding.settings  # which this type ignores
    assert "RAY_ENABLE" not in finding.change


def test_offsets_are_named_only_for_tensors_that_have_them():
    field = replace(TENSOR, form="nested strided")
    finding = find(make_program(field, alternatives={"as it is": NOW, "its arrays": FAST}))
    assert "offsets" not in finding.change and "jagged" not in finding.change


def test_a_type_whose_arrays_save_nothing_gets_no_advice_for_others():
    field = replace(TENSOR, form="sparse")
    assert find(make_program(field, alternatives={"as it is": NOW, "its arrays": NOW})) is None


def test_a_class_of_a_library_is_not_to_be_changed():
    own = replace(OWN, line="/made/lib/python3.11/site-packages/data/batch.py:7")
    finding = find(make_program(own_pickling=own))
    assert finding.change.startswith("Send the fields as arrays: data.Batch belongs to a library")
    assert "pickles itself (data/batch.py:7)" in finding.change
    assert not finding.settings


CLASS_WITH_TWO_WAYS = """import os


class Batch:
    def __getstate__(self):
        way = os.getenv("DEBUG")
        if os.environ.get("BATCH_WAY", "bytes") == "numpy":
            return self.arrays
        if os.environ["OTHER"] == "1":
            return way
        return b""
"""


def test_a_variable_for_which_the_class_asks_is_the_advised_setting(tmp_path):
    file = tmp_path / "data.py"
    file.write_text(CLASS_WITH_TWO_WAYS)
    os.utime(file, (0, 0))  # before the program
    own = replace(OWN, line=f"{file}:5")
    measured = {"as it is": NOW, "without its own pickling": FAST}
    for alternatives_of_message in (measured, {}):
        finding = find(make_program(TENSOR, alternatives=alternatives_of_message, own_pickling=own))
        assert finding.settings == {"BATCH_WAY": "numpy"}
        start = "Set BATCH_WAY=numpy before Ray starts, which may help: data.Batch asks for this variable"
        assert finding.change.startswith(start)


def test_the_saving_of_the_fields_as_arrays_is_the_most_that_a_setting_may_save(tmp_path):
    file = tmp_path / "data.py"
    file.write_text(CLASS_WITH_TWO_WAYS)
    os.utime(file, (0, 0))
    measured = {"as it is": NOW, "without its own pickling": FAST}
    own = replace(OWN, line=f"{file}:5")
    assert find(make_program(TENSOR, alternatives=measured, own_pickling=own)).is_limit
    assert not find(make_program(TENSOR, alternatives=measured, own_pickling=OWN)).is_limit
    tensors = find(make_program(TENSOR, alternatives={"as it is": NOW, "numpy arrays": FAST}))
    assert not tensors.is_limit


def test_a_class_in_a_file_that_was_changed_later_asks_for_nothing_known(tmp_path):
    file = tmp_path / "data.py"
    file.write_text(CLASS_WITH_TWO_WAYS)
    own = replace(OWN, line=f"{file}:5")
    assert not find(make_program(TENSOR, own_pickling=own)).settings


def test_a_field_that_is_mostly_one_value_is_said_to_be_so():
    measured = {"as it is": NOW, "numpy arrays": FAST}
    padded = find(make_program(replace(TENSOR, one_value=0.83), alternatives=measured))
    assert "most of it in x, 83 % of it one value (padding?)" in padded.title
    full = find(make_program(replace(TENSOR, one_value=0.1), alternatives=measured))
    assert "one value" not in full.title


@pytest.mark.parametrize(("seconds", "is_said"), [(0.001, True), (0.00001, False)])
def test_code_that_travels_with_each_message_is_said_if_it_takes_time(seconds, is_said):
    program = make_program(alternatives={"as it is": NOW, "columns": FAST})
    program.messages[2].sent.class_code = ClassCode("Sample", 4_096, seconds)
    finding = find(program)
    words = "The code of the class Sample (4 KiB) travels with each message, of which it takes 1 ms"
    assert (words in finding.change) == is_said


def test_what_does_not_fit_or_saves_nothing_is_not_named():
    assert find(make_program(unfit=["columns"], alternatives={"as it is": NOW})) is None
    assert find(make_program(TENSOR, alternatives={"as it is": NOW, "numpy arrays": NOW})) is None


def test_a_slow_conversion_is_named_as_the_price():
    slow = replace(FAST, convert=0.5)
    program = make_program(alternatives={"as it is": NOW, "columns": slow})
    assert find(program).is_limit  # each message is converted
    for message in program.messages:
        message.sent.token = 7
    finding = find(program)
    assert not finding.is_limit
    assert "Converting one message took 500 ms" in finding.price
    assert "is not in this number" in finding.price
    fast = find(make_program(alternatives={"as it is": NOW, "columns": FAST}))
    assert "Converting" not in fast.price


@pytest.mark.parametrize("is_verified", [False, True])
def test_one_array_that_is_filled_again_can_be_filled_in_the_new_form(is_verified):
    measured = {"as it is": NOW, "columns": replace(FAST, convert=10.0)}
    program = make_program(alternatives=measured)
    finding = find(program)  # of other objects
    assert finding.is_limit
    assert "takes longer than what it saves: make it that way from the start" in finding.price
    for number, message in enumerate(program.messages):
        message.sent.token = 7
        message.sent.content = 1 if is_verified else number + 1
        message.sent.is_same = False if is_verified else None
    assert "fill it in the new form" in find(program).price
    for message in program.messages:
        message.sent.content = 1
        message.sent.is_same = True
    assert "keep what is converted" in find(program).price


def test_what_converting_each_message_takes_is_in_the_price():
    fast = {"as it is": NOW, "columns": FAST}
    slow = {"as it is": NOW, "columns": replace(FAST, convert=0.01)}
    without = find(make_program(alternatives=fast))
    finding = find(make_program(alternatives=slow))
    assert not without.is_limit
    assert without.seconds == pytest.approx(finding.seconds)
    assert finding.is_limit  # a program that converts each message saves less
    assert "not in this number: make it that way from the start" in finding.price


def test_a_way_that_pays_with_its_conversion_is_better_than_one_that_does_not():
    frame = Field(path="x", type="pandas.DataFrame", dtype="frame", bytes=MIB)
    arrow = replace(FAST, serialise=0.012, deserialise=0.005, convert=0.001)
    columns = replace(FAST, convert=0.4)
    measured = {"as it is": NOW, "Arrow tables": arrow, "columns": columns}
    finding = find(make_program(frame, seconds=0.02, alternatives=measured))
    assert finding.cause == "a data frame in the pickle"
    del measured["Arrow tables"]
    unfit = ["Arrow tables"]
    assert find(make_program(frame, seconds=0.02, alternatives=measured, unfit=unfit)).is_limit


def test_a_frame_with_an_array_in_each_row_is_better_sent_as_a_table():
    frame = Field(path="x", type="pandas.DataFrame", dtype="frame", bytes=MIB)
    arrow = replace(FAST, serialise=0.001, deserialise=0.001)
    measured = {"as it is": NOW, "Arrow tables": arrow}
    values = {"seconds": 0.02, "alternatives": measured, "inband_bytes": MIB // 64}
    finding = find(make_program(frame, buffers=6_000, **values))
    assert finding.cause == "a data frame in the pickle"
    assert find(make_program(frame, buffers=6, **values)) is None


@pytest.mark.parametrize("convert", [0.005, 0.007])  # below and above MAX_CONVERT_SHARE of 28 ms
def test_a_way_that_still_pays_is_better_than_one_that_saves_little(convert):
    frame = Field(path="x", type="pandas.DataFrame", dtype="frame", bytes=MIB)
    little = replace(NOW, serialise=0.012, deserialise=0.007)
    columns = replace(FAST, convert=convert)
    measured = {"as it is": NOW, "Arrow tables": little, "columns": columns}
    finding = find(make_program(frame, seconds=0.02, alternatives=measured))
    assert finding.cause == "Python objects in the pickle"


def count_readers(program: Program, readers: int) -> None:
    for message in program.messages:
        message.received = (message.received * readers)[:readers]


def test_all_readers_of_a_message_are_weighed_against_its_sender():
    sends_slowly = Alternative(serialise=0.029, deserialise=0.001, bytes=MIB)
    measured = {"as it is": NOW, "columns": sends_slowly}
    finding = {}
    for readers in (0, 1, 8):
        program = make_program(alternatives=measured, seconds=0.02)
        count_readers(program, readers)
        finding[readers] = find(program)
    assert finding[0] is None or not finding[0].savings
    assert finding[1] is None or not finding[1].savings
    assert finding[8].savings
    assert finding[8].is_limit  # readers at once save less than sending, before them, takes longer


def test_what_sending_takes_longer_is_taken_off():
    reads_fast = Alternative(serialise=0.001, deserialise=0.001, bytes=MIB)
    sends_slowly = replace(reads_fast, serialise=0.025)
    fast = find(make_program(alternatives={"as it is": NOW, "columns": reads_fast}))
    slow = find(make_program(alternatives={"as it is": NOW, "columns": sends_slowly}))
    assert slow is None or slow.seconds < 0.3 * fast.seconds
    far_slower = replace(reads_fast, serialise=0.08)
    assert find(make_program(alternatives={"as it is": NOW, "columns": far_slower})) is None


def test_what_sending_takes_longer_is_no_saving_of_sending():
    sends_slowly = Alternative(serialise=0.023, deserialise=0.001, bytes=MIB)
    program = make_program(alternatives={"as it is": NOW, "columns": sends_slowly}, seconds=0.02)
    count_readers(program, 8)
    (group,) = pickled.groups_in_steps(program, make_steps())
    saved = pickled.find_saved(program, group, NOW, sends_slowly)
    assert saved.sending_share == 0.0
    assert 0.0 < saved.reading_share < 0.9  # which all readers save


def test_objects_of_other_processes_are_not_one_that_is_filled_again():
    """Each process numbers its own objects."""
    measured = {"as it is": NOW, "columns": replace(FAST, convert=10.0)}
    program = make_program(alternatives=measured)
    for number, message in enumerate(program.messages):
        message.sent.process = f"worker {number}"
        message.sent.token = 1
        message.sent.content = 1 + number
    (group,) = pickled.groups_in_steps(program, make_steps())
    assert pickled.find_use(group) is pickled.Use.NEW
    for number, message in enumerate(program.messages):
        message.sent.process = f"worker {number % 2}"
        message.sent.content = 1 + number % 2
        message.sent.is_same = True
    assert pickled.find_use(group) is pickled.Use.KEPT


def test_one_described_message_does_not_show_that_an_object_is_sent_again():
    slow = replace(FAST, convert=0.5)
    program = make_program(alternatives={"as it is": NOW, "columns": slow})
    for message in program.messages:
        message.sent.is_short = True
    described = program.messages[2].sent
    described.is_short = False
    described.token = 7
    finding = find(program)
    assert finding.is_limit
    assert "is sent again" not in finding.price


def test_what_reading_saves_is_known_from_the_readers_if_the_sender_may_not_read():
    now = replace(NOW, deserialise=0.0, is_read=False)
    program = make_program(alternatives={"as it is": now, "columns": FAST})
    reading = [item.seconds for message in program.messages for item in message.received]
    assert sum(reading) > 0.0
    known = find(program)
    for message in program.messages:
        message.sent.alternatives["columns"] = replace(FAST, is_read=False)
    assert known.seconds > find(program).seconds


@pytest.mark.parametrize(("field", "name", "words"), [
    (replace(TENSOR, type="list", dtype="float"), "arrays of numbers", "+, * and == work on each number"),
    (replace(TENSOR, type="list", dtype="int"), "columns", "append and pop are missing"),
    (replace(TENSOR, type="bytearray", dtype="bytes"), "arrays of bytes", "wrap around at 256"),
    (replace(TENSOR, type="numpy.ndarray"), "one array", "need a copy"),
])  # fmt: skip
def test_what_becomes_arrays_has_their_price(field, name, words):
    finding = find(make_program(field, alternatives={"as it is": NOW, name: FAST}, buffers=2_000))
    assert finding.savings
    assert "arrive read-only" in finding.price
    assert words in finding.price


@pytest.mark.parametrize(("form", "words"), [
    ("pickle", "send the object"),
    ("torch.save", "send its tensors as arrays"),
])  # fmt: skip
def test_bytes_that_the_program_has_pickled_itself_are_no_array_of_bytes(form, words):
    field = replace(TENSOR, type="bytes", dtype="bytes", form=form)
    finding = find(make_program(field, alternatives={"as it is": NOW, "arrays of bytes": FAST}))
    assert finding.cause == "bytes in the pickle"
    assert words in finding.change
    assert "frombuffer" not in finding.change
    assert finding.is_least
    assert finding.price.startswith(pickled.READ_ONLY_PRICE)
    assert "without large arrays saves less" in finding.price


def test_arrays_that_stay_arrays_are_not_said_to_be_no_lists():
    finding = find(make_program(TENSOR, alternatives={"as it is": NOW, "numpy arrays": FAST}))
    assert finding.price == pickled.READ_ONLY_PRICE


def test_the_condition_comes_before_what_a_conversion_takes():
    measured = {"as it is": NOW, "numpy arrays": replace(FAST, convert=0.01)}
    price = find(make_program(TENSOR, alternatives=measured)).price
    assert price.startswith(f"{pickled.READ_ONLY_PRICE} Converting one message took 10 ms")


def test_a_measured_part_of_the_items_is_named():
    part = replace(FAST, share=0.02)
    finding = find(make_program(alternatives={"as it is": NOW, "columns": part}))
    assert "(Measured with 2 % of the items.)" in finding.change
    whole = find(make_program(alternatives={"as it is": NOW, "columns": FAST}))
    assert "Measured with" not in whole.change


def make_tensor(field: Field):
    """Return a tensor with the properties of a field."""
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6.0, dtype=getattr(torch, field.dtype)).reshape(2, 3)
    if not field.is_contiguous:
        tensor = tensor.T
    return tensor.requires_grad_(field.requires_grad)


@pytest.mark.parametrize("field", [
    TENSOR,
    replace(TENSOR, requires_grad=True),
    replace(TENSOR, dtype="bfloat16"),
    replace(TENSOR, dtype="bfloat16", requires_grad=True, is_contiguous=False),
    replace(TENSOR, is_contiguous=False),
])  # fmt: skip
def test_the_advised_change_runs_and_is_the_measured_one(field):
    finding = find(make_program(field, alternatives={"as it is": NOW, "numpy arrays": FAST}))
    advised = re.search(r"Send (tensor\S*\(\)),", finding.change)[1]
    tensor = make_tensor(field)
    torch = pytest.importorskip("torch")
    sent = eval(advised, {"torch": torch, "tensor": tensor})
    measured = conversions.tensors_to_arrays(tensor)
    assert sent.dtype == measured.dtype
    assert sent.tolist() == measured.tolist()
    assert sent.flags.c_contiguous
    assert ("view(torch.bfloat16)" in finding.change) == (field.dtype == "bfloat16")


def test_of_tensors_of_two_types_only_those_in_bfloat16_are_viewed():
    fields = [TENSOR, replace(TENSOR, path="y", dtype="bfloat16")]
    finding = find(make_program(*fields, alternatives={"as it is": NOW, "numpy arrays": FAST}))
    assert "Send tensor.numpy()," in finding.change
    assert "Those in bfloat16 need view(torch.int16)" in finding.change


def test_sparse_values_that_require_a_gradient_are_detached():
    field = replace(TENSOR, form="sparse", is_contiguous=False, requires_grad=True)
    finding = find(make_program(field, alternatives={"as it is": NOW, "its arrays": FAST}))
    assert "with .detach().numpy()" in finding.change


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("tokens", "tokens"),
        ("batch.tokens", "batch.tokens"),
        ("", "its items"),
        ("*", "its items"),
        ("[].*", "its items"),
        ("a[]", "the items of a"),
        ("a.*", "the items of a"),
        ("*.tokens", "tokens of its items"),
    ],
)
def test_a_field_without_a_name_is_in_the_items(path, words):
    assert pickled.name_path(path) == words
