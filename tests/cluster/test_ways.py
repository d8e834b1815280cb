# SPDX-License-Identifier: Apache-2.0
"""Simulate small flows in each way, with costs that make the times round."""

import pytest

from dataflow.cluster.hardware import Cluster, NodeMachine, place
from dataflow.cluster.simulation import Kind, Resource
from dataflow.cluster.ways import (
    Call,
    Path,
    SizedCost,
    WayCosts,
    Work,
    bytes_on_path,
    seconds_between,
    seconds_of_calls,
    simulate_flow,
)
from dataflow.flows.catalogue import online_dpo
from dataflow.flows.flow import DRIVER
from dataflow.flows.parser import parse_flow

MB = 10**6
MIB = 2**20
SECOND = 1 / MB  # per byte: a message of 1 MB takes one second to send, and one to read
MANY = 1e6
MACHINE = NodeMachine(pair_rate=MANY * MB, memory_rate=MANY * MB, fault_seconds=0.0, cores=MANY)
FREE = Work(0.0, 0.0)
COSTS = WayCosts(Work(SECOND, 0.0), Work(SECOND, 0.0), FREE)
# A call takes 0.5 s of the driver's core, and then 1.5 s in which it uses a core and a half.
CALL = Call(submit_seconds=0.5, start_seconds=1.5, start_core_seconds=2.25)
CALLED = WayCosts(Work(SECOND, 0.0), Work(SECOND, 0.0), FREE, CALL, CALL)


def run(text, path, nodes=1, link_rate=MANY * MB, placement="blocks", costs=COSTS, **changes):
    flow = parse_flow(text)
    cluster = Cluster(MACHINE, nodes, link_rate, **changes)
    return simulate_flow(flow, place(flow, nodes, placement), cluster, path, costs)


@pytest.mark.parametrize(
    ("path", "seconds"), [(Path.REFERENCES, 2), (Path.DRIVER, 4), (Path.STREAM, 1)]
)
def test_one_message_is_sent_and_read(path, seconds):
    assert run("a -> b: 1MB", path).seconds == pytest.approx(seconds)


@pytest.mark.parametrize(("path", "seconds"), [(Path.REFERENCES, 2 + 10), (Path.STREAM, 10)])
def test_a_link_comes_between_or_at_the_same_time(path, seconds):
    outcome = run("a -> b: 1MB", path, nodes=2, link_rate=0.1 * MB)
    assert outcome.seconds == pytest.approx(seconds)
    assert outcome.busy[Resource(Kind.SENDS, 0)] == pytest.approx(10.0)
    assert outcome.busy[Resource(Kind.RECEIVES, 1)] == pytest.approx(10.0)


def test_the_driver_gets_a_message_from_another_node_and_sends_it_back():
    outcome = run("a -> b: 1MB", Path.DRIVER, nodes=2, link_rate=MB, placement="a=1,b=1")
    assert outcome.seconds == pytest.approx(1 + 1 + 1 + 1 + 1 + 1)
    assert outcome.busy[Resource(Kind.RECEIVES, 0)] == pytest.approx(1.0)
    assert outcome.busy[Resource(Kind.SENDS, 0)] == pytest.approx(1.0)


def test_the_drivers_core_is_full_when_many_messages_go_through_it():
    senders = ", ".join(f"a{number}" for number in range(20))
    outcome = run(f"{senders} -> b: 1MB", Path.DRIVER)
    driver = Resource(Kind.CORE, DRIVER)
    assert outcome.busy[driver] == pytest.approx(40.0)
    # All send in the first second. Then the driver reads and sends 20 messages, and the reader reads them all.
    assert outcome.seconds == pytest.approx(1 + 40 + 20)


def test_references_leave_the_driver_alone():
    outcome = run("a0, a1, a2 -> b: 1MB", Path.REFERENCES)
    assert Resource(Kind.CORE, DRIVER) not in outcome.busy
    assert outcome.seconds == pytest.approx(1 + 3)


