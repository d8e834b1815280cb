"""The check must see what a transport does wrong: in one process on the objects at both ends, then end to end."""

import tempfile
import time

import pytest
import torch
from conftest import KILOBYTES, arguments

import ray_cg_simulate_chat_learn_data_flow as graph_script
from common.flow.demo_sizes import Sizes
from common.flow.flow import DRIVER, chain, online_dpo, scatter_gather
from common.payload.participant import Participant, Role
from common.payload.pattern import POOL_SIZE, lies_in_shared_memory
from common.run.trips import TripFailed
from common.run.verdict import verdict
from common.transport.graph_proof import refuse_fallback

FLOW = online_dpo(Sizes(batch_size=4, prompt_seq_len=256))
EDGES = {str(edge): edge.bytes for edge in FLOW.edges}


class Ends:
    """The driver and all roles, and a transport between them that does nothing wrong: function calls."""

    def __init__(self, flow=FLOW, *flags):
        given = arguments("--threads", str(torch.get_num_threads()), *flags)
        self.flow = flow
        self.driver = Participant(flow, DRIVER, given)
        self.roles = {role.name: Role(flow, role.name, given) for role in flow.roles}
        digests = {DRIVER: self.driver.digests}
        digests |= {name: role.own_digests() for name, role in self.roles.items()}
        for participant in (self.driver, *self.roles.values()):
            participant.expect(digests)

    def send(self, trip, change=lambda edge, tensor: tensor):
        """One trip on which every reader gets change(edge, a copy of what was sent)."""
        emitted = {DRIVER: self.driver.emit(trip)}
        for role in self.flow.roles:
            emitted[role.name] = self.roles[role.name].forward_step(*self.arriving(emitted, role.name, change))
        self.driver.receive(self.arriving(emitted, DRIVER, change))

    def arriving(self, emitted, reader, change):
        return [change(str(edge), emitted[edge.source].clone()) for edge in self.flow.edges_to(reader)]

    def verify(self, trip, trips=1):
        """Wrong bytes by reader, where there are any."""
        checks = {name: role.verify(trip, trips)[0] for name, role in self.roles.items()}
        checks[DRIVER] = self.driver.verify(trip, trips)[0]
        return {name: wrong_bytes for name, wrong_bytes in checks.items() if wrong_bytes}


@pytest.fixture
def ends():
    return Ends()


def on(wanted, change):
    """Change what travels on one edge alone."""
    return lambda edge, tensor: change(tensor) if edge == wanted else tensor


def flip(tensor, index=-1):
    tensor.view(torch.uint8)[index] ^= 1
    return tensor


def test_trips_that_arrive_have_no_wrong_byte(ends):
    for trip in range(1, 2 * POOL_SIZE + 2):
        ends.send(trip)
        assert ends.verify(trip) == {}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("index", [0, 8, -1])
def test_one_byte_that_changes_on_any_edge_is_one_wrong_byte_of_its_reader(ends, edge, index):
    ends.send(1, on(edge, lambda tensor: flip(tensor, index)))
    assert ends.verify(1) == {edge.split(" -> ")[1]: 1}


def test_a_payload_that_is_overwritten_after_it_was_handed_over_is_seen(ends):
    """As a mapped view shows the next trip's bytes when a transport reuses the buffer too early."""
    ends.send(1)
    ends.roles["policy"].inputs[0].copy_(ends.driver.emit(2))
    assert ends.verify(1)["policy"] > 0.9 * EDGES["driver -> policy"]


def test_a_stamp_that_was_late_is_eight_wrong_bytes(ends):
    """The payload was right when it was checked, but not yet when it was handed over."""
    late = []

    def hold_back(tensor):
        late.append(tensor.clone())
        tensor[0] = 0
        return tensor

    ends.send(1, on("driver -> policy", hold_back))
    ends.roles["policy"].inputs[0].copy_(late[0])
    assert ends.verify(1) == {"policy": 8}


EPISODE = 4


