# SPDX-License-Identifier: Apache-2.0
"""Predict clusters on the command line: what is printed, and what is rejected before anything is computed."""

import pytest

from dataflow.cluster import forecast
from dataflow.commands import predict
from dataflow.errors import UsageError

TEXT = "rollout -> trainer: 100MB"


def run(capsys, *words):
    assert predict.main([*words]) == 0
    return capsys.readouterr().out


def test_a_preset_shows_all_ways_and_says_that_nothing_was_measured(capsys):
    text = run(capsys, "--preset", "router-replay")
    for words in (
        "128 actors on 16 nodes, 6.7 GB per iteration",
        "400 Gbit/s",
        "the driver's core",
        "Not measured: a simulation",
        "An iteration only moves data, and calls actors for that.",
        "with the 128 calls of an iteration",
        "Between nodes, the object store was measured up to 25 Gbit/s.",
        "NeMo-RL#2414",
    ):
        assert words in text
    ways = [line.split("  ")[0] for line in text.splitlines()]
    assert ways.count("through the driver") == 2
    assert ways.count("references") == 2
    assert "collectives (gloo)" in ways
    assert "Ray Direct Transport (gloo)" in ways


@pytest.mark.parametrize(("words", "nodes"), [((), 3), (("--nodes", "5"), 5)])
def test_a_preset_with_fewer_rollouts_has_nodes_for_their_gpus(capsys, words, nodes):
    sizes = ("--rollouts", "16", "--trainers", "8")
    text = run(capsys, "--preset", "router-replay", *sizes, *words)
    assert f"24 actors on {nodes} nodes" in text


def test_a_flow_of_ones_own_gets_copies_nodes_and_a_link(capsys):
    words = ("--rollouts", "8", "--trainers", "2", "--nodes", "3", "--link", "25Gbit")
    text = run(capsys, "--flow", TEXT, *words)
    assert "10 actors on 3 nodes, 0.8 GB per iteration" in text
    assert "25 Gbit/s" in text
    assert "was measured up to" not in text


def test_a_described_machine_is_used(capsys):
    slow = run(capsys, "--nodes", "1", "--copy-gbps", "1", "--fault-us", "10")
    assert "two threads copy 1 GB/s" in slow
    assert "10 µs per page fault" in slow
    words = ("--copy-gbps", "4,100", "--fault-us", "0.3", "--cores", "16")
    fast = run(capsys, "--nodes", "1", *words)
    assert "two threads copy 8 GB/s, all cores together 100 GB/s" in fast
    assert "16 cores" in fast


def test_a_resource_that_one_rollout_fills_is_full_with_any_number(capsys):
    text = run(capsys, "--flow", TEXT, "--nodes", "2")
    [direct] = [line for line in text.splitlines() if line.startswith("collectives")]
    assert direct.split("  ")[-1].strip() == "any number"
    assert "with this many rollouts or more" in text


def test_a_flow_without_rollouts_has_no_size_from_which_on_a_resource_is_full(capsys):
    text = run(capsys, "--nodes", "2")
    assert "no actor named rollout" in text
    assert "with this many rollouts" not in text


def test_placement_changes_which_messages_cross(capsys):
    words = ("--flow", TEXT, "--nodes", "2", "--link", "1gbit", "--placement")
    apart = run(capsys, *words, "spread")
    together = run(capsys, *words, "pack")
    assert "link" in apart
    assert "link" not in together.partition("longest in use")[2].partition("full from rollouts:")[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--link", "400gbit"], "--link: give --nodes or --preset"),
        (["--rollouts", "4"], "--rollouts: give --nodes or --preset"),
        (["--switch", "1tbit"], "--switch: give --nodes or --preset"),
        (["--nodes", "2", "--link", "400"], "give a rate such as 400gbit or 50GB/s"),
        (["--nodes", "2", "--switch", "0gbit"], "give a rate"),
        (["--nodes", "0"], "give 1 to 10000"),
        (["--nodes", "many"], "give a whole number"),
        (["--nodes", "2", "--flow", TEXT, "--rollouts", "0"], "give 1 to 1000"),
        (["--nodes", "2", "--flow", TEXT, "--trainers", "100000"], "give 1 to 1000"),
        (["--nodes", "2", "--rollouts", "4"], "the flow has no actor rollout"),
        (["--nodes", "2", "--placement", "a=1"], "no such actor"),
        (["--nodes", "2", "--flow", "nonsense"], "nonsense"),
        (["--preset", "router-replay", "--flow", TEXT], "leave one of them out"),
        (["--preset", "other"], "other"),
        (["--preset", "router-replay", "--check"], "--check: it measures this machine"),
        (["--preset", "weights-72b", "--rollouts", "500"], "8,000 large messages: give fewer"),
        (["--nodes", "2", "--flow", "a -> b: 1KB"], "no message is larger than 100 KiB"),
        (["--preset", "router-replay", "--copy-gbps", "5"], "--fault-us: give both"),
    ],
)
def test_wrong_flags_are_one_line(words, message):
    with pytest.raises(UsageError) as raised:
        predict.main(words)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_forecast_of_a_preset_simulates_few_sizes_and_none_of_them_twice(capsys, monkeypatch):
    """Each takes some ten milliseconds, and a forecast should take about a second."""
    simulated = []
    simulate = forecast.simulate_case

    def note(case, flow, way):
        simulated.append((way.configuration, case.rollouts))
        return simulate(case, flow, way)

    monkeypatch.setattr(forecast, "simulate_case", note)
    run(capsys, "--preset", "router-replay")
    assert 20 < len(simulated) <= 40
    assert len(set(simulated)) == len(simulated)
