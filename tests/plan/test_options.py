# SPDX-License-Identifier: Apache-2.0
"""Test the flags: what --help shows, what is read, what is rejected. The pages only have commands that can be read."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, parse_options, reject_options

from dataflow.catalogue.catalogue import VARIANTS
from dataflow.commands import compare, machine, predict, report, run
from dataflow.errors import UsageError
from dataflow.flows.catalogue import build_flow
from dataflow.plan import command_line
from dataflow.plan.command_line import (
    describe_flags,
    flag_name,
    make_options,
    parse_configuration,
    parse_flags,
    preset_flags,
)
from dataflow.plan.options import PRESETS

CLUSTER = ("--address", "127.0.0.1:6379")
PARSERS = {
    "compare": compare.parse_arguments,
    "machine": machine.parse_command,
    "predict": predict.parse_command,
    "report": report.parse_command,
}
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
COMMAND = re.compile(r"python3? -m dataflow (\w+)((?: (?!#)[^`\n\\]*\\\n)*(?: (?!#)[^`\n]*)?)")
pytestmark = pytest.mark.usefixtures("no_gpu")


def parse(*flags, runtime="store"):
    (options,) = parse_options(runtime, *flags)
    return options


def help_text(capsys, *words):
    parser = command_line.VerbParser("Question", "verb")
    parser.add_argument("--own", help="a flag of the verb")
    with pytest.raises(SystemExit) as exited:
        command_line.parse_with_options(parser, words)
    assert exited.value.code == 0
    return capsys.readouterr().out


def shown_flags(text):
    return set(re.findall(r"\n  (--[a-z-]+)", text))


def test_help_has_the_common_flags_and_names_groups_that_have_every_other_flag(capsys):
    text = help_text(capsys, "--help")
    assert shown_flags(text) == {"--own", *map(flag_name, command_line.COMMON)}
    one_line = " ".join(text.split())
    groups = re.search("More flags: --help GROUP, with one of (.*), all", one_line)[1].split(", ")
    by_group = {
        group: shown_flags(help_text(capsys, "--help", group)) for group in [*groups, "all"]
    }
    every = by_group.pop("all")
    assert every == {"--own", *describe_flags()} == set.union({"--own"}, *by_group.values())
    assert all(by_group.values())
    assert "--inject" not in every
    with pytest.raises(UsageError, match="--help transpor: unknown group: did you mean transport"):
        help_text(capsys, "--help", "transpor")


@pytest.mark.parametrize(("runtime", "flags", "reason"), [
    ("store", ["--batch-size", "0"], "--batch-size: '0' is not possible: give 1 to 1000000"),
    ("store", ["--prompt-seq-len", "1" + "0" * 400], "--prompt-seq-len"),
    ("store", ["--batch", "4"], "did you mean --batch-size?"),
    ("torch", ["--check-every", "3", "--in-flight", "4"], "a verification after 3 iterations: give 3 or less"),
    ("store", ["--as-sent", "--message", "packed"], "packed messages have what a view shows"),
    ("store", ["--flow", "a -> b: x int64 8B", "--message", "jagged"], "has a list of tensors: leave"),
    ("store", ["--flow", "chain", "--message", "packed"], "one tensor already: leave it out"),
    ("store", ["--model-seconds", "trainer=1s"], "there is no actor trainer: give policy, reference, reward"),
    ("torch", ["--timeout", "9" * 9], "is too large: give 86400 s or less"),
    ("store", ["--threads", "9999"], "cores: give"),
    ("store", ["--transport", "refs", "--copy-out"], "readers of store refs own a copy already"),
    ("graph", ["--transport", "zero-copy", "--keep"], "get views: give --copy-out too, or leave it out"),
    ("rdt", ["--transport", "nixl-pull", "--keep"], "readers of rdt nixl-pull may keep what they get without it"),
    ("rdt", ["--transport", "nixl-pull", "--reuse-buffers", "--keep"], "have no choice of what they may keep"),
    ("store", ["--transport", "bytes", "--zero-copy"], "bytes cannot be measured with it: use store refs --zero-copy"),
    ("store", ["--transport", "driver-queue", "--zero-copy"], "cannot be measured with it: use store refs --zero-copy"),
    ("graph", ["--transport", "mapped", *CLUSTER], "runs on one machine"),
    ("store", ["--address", "127.0.0.1:1"], "no answer"),
    ("torch", ["--ray-defaults"], "--ray-defaults is for a private Ray cluster: leave it out"),
    ("graph", [*CLUSTER, "--ray-defaults"], "--ray-defaults is for a private Ray cluster: leave it out"),
    ("store", ["--in-flight", "2"], "driver-queue holds 1 of online-dpo: give 1, or choose another configuration"),
    ("graph", ["--transport", "shm", "--in-flight", "6"], "shm holds 5 of online-dpo: give 5"),
    ("graph", ["--transport", "cuda-ipc", "--in-flight", "5"], "cuda-ipc holds 4 of online-dpo: give 4"),
    ("graph", [*CLUSTER, "--placement", "critic=1"], "critic=1: give a node from 0 for one of policy, reference"),
    ("graph", [*CLUSTER, "--placement", "policy=-1"], "policy=-1: give a node from 0 for"),
    ("graph", [*CLUSTER, "--placement", "policy=a"], "--placement policy=a: give a whole number"),
    ("graph", [*CLUSTER, "--placement", "sprad"], "--placement sprad: give pack, spread or ACTOR=NODE,..."),
    ("graph", ["--placement", "policy=1"], "a private cluster has one node: give --address too"),
    ("torch", ["--sweep", "payloda=1,2"], "NAME one of batch-size, actors, iteration-bytes, fields, in-flight"),
    ("torch", ["--sweep", "iteration-bytes=1KiB:64KiB:4x"], "give VALUE,VALUE,..."),
    ("torch", ["--sweep", "in-flight=1,4", "--in-flight", "1"], "leave one of them out"),
    ("torch", ["--sweep", "in-flight=1,65"], "give 1 to 64"),
    ("store", ["--device", "cuda"], "--device cuda: no GPU found. Use --device cpu."),
    ("graph", ["--transport", "nccl", "--device", "cuda"], "no GPU found, and nccl needs one: choose another"),
    ("rdt", ["--transport", "cuda-ipc", "--device", "cuda"], "no GPU found, and cuda-ipc needs one: choose another"),
], ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "")  # fmt: skip
def test_flags_that_cannot_be_used_are_rejected_in_one_line(runtime, flags, reason):
    assert reason in reject_options(runtime, *flags)


def test_values_that_follow_from_other_flags():
    assert (parse().transport, parse().group_size, parse().placement) == ("driver-queue", 1, "pack")
    assert parse("--in-flight", "4").group_size == 4
    assert parse("--in-flight", "4", "--check-every", "8").group_size == 8
    assert (parse(*CLUSTER).placement, parse(*CLUSTER, "--placement", "pack").placement) == (
        "spread",
        "pack",
    )
    assert parse("--as-sent").message == "fields"
    assert parse(*CLUSTER).arguments["address"] is True  # records have no addresses


def edge_bytes(*flags):
    options = parse(*flags)
    return [
        edge.bytes
        for edge in build_flow(options.flow, options.sizes, options.message).edges
        if edge.bytes > 8
    ]


def test_presets_have_the_bytes_of_their_sources():
    assert [count >> 20 for count in edge_bytes("--flow", "demo")] == [32, 96, 96, 64, 160]
    assert (
        edge_bytes("--flow", "openrlhf-256x16")
        == edge_bytes("--flow", "transferqueue-perftest")
        == [2**28]
    )
    assert edge_bytes("--flow", "verl-dapo") == [
        1024 * (16 * 10240 + 24 * 18432)
    ]  # 16 R + 24 T bytes per sample
    for name in PRESETS:
        part = edge_bytes("--flow", name, "--batch-size", str(PRESETS[name]["samples"] // 4))
        assert part == pytest.approx([count / 4 for count in edge_bytes("--flow", name)])
    options = parse("--flow", "slime-lists", "--batch-size", "3", "--prompt-len", "64")
    assert (options.flow, options.batch_size, options.prompt_len, options.response_len) == (
        "slime",
        3,
        "64",
        "512",
    )
    assert options.preset == "slime-lists"


def test_the_values_in_the_files_of_presets_and_variants_are_those_that_the_command_line_gives():
    """They are not parsed, so their types, bounds and choices are checked here."""
    for name in PRESETS:
        values = preset_flags(name, None)
        words = []
        for flag, value in values.items():
            words += [flag_name(flag), str(value)]
        assert parse_flags(words) == values
    for variant in VARIANTS:
        assert parse_configuration(variant.name) == (variant.transport, variant.flags)


def make_flow(options):
    return build_flow(options.flow, options.sizes, options.message)


def test_a_sweep_has_options_for_each_value():
    for text, values, table in (
        ("iteration-bytes=1KiB,64KiB", [2**10, 2**16], "sweep-iteration-bytes"),
        ("batch-size=8,2,8,4", [2, 4, 8], "sweep-batch-size"),
        ("in-flight=1,2", [1, 2], "in-flight"),
    ):
        name, options = (
            text.partition("=")[0].replace("-", "_"),
            parse_options("torch", "--sweep", text),
        )
        assert [getattr(point, name) for point in options] == values
        assert {point.table for point in options} == {table}


@pytest.mark.parametrize("preset", ["demo", "verl-dapo"])
def test_a_sweep_of_samples_sweeps_those_of_a_preset(preset):
    options = parse_options("torch", "--flow", preset, "--sweep", "batch-size=64,128")
    small, large = [make_flow(point).bytes_per_iteration for point in options]
    assert large == pytest.approx(2 * small, rel=0.01)


def test_the_manifest_for_kuberay_runs_a_command_of_the_suite_on_the_nodes_that_it_asks_for():
    job = yaml.safe_load((ROOT / "examples" / "rayjob.yaml").read_text())["spec"]
    _, words = job["entrypoint"].split("python -m dataflow run ")
    arguments, given = run.parse_arguments(shlex.split(words))
    (configuration,) = arguments.configurations
    transport, flags = parse_configuration(configuration)
    (options,) = make_options(transport, given | flags)
    cluster = job["rayClusterSpec"]
    nodes = 1 + sum(group["replicas"] for group in cluster["workerGroupSpecs"])
    assert {*options.nodes_of_actors.values()} == {*range(nodes)}
    requirements = (ROOT / "requirements.txt").read_text()
    assert re.findall(r"^ray\S*==(\S+)", requirements, re.MULTILINE) == [cluster["rayVersion"]]


# What stands in the commands of pages, and a value of it.
VALUES = {
    "\\\n": " ",
    '"${configurations[@]}"': "'store refs'",
    "$run": "1",
    "$FLOW": "a -> b: 8MB",
    "$more": "",
}


@pytest.mark.study
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_can_be_parsed(page, monkeypatch):
    monkeypatch.setattr(run, "check_arguments", lambda _: None)  # of files that the reader has
    monkeypatch.setattr(report, "find_newest", lambda _: [Path("record.json")])
    for verb, text in COMMAND.findall(page.read_text()):
        if "[" in text or "..." in text:  # it only shows the form of a command
            continue
        filled = text
        for variable, value in VALUES.items():
            filled = filled.replace(variable, value)
        words = shlex.split(filled, comments=True)
        if verb == "run":
            arguments, given = run.parse_arguments(words)
            assert arguments.configurations or arguments.suite, words
            for configuration in arguments.configurations:
                transport, flags = parse_configuration(configuration)
                make_options(transport, given | flags)
        elif verb in PARSERS:
            PARSERS[verb](words)
        else:
            assert verb in ("list", "nodes"), words


def test_one_iteration_between_verifications_is_the_configuration_without_the_flag():
    assert parse("--check-every", "1").configuration_flags == parse().configuration_flags == {}
    assert parse("--check-every", "8").configuration_flags == {"check_every": 8}
    both = parse("--in-flight", "2", "--check-every", "2").configuration_flags
    assert both == parse("--in-flight", "2").configuration_flags == {"in_flight": 2}
    several = parse("--in-flight", "2", "--check-every", "8").configuration_flags
    assert several == {"check_every": 8, "in_flight": 2}