def send_episode(ends, first, changes):
    """EPISODE trips, on some of which something goes wrong: changes is {trip: change}; its last trip."""
    for trip in range(first, first + EPISODE):
        ends.send(trip, *([changes[trip]] if trip in changes else []))
    return first + EPISODE - 1


def test_episodes_that_arrive_have_no_wrong_byte(ends):
    for first in range(1, 5 * EPISODE, EPISODE):
        assert ends.verify(send_episode(ends, first, {}), EPISODE) == {}


@pytest.mark.parametrize("trip", range(1, EPISODE))
def test_a_stale_stamp_within_an_episode_is_eight_wrong_bytes(ends, trip):
    last = send_episode(ends, 1, {trip: on("policy -> reward", lambda tensor: tensor.sub_(1))})
    assert ends.verify(last, EPISODE) == {"reward": 8}


def test_every_stale_stamp_of_an_episode_counts(ends):
    def late(tensor):
        tensor[0] -= 1
        return tensor

    send_episode(ends, 1, {})
    ends.verify(EPISODE, EPISODE)
    stale = {EPISODE + 1: on("policy -> reward", late), EPISODE + 3: lambda _edge, tensor: late(tensor)}
    last = send_episode(ends, EPISODE + 1, stale)
    assert ends.verify(last, EPISODE) == {"policy": 8, "reference": 8, "reward": 24, DRIVER: 8}


@pytest.mark.parametrize("edge", EDGES)
def test_of_the_last_trip_of_an_episode_every_byte_is_checked(ends, edge):
    last = send_episode(ends, 1, {EPISODE: on(edge, flip)})
    assert ends.verify(last, EPISODE) == {edge.split(" -> ")[1]: 1}


def test_of_the_trips_before_only_the_stamps_are_checked(ends):
    """What --episode says of itself: their bytes have gone by the time of the check."""
    last = send_episode(ends, 1, {EPISODE - 1: on("policy -> reward", flip)})
    assert ends.verify(last, EPISODE) == {}


@pytest.mark.parametrize("sent", [EPISODE - 1, EPISODE + 1], ids=["dropped", "twice"])
def test_an_episode_of_another_number_of_trips_is_wrong_as_a_whole(ends, sent):
    for trip in range(1, sent + 1):
        ends.send(min(trip, EPISODE))
    assert ends.verify(EPISODE, EPISODE)["policy"] == EPISODE * EDGES["driver -> policy"]


def test_an_episode_after_one_that_was_wrong_can_be_right(ends):
    assert ends.verify(send_episode(ends, 1, {2: on("reward -> driver", lambda tensor: tensor + 1)}), EPISODE)
    assert ends.verify(send_episode(ends, 1 + EPISODE, {}), EPISODE) == {}


def test_stamps_shorter_than_a_word_are_checked_in_episodes_too():
    ends = Ends(chain(3, 1))
    for trip in range(1, 301):  # past what one byte counts
        ends.send(trip, *([on("driver -> role-1", lambda tensor: tensor * 0)] if trip == 257 else []))
    assert ends.verify(300, 300) == {"role-1": 3}


def test_two_inputs_that_are_exchanged_are_wrong(ends):
    policy, reference = ends.roles["policy"].emit(1).clone(), ends.roles["reference"].emit(1).clone()
    ends.roles["reward"].forward_step(reference, policy)
    assert ends.roles["reward"].verify(1)[0] == EDGES["policy -> reward"] + EDGES["reference -> reward"]


def test_a_trip_that_was_dropped_is_wrong_as_a_whole(ends):
    assert ends.verify(1) == {
        "policy": EDGES["driver -> policy"],
        "reference": EDGES["policy -> reference"],
        "reward": EDGES["policy -> reward"] + EDGES["reference -> reward"],
        DRIVER: EDGES["reward -> driver"],
    }


def test_a_trip_that_came_twice_is_wrong_as_a_whole(ends):
    ends.send(1)
    ends.send(1)
    assert ends.verify(1)["policy"] == EDGES["driver -> policy"]


