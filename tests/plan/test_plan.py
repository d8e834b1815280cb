"""Test what follows from the flags: workers, GPUs, the flow that runs, and the record."""

from dataclasses import replace

from conftest import KILOBYTES

from dataflow.plan.plan import resolve_plan


def test_actors_are_on_the_cpu_or_get_the_largest_equal_share_of_a_gpu_that_fits(make_plan):
    plan = make_plan("store", *KILOBYTES)
    assert (plan.gpus_per_actor, {plan.gpu_of(name) for name in plan.worker_names}) == (0, {"cpu"})
    plan = replace(plan, device="cuda", gpus=2)
    assert [plan.gpu_of(name) for name in plan.worker_names] == ["cuda:0", "cuda:0", "cuda:1", "cuda:0"]
    for actors in (1, 2, 3, 7):
        plan = make_plan("store", "--flow", "chain", "--actors", str(actors))
        for gpus in range(1, 9):
            share = replace(plan, device="cuda", gpus=gpus).gpus_per_actor
            assert 0 < share <= 1 and int(10_000 // (share * 10_000)) * gpus >= actors
            assert share == {(3, 2): 0.5, (3, 1): 0.3333, (7, 3): 0.3333, (3, 3): 1}.get((actors, gpus), share)


def test_the_record_has_workload_configuration_and_table(make_plan):
    plan = make_plan("graph", "--transport", "mapped", "--copy-out", "--timeout", "7", "--trace", *KILOBYTES)
    record = plan.new_record()
    assert (record.suite, record.table, record.traced, record.runs) == ("", "stages", True, [])
    assert (record.workload.flow, record.workload.message, record.arguments["timeout"]) == ("online-dpo", "flat", 7)
    assert record.workload.sizes == {"batch_size": 4, "prompt_seq_len": 256, "max_new_tokens": 0, "num_samples": 2}
    assert (record.configuration.name, record.configuration.device) == ("graph mapped --copy-out", "cpu")
    plan, _ = resolve_plan("graph", plan.options, "quick", "configurations")
    assert (plan.new_record().suite, plan.new_record().table) == ("quick", "configurations")
    given = make_plan("store", "--flow", "ppo", "--prompt-len", "512").workload
    assert given == make_plan("store", "--flow", "ppo").workload
