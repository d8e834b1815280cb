# SPDX-License-Identifier: Apache-2.0
"""What readers get: the group of each configuration, also of older records, and that no factor is across groups."""

from itertools import permutations

import pytest
from made_records import make_record, make_run, rows_of, write_campaign

from dataflow.analysis.campaigns import combine, load_campaigns
from dataflow.analysis.comparison import Pair
from dataflow.analysis.result import Result
from dataflow.analysis.stored_costs import StoredCost
from dataflow.catalogue.catalogue import TRANSPORTS, configuration_name, flags_of_name
from dataflow.report.campaign_tables import campaign_sections, draw_factors
from dataflow.report.machine_columns import divide_means
from dataflow.report.sections import choose_rows
from dataflow.report.sentences import describe_pair, format_times_as_fast
from dataflow.report.tables import (
    COPY_TO_KEEP,
    KEPT_IN_PLACE,
    READER_GROUPS,
    REUSED_BUFFER,
    REUSED_IN_PLACE,
    VIEW,
    group_of_readers,
    readers_of,
)

COPY_OUT = {"copy_out": True}
KEEP = {"keep": True}
WEIGHTS = pytest.mark.study("weights")
PEERS = pytest.mark.study("external_systems")
GROUPS = [
    ("store refs", {}, COPY_TO_KEEP),
    ("store refs", {"zero_copy": True} | COPY_OUT, REUSED_BUFFER),
    ("store refs", {"zero_copy": True}, VIEW),
    ("graph shm", {"retain_memory": True}, COPY_TO_KEEP),
    ("rdt nixl", {}, COPY_TO_KEEP),
    ("rdt nixl-pull", {}, COPY_TO_KEEP),
    ("rdt nixl-pull", {"reuse_buffers": True}, REUSED_BUFFER),
    ("graph zero-copy", {}, VIEW),
    ("graph zero-copy", COPY_OUT, REUSED_BUFFER),
    ("graph zero-copy", COPY_OUT | KEEP, COPY_TO_KEEP),
    ("torch gloo", {}, REUSED_BUFFER),
    ("torch gloo", KEEP, COPY_TO_KEEP),
    ("torch gloo", {"in_flight": 8}, REUSED_BUFFER),
    ("torch broadcast", {}, REUSED_BUFFER),
    ("torch memcpy", {}, REUSED_BUFFER),
    ("torch mapped", {}, VIEW),
    ("torch mapped", {"copy_in": True} | COPY_OUT, REUSED_BUFFER),
    ("torch mapped", {"copy_in": True} | COPY_OUT | KEEP, COPY_TO_KEEP),
    ("torch mapped", COPY_OUT, REUSED_IN_PLACE),
    ("torch mapped", COPY_OUT | KEEP, KEPT_IN_PLACE),
    ("graph nixl-read", {}, REUSED_IN_PLACE),
    ("graph nixl-read", KEEP, KEPT_IN_PLACE),
    pytest.param("peers zmq-ipc", {}, COPY_TO_KEEP, marks=PEERS),
    pytest.param("peers iceoryx2", COPY_OUT, REUSED_BUFFER, marks=PEERS),
    pytest.param("peers nixl-read", {}, REUSED_IN_PLACE, marks=PEERS),
    pytest.param("peers nixl-write", {}, REUSED_IN_PLACE, marks=PEERS),
]


def make_result(name, flags, seconds=1.0, readers=COPY_TO_KEEP, **changes):
    """Return the result of three runs, whose readers were seen to get a view if the group says so."""
    runtime, transport = name.split()
    owns = readers != VIEW
    times = (seconds, 1.01 * seconds, 0.99 * seconds)
    runs = [make_run([time], readers_own_a_copy=owns) for time in times]
    return Result([make_record(transport, *runs, runtime=runtime, flags=flags, **changes)])


@pytest.mark.parametrize(("name", "flags", "readers"), GROUPS)
def test_the_flags_of_a_record_say_what_its_readers_get(name, flags, readers):
    result = make_result(name, flags, readers=readers)
    assert readers_of(result) == readers
    cost = StoredCost(
        configuration=result.label,
        table="headline",
        flow="online-dpo",
        iteration_bytes=1,
        readers_own_a_copy=result.readers_own_a_copy,
        copies=1.0,
        faults=1.0,
        fixed_seconds=0.0,
        error=0.0,
        factor=None,
        machines=3,
    )
    assert group_of_readers(*cost.work) == readers