def test_what_follows_a_dropped_trip_is_wrong_too(ends):
    ends.send(1)
    ends.verify(1)
    ends.verify(2)
    ends.send(3)
    assert ends.verify(3)["policy"] == EDGES["driver -> policy"]


def test_a_trip_that_was_checked_cannot_pass_again(ends):
    ends.send(1)
    assert ends.verify(1) == {}
    assert ends.verify(1)["policy"] == EDGES["driver -> policy"]


@pytest.mark.parametrize(
    "change",
    [
        lambda tensor: tensor.to(torch.float64),
        lambda tensor: tensor.view(torch.uint8),
        lambda tensor: tensor[:-1],
        lambda tensor: tensor[:0],
        lambda tensor: torch.cat([tensor, tensor]),
        lambda tensor: tensor.reshape(-1, 1),
    ],
    ids=["float64", "uint8", "one short", "empty", "twice as long", "a column"],
)
def test_a_payload_of_another_type_or_shape_is_wrong_as_a_whole(ends, change):
    ends.send(1, on("policy -> reward", change))
    assert ends.verify(1) == {"reward": EDGES["policy -> reward"]}


@pytest.mark.parametrize(
    "change", [lambda tensor: tensor.reshape(2, -1), lambda tensor: tensor.sum()], ids=["two rows", "a scalar"]
)
def test_a_payload_without_a_first_word_is_wrong_as_a_whole(ends, change):
    ends.send(1, on("policy -> reward", change))
    assert ends.verify(1) == {"reward": EDGES["policy -> reward"]}


def test_a_payload_that_is_not_contiguous_is_compared_as_it_reads(ends):
    ends.send(1, on("policy -> reward", lambda tensor: torch.stack([tensor, tensor], dim=1)[:, 0]))
    assert ends.verify(1) == {}


@pytest.mark.parametrize(
    "inputs", [[], [torch.ones(8), torch.ones(8)], [None], [[1]], [ValueError("lost")], [torch.ones(8).numpy()]]
)
def test_anything_but_one_tensor_an_edge_is_refused_by_the_name_of_the_edge(ends, inputs):
    with pytest.raises(TypeError, match="a tensor for each of driver -> policy; got"):
        ends.roles["policy"].forward_step(*inputs)
    assert ends.verify(1)["policy"] == EDGES["driver -> policy"]


def test_the_driver_refuses_a_missing_result(ends):
    with pytest.raises(TypeError, match="reward -> driver"):
        ends.driver.receive([])


ODD_FLOWS = [chain(count, 2) for count in (1, 7, 13)] + [scatter_gather(9, 3)]


@pytest.mark.parametrize("flow", ODD_FLOWS, ids=lambda flow: f"{flow.name} of {flow.query_bytes} B")
def test_payloads_of_odd_bytes_arrive_and_are_checked_to_the_last_one(flow):
    ends = Ends(flow)
    for trip in range(1, 2 * POOL_SIZE + 2):
        ends.send(trip)
        assert ends.verify(trip) == {}
    edge = flow.edges[-1]
    ends.send(trip + 1, on(str(edge), flip))
    assert ends.verify(trip + 1) == {DRIVER: 1}


def test_a_payload_of_odd_bytes_and_another_type_is_wrong_as_a_whole():
    ends = Ends(chain(13, 1))
    ends.send(1, on("role-1 -> driver", lambda tensor: tensor.view(torch.int8)))
    assert ends.verify(1) == {DRIVER: 13}


def test_a_late_stamp_of_a_short_payload_counts_its_own_bytes():
    ends, late = Ends(chain(3, 1)), []

    def hold_back(tensor):
        late.append(tensor.clone())
        tensor[0] += 1
        return tensor

    ends.send(1, on("driver -> role-1", hold_back))
    ends.roles["role-1"].inputs[0].copy_(late[0])
    assert ends.verify(1) == {"role-1": 3}


