"""A flow that is not online DPO: the scripts must know it from its value alone."""

import pytest
from conftest import KILOBYTES

# The query feeds all three roles, one role reads from all, and what feeds it returns to the driver too.
SECOND_FLOW = """
from common.flow.flow import DRIVER, FLOWS, Flow, Role

def two_judges(sizes):
    return Flow(
        name="two-judges",
        title="two judges",
        query_bytes=sizes.query_bytes,
        roles=(
            Role("left", (DRIVER,), sizes.policy_bytes),
            Role("right", (DRIVER,), sizes.reference_bytes),
            Role("verdict", ("right", DRIVER, "left"), sizes.reward_bytes),
        ),
        returns=("verdict", "left"),
    )

FLOWS["two-judges"] = two_judges
"""
STORE = "simulate_chat_learn_data_flow"
GRAPH = "ray_cg_simulate_chat_learn_data_flow"
TORCH = "torch_simulate_chat_learn_data_flow"
EDGES = {
    "driver -> left": 8192,
    "driver -> right": 8192,
    "right -> verdict": 16384,
    "driver -> verdict": 8192,
    "left -> verdict": 24576,
    "verdict -> driver": 40960,
    "left -> driver": 24576,
}


@pytest.mark.parametrize(
    ("module", "transport"),
    [
        (STORE, "refs"),
        (STORE, "ref-queue"),
        (STORE, "driver-queue"),
        (GRAPH, "zero-copy"),
        (GRAPH, "shm"),
        (TORCH, "gloo"),
        (TORCH, "memcpy"),
    ],
    ids=lambda value: value,
)
def test_a_flow_of_another_shape_runs_with_every_kind_of_transport(run_script, write_script, module, transport):
    script = write_script(module, SECOND_FLOW)
    flags = ("--flow", "two-judges", "--transport", transport, "--iterations", "3", "--warmup", "1", *KILOBYTES)
    finished = run_script(script, *flags)
    assert finished.code == 0, finished.stderr
    case = finished.case
    assert (case["flow"], case["status"], case["wrong_bytes"], len(case["seconds"])) == ("two-judges", "ok", 0, 3)
    assert {f"{edge['from']} -> {edge['to']}": edge["bytes"] for edge in case["edges"]} == EDGES
    assert list(case["path"]) == list(EDGES)
    assert case["bytes_per_trip"] == sum(EDGES.values())
    assert case["payload_copied"] is (transport != "zero-copy")
