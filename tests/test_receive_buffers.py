"""Memory that a reader copies messages into again, and memory in pages of 2 MiB."""

import gc

import numpy as np
import pytest
import torch
from conftest import ROOT

from common.run import options as command_line
from common.transport.warm_receive import SMALLEST_BYTES, Buffers
from common.view import tables as report

GRAPH = "ray_cg_simulate_chat_learn_data_flow"
MEBIBYTES = ("--batch-size", "64")  # 2 to 10 MiB a message


def message(number, count=1000, dtype=np.int64):
    return np.full(count, number, dtype)


@pytest.fixture
def buffers():
    return Buffers()


def slots(buffers):
    return sum(map(len, buffers.slots.values()))


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(1000,), (10, 100), (2, 5, 100)])
def test_a_copy_has_type_shape_and_bytes_and_is_no_view(buffers, dtype, shape):
    array = np.arange(1000).astype(dtype).reshape(shape)
    tensor = buffers.copy(array)
    assert tensor.shape == shape
    assert np.array_equal(tensor.numpy(), array)
    assert tensor.numpy().dtype == dtype
    array[:] = 0
    assert tensor.count_nonzero() > 0


def test_memory_is_used_again_when_its_tensor_has_gone(buffers):
    addresses = set()
    for number in range(10):
        tensor = buffers.copy(message(number))
        assert bool((tensor == number).all())
        addresses.add(tensor.data_ptr())
        del tensor
    assert len(addresses) == slots(buffers) == 1


def test_memory_in_which_a_tensor_lies_is_not_used(buffers):
    held = [buffers.copy(message(number)) for number in range(5)]
    assert len({tensor.data_ptr() for tensor in held}) == 5
    assert [int(tensor[-1]) for tensor in held] == list(range(5))
    gone = held.pop(2).data_ptr()
    assert buffers.copy(message(9)).data_ptr() == gone
    assert [int(tensor[0]) for tensor in held] == [0, 1, 3, 4]
    assert slots(buffers) == 5


@pytest.mark.parametrize(
    "make_view",
    [
        lambda tensor: tensor[500:],
        lambda tensor: tensor.view(torch.uint8),
        lambda tensor: tensor.reshape(10, 100)[3],
        lambda tensor: tensor.numpy(),
        lambda tensor: tensor.numpy()[7:8],
        lambda tensor: torch.from_numpy(tensor.numpy()),
        lambda tensor: tensor.detach(),
        lambda tensor: memoryview(tensor.numpy()),
        lambda tensor: tensor.untyped_storage(),
    ],
    ids=["slice", "view", "row", "array", "slice of the array", "there and back", "detached", "memoryview", "storage"],
)
def test_memory_in_which_a_view_lies_is_not_used(buffers, make_view):
    tensor = buffers.copy(message(1))
    address, view = tensor.data_ptr(), make_view(tensor)
    del tensor
    gc.collect()
    other = buffers.copy(message(2))
    assert other.data_ptr() != address
    del view, other
    addresses = {buffers.copy(message(number)).data_ptr() for number in range(3)}
    assert len(addresses) == 1
    assert slots(buffers) == 2


def test_messages_of_other_bytes_have_memory_of_their_own(buffers):
    for number in range(3):
        for count in (10, 20, 30):
            assert buffers.copy(message(number, count)).numel() == count
    assert {count: len(found) for count, found in buffers.slots.items()} == {80: 1, 160: 1, 240: 1}


def test_messages_of_another_type_and_as_many_bytes_share_memory(buffers):
    first = buffers.copy(message(1, 8, np.uint8)).data_ptr()
    second = buffers.copy(message(1, 1, np.int64))
    assert (second.data_ptr(), second.dtype) == (first, torch.int64)


# Every role says in `costs`, which is asked at the end, when its copies did not go into memory that is used again.
COUNTED = """
def wrap_role(role_class):
    from common.transport import warm_receive as receive_buffers

    class Counting(role_class):
        def __init__(self, *given):
            noted = []

            class Noted(receive_buffers.Buffers):
                copies = 0

                def __init__(self):
                    super().__init__()
                    noted.append(self)

                def copy(self, array):
                    self.copies += 1
                    return super().copy(array)

            receive_buffers.Buffers = Noted
            super().__init__(*given)
            (self.noted,) = noted

        def costs(self):
            copies, expected = self.noted.copies, self.trips_received * len(self.reads)
            slots = {size: len(found) for size, found in self.noted.slots.items()}
            if copies != expected or max(slots.values()) > 2:
                raise RuntimeError(f"{copies} copies of {expected} in {slots}")
            return super().costs()

    return Counting
"""


def test_a_graph_with_memory_that_is_used_again_is_right_and_a_row_of_its_own(run_script, write_script):
    """In pages of 2 MiB besides, where the machine has them."""
    huge = ["--huge-pages"] * ("[never]" not in command_line._huge_pages())
    flags = ("--transport", "shm", *huge, "--reuse-buffers", "--iterations", "6", "--warmup", "1")
    finished = run_script(write_script(GRAPH, COUNTED), *flags, *MEBIBYTES)
    assert (finished.code, finished.stderr) == (0, "")
    record, found = finished.record, finished.case
    assert (found["status"], found["wrong_bytes"], found["payload_copied"]) == ("ok", 0, True)
    assert min(edge["bytes"] for edge in found["edges"]) > SMALLEST_BYTES
    assert record["environment"]["variables"].get("THP_MEM_ALLOC_ENABLE") == ("1" if huge else None)
    assert record["arguments"]["huge_pages"] is bool(huge)
    assert report.label(record, found).partition(" ")[2] == " ".join(["shm", *huge, "--reuse-buffers"])


@pytest.fixture
def refused(run_main):
    """refused(script, *flags) -> the one line that says why."""

    def run(script, *flags):
        code, stdout, stderr = run_main(ROOT / f"{script}.py", *flags)
        assert (code, stdout, stderr.count("\n")) == (2, "", 1)
        return stderr

    return run


@pytest.mark.parametrize(
    ("script", "transport"),
    [
        ("simulate_chat_learn_data_flow", "refs"),
        (GRAPH, "pickle"),
        (GRAPH, "bytes"),
        (GRAPH, "zero-copy"),
        (GRAPH, "mapped"),
        ("ray_rdt_simulate_chat_learn_data_flow", "gloo"),
        ("torch_simulate_chat_learn_data_flow", "memcpy"),
    ],
)
def test_reuse_buffers_is_refused_where_nothing_would_use_them(refused, script, transport):
    reason = refused(script, "--transport", transport, "--reuse-buffers", *MEBIBYTES)
    assert "--reuse-buffers" in reason


@pytest.mark.parametrize("said", ["always madvise [never]\n", None], ids=["never", "no such file"])
def test_huge_pages_are_refused_where_the_machine_has_them_off(refused, monkeypatch, tmp_path, said):
    switch = tmp_path / "enabled"
    if said:
        switch.write_text(said)
    monkeypatch.setattr(command_line, "HUGE_PAGES", switch)
    reason = refused(GRAPH, "--huge-pages", *MEBIBYTES)
    assert f"--huge-pages: this machine has them switched off: write madvise into {switch}" in reason


@pytest.mark.parametrize("said", ["[always] madvise never\n", "always [madvise] never\n"])
def test_huge_pages_are_taken_where_the_machine_has_them(monkeypatch, tmp_path, said):
    switch = tmp_path / "enabled"
    switch.write_text(said)
    monkeypatch.setattr(command_line, "HUGE_PAGES", switch)
    assert command_line.parse_arguments("", ("shm",), "shm", ["--huge-pages"]).huge_pages is True