def test_copy_out_gives_every_reader_bytes_of_its_own():
    """What changes after it was handed over does not change the reader's copy."""
    ends, handed = Ends(FLOW, "--copy-out"), []

    def hand_over(_edge, tensor):
        handed.append(tensor)
        return tensor

    ends.send(1, hand_over)
    for tensor in handed:
        tensor.zero_()
    assert ends.verify(1) == {}


def test_copy_out_hides_no_wrong_byte():
    ends = Ends(FLOW, "--copy-out")
    ends.send(1)
    assert ends.verify(1) == {}
    ends.send(2, on("policy -> reward", flip))
    assert ends.verify(2) == {"reward": 1}


def test_the_copy_that_copy_out_makes_is_not_the_suites_own_work(monkeypatch):
    """It is what the reader asked for, so it is in the trip and not in harness_seconds."""
    ends, copy, slow = Ends(FLOW, "--copy-out"), torch.Tensor.copy_, []

    def slow_copy(mine, view):
        start = time.perf_counter()
        while time.perf_counter() < start + 0.02:
            pass
        slow.append(1)
        return copy(mine, view)

    monkeypatch.setattr(torch.Tensor, "copy_", slow_copy)
    reward = ends.roles["reward"]
    before = reward.harness_seconds
    inputs = [ends.roles[edge.source].emit(1) for edge in FLOW.edges_to("reward")]
    start = time.perf_counter()
    reward.receive(inputs)
    assert len(slow) == 2
    assert reward.harness_seconds - before <= time.perf_counter() - start - 2 * 0.02


def test_memory_of_this_process_is_no_mapping_of_shared_memory():
    assert not lies_in_shared_memory(torch.ones(1024).data_ptr())


def test_a_file_in_shared_memory_is_a_mapping():
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.truncate(2**20)
        tensor = torch.from_file(file.name, shared=True, size=2**17, dtype=torch.int64)
        assert lies_in_shared_memory(tensor.data_ptr())
        assert lies_in_shared_memory(tensor[1000:].data_ptr())


def test_verify_tells_which_edges_were_mapped_and_lets_go_of_them(ends):
    ends.send(1)
    assert ends.roles["reward"].verify(1)[1] == {"policy -> reward": False, "reference -> reward": False}
    assert ends.roles["reward"].inputs == ()


BIG = online_dpo(Sizes())
SMALL = FLOW  # every message is so small that Ray copies it whatever the transport promises


def judge(flow, mapped, promised, wrong_bytes=0, device="cpu"):
    """The verdict on a case whose readers held views of the edges in `mapped` and copies of the others."""
    seen = {str(edge): str(edge) in mapped for edge in flow.edges}
    case = {"device": device, "transport": "refs", "wrong_bytes": wrong_bytes}
    return verdict(case, flow, seen, promised)


@pytest.mark.parametrize(
    ("flow", "mapped", "promised", "device"),
    [(BIG, [], False, "cpu"), (BIG, EDGES, True, "cpu"), (SMALL, [], True, "cpu"), (BIG, [], True, "cuda")],
    ids=["copies promised and seen", "views promised and seen", "too small to be mapped", "on GPUs"],
)
def test_a_case_whose_bytes_took_the_promised_path_is_ok(flow, mapped, promised, device):
    assert judge(flow, mapped, promised, device=device) == {"status": "ok", "reason": None}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("promised", [True, False])
def test_a_case_of_which_one_edge_took_another_path_fails_by_its_name(edge, promised):
    others = [other for other in EDGES if other != edge]
    found = judge(BIG, others if promised else [edge], promised)
    assert found["status"] == "failed"
    assert found["reason"].startswith(f"{edge}: the payload was {'copied' if promised else 'mapped'}")


@pytest.mark.parametrize("promised", [True, False])
def test_a_case_with_a_wrong_byte_fails(promised):
    found = judge(BIG, EDGES if promised else [], promised, wrong_bytes=1)
    assert found["status"] == "failed"
    assert found["reason"].startswith("1 wrong bytes arrived")


