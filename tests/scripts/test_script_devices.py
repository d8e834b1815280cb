# SPDX-License-Identifier: Apache-2.0
"""Test in which memory the scripts send messages, without Ray and without a GPU."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

import ray_cg_simulate_chat_learn_data_flow as graph_script
import simulate_chat_learn_data_flow as store_script
from common.record import ScriptRun


class Message:
    """A message that knows where it lies."""

    def __init__(self, place):
        self.place = place

    def cpu(self):
        return Message("host")


class FakeModel:
    """Answers with a message on its GPU, or in host memory, and notes where its inputs were."""

    def __init__(self, seen):
        def receive(place, *inputs):
            seen.extend(message.place for message in inputs)
            return Message(place)

        self.forward = SimpleNamespace(remote=lambda *inputs: receive("gpu", *inputs))
        self.forward_by_host = SimpleNamespace(remote=lambda *inputs: receive("host", *inputs))


@pytest.mark.parametrize(("transport", "place"), [
    ("driver-queue", "gpu"),  # as in the demo, the driver passes on what lies on its GPU
    ("ref-queue", "host"), ("refs", "host"),
])  # fmt: skip
def test_all_messages_of_a_chain_are_on_gpus_as_in_the_demo_or_in_host_memory(
    monkeypatch, transport, place
):
    monkeypatch.setattr(store_script.ray, "put", lambda value: value)
    monkeypatch.setattr(store_script.ray, "get", lambda value: value)
    monkeypatch.setattr(store_script, "through", lambda edge, message: message)
    seen = []
    models = [FakeModel(seen) for _ in range(3)]
    result = store_script.CHAINS[transport](Message("gpu"), *models)
    assert [*seen, result.place] == [place] * 5


@pytest.fixture
def run_graph(monkeypatch):
    """run_graph(endpoint, graph, **flags) -> the run of the script of the graph, without Ray."""

    def run(endpoint, graph, **flags):
        for name in ("recorded_run", "remove_semaphores", "ray_cluster", "start_models", "ray"):
            monkeypatch.setattr(graph_script, name, MagicMock())
        recorded = ScriptRun()
        graph_script.recorded_run.return_value.__enter__.return_value = recorded
        monkeypatch.setattr(graph_script, "measure_memcpy", lambda *_: [1.0])
        monkeypatch.setattr(graph_script, "measure_host_copies", lambda *_: {})
        monkeypatch.setattr(graph_script, "compile_graph", lambda *_: (graph, None))
        monkeypatch.setattr(graph_script, "ScriptEndpoint", endpoint)
        graph_script.ray.get.side_effect = lambda value: value
        numbers = {"gpus": 3, "sizes": {}, "warmup": 0, "iterations": 1}
        graph_script.main(SimpleNamespace(output="here", **numbers, **flags))
        return recorded

    return run


@pytest.mark.parametrize("transport", ["shm", "nccl", "pickle"])
def test_the_driver_of_a_graph_sends_from_its_gpu_and_receives_on_it(run_graph, transport):
    """With pickle too, so the query and the result are as many copies as with the other transports."""
    calls = []
    endpoint = MagicMock(side_effect=lambda *arguments: calls.append(arguments) or driver)
    driver = MagicMock()
    driver.message.side_effect = lambda number: Message("gpu")
    graph = MagicMock()
    run_graph(endpoint, graph, transport=transport, device="cuda", address=None)
    assert calls == [("driver", {}, "cuda")]
    assert [call.args[0].place for call in graph.execute.call_args_list] == ["gpu"] * 2
    assert driver.receive.call_args_list == [((graph.execute.return_value,),)] * 2


@pytest.mark.parametrize("address", [None, "127.0.0.1:6379"])
def test_a_script_notes_what_other_programs_used_if_it_has_started_all_processes(
    run_graph, address
):
    run = run_graph(MagicMock(), MagicMock(), transport="shm", device="cpu", address=address)
    is_known = address is None
    assert (run.other_cores is not None, run.idle_cores is not None) == (is_known, is_known)


@pytest.mark.parametrize("transport", ["shm", "nccl", "pickle"])
def test_no_message_of_a_graph_has_a_device_in_its_hint(transport):
    """Ray uses the one that is registered last, so a hint for the driver would move the query to its CPU too."""
    nodes = MagicMock()
    nodes.with_tensor_transport.return_value = nodes
    for model in (nodes.policy, nodes.reference, nodes.reward):
        model.forward.bind.return_value = nodes
        model.pass_through.bind.return_value = nodes
    graph_script.CHAINS[transport](nodes, nodes.policy, nodes.reference, nodes.reward)
    hints = nodes.with_tensor_transport.call_args_list
    assert len(hints) == (0 if transport == "pickle" else 4)
    assert all(not hint.kwargs for hint in hints)