def test_small_messages_of_a_transport_of_views_are_copies_to_keep():
    """Ray keeps them in its calls, and each reader unpickles its own."""
    assert readers_of(make_result("store refs", {"zero_copy": True})) == COPY_TO_KEEP


@WEIGHTS
def test_readers_that_get_only_what_has_changed_write_it_into_the_memory_that_they_have():
    weights = {"flow": "weights", "model_scale": 0.01}
    changes = make_result("store refs", {}, message="indices", **weights)
    assert readers_of(changes) == REUSED_BUFFER
    assert readers_of(make_result("store refs", {}, **weights)) == COPY_TO_KEEP


def test_the_flags_in_a_name_are_those_that_made_it():
    flags = {"copy_out": True, "threads": "2", "beside": "a -> b: 1MB", "keep": True}
    assert flags_of_name(configuration_name("graph", "zero-copy", flags)) == flags


ONE_OF_EACH = {
    COPY_TO_KEEP: ("store driver-queue", {}),
    REUSED_BUFFER: ("torch gloo", {}),
    KEPT_IN_PLACE: ("graph nixl-read", KEEP),
    REUSED_IN_PLACE: ("graph nixl-read", {}),
    VIEW: ("graph zero-copy", {}),
}


@pytest.mark.parametrize("groups", [*permutations(READER_GROUPS, 2)], ids=" | ".join)
def test_no_sentence_and_no_cell_has_a_factor_across_groups(groups):
    one, other = [make_result(*ONE_OF_EACH[group], readers=group) for group in groups]
    assert one.work != other.work
    sentence = describe_pair(Pair(one, other))
    assert sentence.endswith("different work, so there is no factor.")
    assert all(f"where {group}" in sentence for group in groups)
    assert format_times_as_fast(one, other) == "-"


def write_group(folder, readers, seconds):
    """Return the rows of campaigns on three boots, with the demo's queues and one configuration of the group."""
    name, flags = ONE_OF_EACH[readers]
    change = {"readers_own_a_copy": readers != VIEW}
    for boot in ("a", "b", "c"):
        times = [("store driver-queue", {}, 8.0), (name, flags, seconds, change)]
        environment = {
            "clock_code": "a",
            "boot": boot,
            "versions": {"ray": "2.60.0", "torch": "2.13.0"},
        }
        write_campaign(folder / boot, *times, environment=environment)
    return combine(load_campaigns(folder))


@pytest.mark.parametrize("readers", [*READER_GROUPS][1:])
def test_campaigns_have_no_factor_across_groups_and_show_one_group_after_the_other(
    tmp_path, readers
):
    rows = write_group(tmp_path, readers, seconds=10.0)
    baseline, other = rows
    assert (baseline.is_comparable, other.is_comparable) == (True, False)
    assert divide_means(other, baseline) == {}
    section, *_ = campaign_sections(rows)
    queues, shown = rows_of(section)
    assert queues["configuration"] == "store driver-queue"  # the fastest, and of the first group
    assert shown["times as fast as store driver-queue, by machine"] == "-"
    assert shown["readers get"] == READER_GROUPS[readers]
    assert draw_factors(rows) is None


def test_each_transport_that_can_keep_reuses_buffers_without_it():
    for transport in TRANSPORTS.values():
        assert not transport.can_keep or transport.reuses_buffers
        assert not (transport.gives_views and transport.reuses_buffers)


def test_a_page_has_the_baseline_and_the_fastest_of_each_kind_even_if_many_others_are_kept():
    slow = [make_record("nixl", [5.0], runtime="rdt", flags={"threads": n}) for n in range(2, 8)]
    records = [make_record("refs", [9.0]), make_record("shm", [1.0], runtime="graph"), *slow]
    results = [Result([record]) for record in records]

    def is_direct(result):
        return result.transport.runtime.name == "rdt"

    chosen = choose_rows(results, is_preferred=is_direct, max_rows=4)
    assert [results[position].name for position in chosen][:2] == ["store refs", "graph shm"]
    assert len(chosen) == 4
