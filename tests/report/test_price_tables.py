# SPDX-License-Identifier: Apache-2.0
"""Test what keeping memory gains by the price of a page fault: measured on machines, and predicted for other prices."""

import pytest
from made_records import rows_of, write_campaign

from dataflow.analysis.stored_costs import CostFile, FittedMachine, StoredCost
from dataflow.report.pages import load_rows
from dataflow.report.price_tables import COMPARED, KEPT, build_prices

MIB = 2**20


def write_boot(folder, boot, kept_seconds):
    """Write a campaign in which each configuration takes 1 s, and so many seconds with kept memory."""
    environment = {"clock_code": "a", "boot": boot, "versions": {"ray": "2.60.0", "torch": "2"}}
    times = []
    for name in COMPARED:
        times += [(name, {}, 1.0, {}), (name, {"retain_memory": True}, kept_seconds, {})]
    write_campaign(folder / boot, *times, environment=environment)


def make_cost(name, copies, faults):
    return StoredCost(
        configuration=name,
        table="headline",
        flow="online-dpo",
        iteration_bytes=100 * MIB,
        readers_own_a_copy=True,
        copies=copies,
        faults=faults,
        fixed_seconds=0.0,
        error=0.05,
        factor=1.2,
        machines=2,
    )


@pytest.fixture
def stored():
    """Return costs of 10 copies and a million page faults, and of 10 copies without any, and two machines."""
    costs = []
    for name in COMPARED:
        costs += [make_cost(name, 10, 1e6), make_cost(name + KEPT, 10, 0)]
    # Both together copy 100 MiB in 0.1 s.
    copies = 0.1 / (100 * MIB)
    machines = [
        FittedMachine(boot="fast1", byte_seconds=copies, fault_seconds=1.5e-6),
        FittedMachine(boot="slow1", byte_seconds=copies, fault_seconds=3e-6),
    ]
    return CostFile(campaigns=["a", "b"], machines=machines, costs=costs, unexplained=[])


@pytest.fixture
def headline(tmp_path):
    write_boot(tmp_path, "fast1", kept_seconds=0.5)
    write_boot(tmp_path, "slow1", kept_seconds=0.2)
    return {row.newest.name: row for row in load_rows(tmp_path)}


def test_gains_are_measured_on_machines_and_predicted_for_other_prices_in_their_order(
    headline, stored
):
    table = rows_of(build_prices(headline, stored))
    by_price = {row["µs per page fault"]: row for row in table}
    assert [*by_price] == ["0.1", "0.25", "0.5", "1", "1.5", "2", "3", "4", "8"]
    assert by_price["1.5"]["where"] == "measured on fast"
    assert by_price["1.5"]["`store refs`"] == "2"
    assert by_price["3"]["`graph shm`"] == "5"
    # 10 copies take 1 s. A million page faults take 0.1 or 8 s besides.
    assert by_price["0.1"]["where"] == "predicted"
    assert by_price["0.1"]["`store driver-queue`"] == "1.1"
    assert by_price["8"]["`store refs`"] == "9"


def test_there_is_no_table_if_a_configuration_was_not_measured_or_has_no_costs(headline, stored):
    for costs in ([], stored.costs[1:]):
        other = CostFile(campaigns=[], machines=stored.machines, costs=costs, unexplained=[])
        assert build_prices(headline, other).table is None
    del headline[f"graph shm{KEPT}"]
    assert build_prices(headline, stored).table is None
