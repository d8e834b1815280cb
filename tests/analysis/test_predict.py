# SPDX-License-Identifier: Apache-2.0
"""A prediction is the cost of a configuration on a machine, and the stored costs are those of the campaigns."""

import re

import msgspec
import pytest

from dataflow.analysis.cost_model import MachineCosts
from dataflow.analysis.stored_costs import StoredCost, fit_costs, load_costs
from dataflow.commands import predict
from dataflow.errors import RecordError, UsageError

COST = StoredCost(
    configuration="store refs", table="headline", flow="online-dpo", iteration_bytes=1000, readers_own_a_copy=True,
    copies=10.0, faults=200.0, fixed_seconds=0.5, error=0.1, factor=2.0, machines=3,
)  # fmt: skip
COSTS = MachineCosts("new", copy_seconds=0.1, fault_seconds=0.01)
DESCRIBED = ("--copy-gbps", "10", "--fault-us", "1")
TIME = re.compile(r"^(store driver-queue|store refs|graph shm) +copy +([\d,.]+)", re.MULTILINE)


def test_page_faults_and_the_rest_grow_with_the_bytes():
    assert COST.seconds_on(COSTS, 1000) == pytest.approx(1.0 + 2.0 + 0.5)
    assert COST.seconds_on(COSTS, 2000) == pytest.approx(1.0 + 4.0 + 1.0)


def test_predictions_are_of_the_large_messages_and_the_fastest_is_first():
    slow = msgspec.structs.replace(COST, configuration="slow", copies=90.0)
    other = msgspec.structs.replace(COST, table="microbenchmark")
    predictions = predict.predict(COSTS, [slow, other, COST], 1000)
    assert [item.cost for item in predictions] == [COST, slow]
    assert predictions[0].interval == "1,800 to 7,000"
    (half, _) = predict.predict(COSTS, [slow, COST], 500)
    assert (half.faults, half.fixed_seconds) == (100.0, 0.25)  # as they are in its seconds


def read_times(printed: str) -> dict[str, float]:
    return {name: float(text.replace(",", "")) for name, text in TIME.findall(printed)}


def test_the_price_of_a_page_fault_changes_what_is_predicted(capsys):
    assert predict.main(["--copy-gbps", "10", "--fault-us", "0.01"]) == 0
    cheap = read_times(capsys.readouterr().out)
    assert predict.main(["--copy-gbps", "10", "--fault-us", "5"]) == 0
    dear = read_times(capsys.readouterr().out)
    assert cheap["store driver-queue"] > cheap["store refs"] > cheap["graph shm"]
    factors = [dear[name] / cheap[name] for name in ("store refs", "graph shm")]
    assert min(factors) > 2


def test_another_flow_says_that_nothing_has_checked_it(capsys):
    predict.main([*DESCRIBED, "--flow", "a -> b: x int64 64MB"])
    assert "nothing has checked that" in capsys.readouterr().out
    predict.main([*DESCRIBED])
    assert "nothing has checked that" not in capsys.readouterr().out


@pytest.mark.parametrize(("words", "reason"), [
    (["--copy-gbps", "10"], "give both"),
    (["--fault-us", "1"], "give both"),
    ([*DESCRIBED, "--machine", "a.json"], "--machine: leave it out"),
    (["--copy-gbps", "0", "--fault-us", "1"], "--copy-gbps"),
    (["--copy-gbps", "nan", "--fault-us", "1"], "--copy-gbps"),
    ([*DESCRIBED, "--flow", "a ->"], "a ->"),
])  # fmt: skip
def test_wrong_flags_are_rejected_in_one_line(words, reason):
    with pytest.raises(UsageError, match=reason):
        predict.main(words)


def test_without_a_measured_machine_the_command_that_measures_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(predict, "MACHINES", tmp_path)
    with pytest.raises(UsageError, match="python3 -m dataflow machine"):
        predict.main([])


def test_a_damaged_file_of_costs_is_rejected(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text("{}")
    with pytest.raises(RecordError, match=r"costs\.json has no costs"):
        load_costs(path)


def test_the_stored_costs_are_those_of_the_campaigns():
    stored = load_costs()
    fitted = fit_costs()
    assert stored.campaigns == fitted.campaigns
    for old, new in zip(stored.costs, fitted.costs, strict=True):
        assert old.configuration == new.configuration
        assert [old.copies, old.faults, old.fixed_seconds] == pytest.approx(
            [new.copies, new.faults, new.fixed_seconds], rel=0.01, abs=1e-4
        )
