"""Payloads that users know: their bytes, parts of them, and what is given beside them."""

import pytest
from made_records import a_record

from common.analysis.results import results_of
from common.flow.catalogue import build_flow
from common.plan.command_line import describe_presets, parse
from common.plan.presets import PRESETS
from common.run.settle import settle
from common.text.tables import table

MIB = 2**20


def edges(*flags):
    options = parse("", "store", flags)
    return [edge.bytes for edge in build_flow(options.flow, options.sizes, options.message).edges if edge.bytes > 8]


def test_presets_have_the_bytes_that_their_sources_say():
    assert [count // MIB for count in edges("--preset", "demo")] == [32, 96, 96, 64, 160]
    assert edges("--preset", "openrlhf-256x16") == edges("--preset", "transferqueue-perftest") == [256 * MIB]
    # 16 R + 24 T bytes a sample of verl's.
    assert edges("--preset", "verl-gbs128") == [1024 * (16 * 8192 + 24 * 10240)]
    assert edges("--preset", "verl-dapo") == [1024 * (16 * 10240 + 24 * 18432)]
    assert edges("--preset", "chatlearn-7b-vllm") == [4 * count for count in edges("--preset", "chatlearn-7b-megatron")]


@pytest.mark.parametrize("name", PRESETS)
def test_a_part_of_a_preset_has_that_part_of_its_bytes_and_is_recorded_as_such(name, no_gpu):
    part = edges("--preset", name, "--scale", "0.25")
    assert part == pytest.approx([count / 4 for count in edges("--preset", name)])
    record = settle("store", parse("", "store", ["--preset", name, "--scale", "0.25"]))[0].record()
    assert (record.arguments["preset"], record.arguments["scale"]) == (name, 0.25)
    assert f"{name}: {PRESETS[name].rows} rows" in describe_presets()


def test_presets_are_listed_with_their_fields():
    text = describe_presets()
    for words in ("nested_3", "old_log_probs", "rollout_log_probs", "driver -> policy ", "128 x [512..512]"):
        assert words in text


@pytest.mark.parametrize(("scale", "label"), [(0.25, "store refs (0.25 of verl-dapo)"), (1.0, "store refs")])
def test_a_part_of_a_preset_is_labelled_where_its_row_is_shown(scale, label):
    record = a_record("refs", [1.0, 1.1])
    record.arguments |= {"preset": "verl-dapo", "scale": scale}
    (line,) = table(results_of([record])).splitlines()[1:]
    assert line.split("  ")[0] == label


def test_what_is_given_beside_a_preset_counts_more():
    options = parse("", "store", ["--preset", "chatlearn-7b-megatron", "--rows", "3", "--iterations", "7"])
    assert (options.flow, options.rows, options.prompt_len, options.iterations) == ("ppo", 3, "512", 7)