def test_a_case_of_which_an_edge_was_never_seen_fails_for_its_wrong_bytes():
    """A reader that no trip reached has seen neither views nor copies."""
    found = verdict({"device": "cpu", "transport": "refs", "wrong_bytes": 8}, BIG, {}, False)
    assert found["status"] == "failed"
    assert found["reason"].startswith("8 wrong bytes arrived")


SHARED_MEMORY = "TorchTensorType over BufferedSharedMemoryChannel"
OVER_NCCL = "TorchTensorType over TorchTensorAcceleratorChannel"
UNTYPED = "SharedMemoryType over BufferedSharedMemoryChannel"
NCCL_EDGES = ("policy -> reference", "policy -> reward", "reference -> reward")
PATHS = {
    "nccl": {edge: OVER_NCCL if edge in NCCL_EDGES else SHARED_MEMORY for edge in EDGES},
    "shm": dict.fromkeys(EDGES, SHARED_MEMORY),
    "pickle": dict.fromkeys(EDGES, UNTYPED),
    "bytes": dict.fromkeys(EDGES, UNTYPED),
    "zero-copy": dict.fromkeys(EDGES, UNTYPED),
    "mapped": dict.fromkeys(EDGES, UNTYPED),  # of the handles
}


@pytest.mark.parametrize("transport", graph_script.TRANSPORTS)
def test_a_graph_of_the_promised_channels_is_taken(transport):
    assert refuse_fallback(PATHS[transport], FLOW, transport) is None


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("transport", graph_script.TRANSPORTS)
def test_a_graph_with_one_other_channel_is_refused_by_the_name_of_the_edge(transport, edge):
    for other in {OVER_NCCL, SHARED_MEMORY, UNTYPED} - {PATHS[transport][edge]}:
        with pytest.raises(TripFailed, match=f"{edge} goes by {other}, which {transport} is not"):
            refuse_fallback(PATHS[transport] | {edge: other}, FLOW, transport)


def assert_failed_for_wrong_bytes(finished, least, most):
    assert finished.code == 1
    assert finished.case["status"] == "failed"
    assert least <= finished.case["wrong_bytes"] <= most
    assert len(finished.case["seconds"]) == 3
    assert "wrong bytes arrived" in finished.stderr
    assert "WRONG" in finished.stdout


@pytest.mark.parametrize(
    ("wrapper", "least", "most"),
    [
        ("results = send(query); results[0][-1] ^= 1; return results", 5, 5),
        ("sent.append(send(query)[0]); return [sent[max(0, len(sent) - 2)]]", 4 * 40_000, 4 * 40_960),
    ],
    ids=["one byte changed", "the result of the trip before"],
)
def test_a_transport_that_loses_data_fails_the_run(run_script, write_script, wrapper, least, most):
    source = f"sent = []\n\ndef wrap_send(send):\n    def changed(query):\n        {wrapper}\n    return changed\n"
    script = write_script("simulate_chat_learn_data_flow", source)
    finished = run_script(script, "--transport", "refs", "--iterations", "3", "--warmup", "1", *KILOBYTES)
    assert_failed_for_wrong_bytes(finished, least, most)


# A role that sends its neighbour something else than the check's payload, and itself does not know.
LOSING = """
class Losing(script.DistributedRole):
    def send(self, payload, edges):
        changed = payload.clone()
        changed[-1] ^= self.name == "policy"
        super().send(changed, edges)


def wrap_role(role_class):
    return Losing
"""


def test_a_process_that_sends_wrong_bytes_fails_the_run(run_script, write_script):
    script = write_script("torch_simulate_chat_learn_data_flow", LOSING)
    finished = run_script(script, "--transport", "gloo", "--iterations", "3", "--warmup", "1", *KILOBYTES)
    assert_failed_for_wrong_bytes(finished, 10, 10)  # both readers of the policy, on five trips