def test_a_node_gets_a_message_of_the_store_once_and_a_direct_one_per_reader():
    text = "a -> b, c: 1MB"
    link = Resource(Kind.RECEIVES, 1)
    places = "b=1,c=1"
    store = run(text, Path.REFERENCES, nodes=2, link_rate=MB, placement=places)
    direct = run(text, Path.STREAM, nodes=2, link_rate=MB, placement=places)
    assert store.busy[link] == pytest.approx(1.0)
    assert direct.busy[link] == pytest.approx(2.0)


def test_two_nodes_of_one_machine_share_its_cores():
    one_core = NodeMachine(MANY * MB, MANY * MB, 0.0, cores=1)
    flow = parse_flow("a0, a1 -> b: 1MB")
    times = []
    for is_one_machine in (False, True):
        cluster = Cluster(one_core, 2, MANY * MB, is_one_machine=is_one_machine)
        places = place(flow, 2, "a0=0,a1=1,b=1")
        times.append(simulate_flow(flow, places, cluster, Path.REFERENCES, COSTS).seconds)
    assert times == pytest.approx([1 + 2, 2 + 2], rel=1e-3)


def test_memory_is_shared_by_all_processes_of_a_node():
    costs = WayCosts(Work(SECOND, 1.0), Work(SECOND, 1.0), FREE)
    flow = parse_flow("a0, a1 -> b: 1MB")
    slow = NodeMachine(MB, MB, 0.0, cores=MANY)
    outcome = simulate_flow(
        flow, place(flow, 1, "pack"), Cluster(slow, 1, MB), Path.REFERENCES, costs
    )
    assert outcome.seconds == pytest.approx(2 + 2)
    assert outcome.busy[Resource(Kind.MEMORY, 0)] == pytest.approx(4.0)


def test_a_switch_limits_all_links_together():
    text = "a -> b: 1MB; c -> d: 1MB"
    places = "a=0,b=1,c=2,d=3"
    outcome = run(
        text, Path.REFERENCES, nodes=4, link_rate=MB, placement=places, switch_rate=0.5 * MB
    )
    assert outcome.seconds == pytest.approx(1 + 4 + 1)


def test_small_messages_take_no_time():
    assert run("a -> b: 1KB", Path.REFERENCES).seconds == 0.0


def test_an_actor_with_several_tasks_sends_one_after_the_other():
    """The reader reads the first while the second one is sent."""
    from dataflow.cluster.presets import in_buckets

    flow = in_buckets(parse_flow("a -> b: 4MB"), 4)
    cluster = Cluster(MACHINE, 1, MANY * MB)
    places = place(flow, 1, "pack")
    store = simulate_flow(flow, places, cluster, Path.REFERENCES, COSTS)
    direct = simulate_flow(flow, places, cluster, Path.STREAM, COSTS)
    assert store.seconds == pytest.approx(4 + 1)
    assert direct.seconds == pytest.approx(4)


def test_the_demos_stages_run_one_after_the_other():
    """All 352 MiB are sent, and 448 MiB read. The driver reads and sends the 256 MiB between actors again."""
    paths = {path: bytes_on_path(online_dpo(), path) / MIB for path in Path}
    assert paths == pytest.approx(
        {Path.REFERENCES: 352 + 448, Path.DRIVER: 352 + 448 + 2 * 256, Path.STREAM: 448}
    )


@pytest.mark.parametrize(
    ("path", "seconds"),
    [
        # The first call, the message is sent (and read and sent again by the driver), the second call, and it is read.
        (Path.REFERENCES, 2 + 1 + 1.5 + 1),
        (Path.DRIVER, 2 + 1 + 1 + 1 + 1.5 + 1),
        (Path.STREAM, 2 + 1.5 + 1),
    ],
)
def test_a_task_begins_when_its_messages_were_sent_and_its_call_has_taken_its_time(path, seconds):
    """The second call is submitted while the first one is under way."""
    assert run("a -> b: 1MB", path, costs=CALLED).seconds == pytest.approx(seconds)


def test_calls_are_submitted_one_after_the_other_by_the_drivers_core():
    outcome = run("a0, a1, a2 -> b: 1MB", Path.REFERENCES, costs=CALLED)
    assert outcome.busy[Resource(Kind.CORE, DRIVER)] == pytest.approx(4 * 0.5)
    # The last of the three is submitted after 1.5 s, and sent 1.5 s + 1 s later. Then b is called, and reads all.
    assert outcome.seconds == pytest.approx(1.5 + 1.5 + 1 + 1.5 + 3)


def test_calls_at_the_same_time_share_the_cores_of_a_node():
    two_cores = NodeMachine(MANY * MB, MANY * MB, 0.0, cores=2)
    flow = parse_flow("a0, a1 -> b: 1MB")
    call = Call(submit_seconds=0.0, start_seconds=1.0, start_core_seconds=1.5)
    costs = WayCosts(FREE, FREE, FREE, call, call)
    places = place(flow, 1, "pack")
    outcome = simulate_flow(flow, places, Cluster(two_cores, 1, MB), Path.REFERENCES, costs)
    # The first two need three cores, and have two.
    assert outcome.seconds == pytest.approx(1.5 + 1)


def test_a_call_that_reads_messages_can_take_longer():
    slow = Call(submit_seconds=0.0, start_seconds=10.0, start_core_seconds=0.0)
    costs = WayCosts(FREE, FREE, FREE, CALL, slow)
    assert run("a -> b: 1MB", Path.STREAM, costs=costs).seconds == pytest.approx(2 + 10)


def test_a_direct_message_does_not_wait_for_the_others_of_its_reader():
    """The message of a is sent while b waits for it and makes its own; then that of b follows."""
    call = Call(submit_seconds=0.0, start_seconds=1.0, start_core_seconds=0.0)
    costs = WayCosts(Work(0.0, 0.0), Work(SECOND, 0.0), FREE, call, call)
    text = "a -> b, c: 5MB; b -> c: 2MB"
    assert run(text, Path.STREAM, costs=costs).seconds == pytest.approx(1 + 1 + 5 + 1 + 2)
    assert run(text, Path.REFERENCES, costs=costs).seconds == pytest.approx(1 + 1 + 5 + 1 + 7)


def test_without_ray_the_driver_calls_nothing():
    outcome = run("a -> b: 1MB", Path.STREAM)
    assert {resource.kind for resource in outcome.busy} == {Kind.CORE, Kind.CORES}
    assert Resource(Kind.CORE, DRIVER) not in outcome.busy


def test_calls_of_the_demos_flow_follow_each_other():
    """Two are submitted while the first is under way."""
    for path in Path:
        seconds = seconds_of_calls(online_dpo(), path, CALL, CALL)
        assert seconds == pytest.approx(0.5 + 3 * 1.5), path


def test_page_faults_per_byte_depend_on_the_size_of_the_message():
    costs = [SizedCost(1 * MIB, 1.0), SizedCost(4 * MIB, 2.0), SizedCost(16 * MIB, 6.0)]
    sizes = (MIB // 2, MIB, 4 * MIB, 8 * MIB, 16 * MIB, 64 * MIB)
    found = [seconds_between(costs, size) for size in sizes]
    assert found == pytest.approx([1.0, 1.0, 2.0, 4.0, 6.0, 6.0])
    assert seconds_between([], MIB) == 0.0


def test_a_message_takes_the_time_of_its_bytes_and_page_faults():
    work = Work(1.0, 0.0, [SizedCost(10, 0.5), SizedCost(1000, 1.5)])
    assert work.seconds_of(100) == pytest.approx(100 * (1.0 + 1.0))
