"""The flags: what each script has, and what is refused before anything starts."""

import re

import psutil
import pytest

from common.errors import UsageError
from common.flow.catalogue import build_flow
from common.plan import refusals
from common.plan.command_line import parse
from common.plan.faults import WHATS, Fault
from common.record.rows import DEFAULTS, RUNTIMES, transports
from common.run.settle import settle

KILOBYTES = ("--batch-size", "4", "--prompt-seq-len", "256")
pytestmark = pytest.mark.usefixtures("no_gpu")
every_runtime = pytest.mark.parametrize("runtime", RUNTIMES)


def refusal(runtime, *flags):
    """The one line that says why."""
    with pytest.raises(UsageError) as error:
        settle(runtime, parse("", runtime, flags))
    assert str(error.value)
    assert "\n" not in str(error.value)
    return str(error.value)


def shown(capsys, runtime):
    """Of a runtime's --help, what stands before the options, and each option's entry with its blanks made one."""
    with pytest.raises(SystemExit) as exited:
        parse("What is it for?", runtime, ["--help"])
    assert exited.value.code == 0
    description, entries = capsys.readouterr().out.split("\noptions:\n")
    entries = [" ".join(entry.split()) for entry in re.split(r"\n  (?=-)", entries)]
    return description, {entry.split(" ")[0]: entry for entry in entries}


def test_all_scripts_have_the_same_flags_and_defaults_but_for_the_transport(capsys):
    found = [shown(capsys, runtime)[1] for runtime in RUNTIMES]
    for entries in found:
        del entries["--transport"]
    assert "--object-store-bytes" in found[0]
    assert "--inject" not in found[0]
    assert found[1:] == found[:1] * 3


@every_runtime
def test_help_explains_every_transport_of_the_catalogue_and_says_which_is_the_default(capsys, runtime):
    description, entries = shown(capsys, runtime)
    assert re.findall(r"--transport (\S+) +\w", description) == list(transports(runtime))
    assert f"(default: {DEFAULTS[runtime] or 'auto'})" in entries["--transport"]


def test_the_defaults_are_the_demos():
    asked = parse("", "store", [])
    assert (asked.flow, asked.transport, asked.iterations, asked.warmup) == ("online-dpo", "ref-queue", 100, 3)
    flow = build_flow(asked.flow, asked.sizes)
    assert [edge.bytes / 2**20 for edge in flow.edges] == [32, 96, 96, 64, 160]


TRAINED = ("--message", "fields", "--sink", "trainer")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--batch-size", "0"], "--batch-size"),
        (["--max-new-tokens", "-1"], "--max-new-tokens"),
        (["--iterations", "0"], "--iterations"),
        (["--iterations", "1" + "0" * 9], "give 10000000 or less"),
        (["--episode", "0"], "--episode"),
        (["--episode", "3", "--in-flight", "4"], "--episode 3: fewer than the 4 of --in-flight"),
        (["--episode", "8", "--in-flight", "4"], "give --in-flight 8 with --episode 8, or leave it out"),
        (["--episode", "8", "--in-flight", "8", "--iterations", "5"], "--relay-episodes, 8 or more"),
        (["--episode", "200"], "--iterations 100: the operations of a whole episode are recorded"),
        (["--in-flight", "0"], "--in-flight"),
        (["--in-flight", "65"], "give 64 or less"),
        (["--placement", "apart"], "'apart'"),
        (["--message", "flat"], "'flat'"),
        (["--warmup", "-1"], "--warmup"),
        (["--threads", "0"], "--threads"),
        (["--threads", "100000"], "cores: give"),
        (["--timeout", "0"], "--timeout"),
        (["--timeout", "nan"], "--timeout"),
        (["--timeout", "inf"], "--timeout"),
        (["--timeout", "soon"], "'soon' is not a number of seconds"),
        (["--batch-size", "many"], "'many' is not a whole number"),
        (["--batch-size", "1.5"], "'1.5' is not a whole number"),
        (["--batch-size", ""], "'' is not a whole number"),
        (["--batch-size", "4\n5"], "not a whole number"),
        (["--batch-size"], "--batch-size"),
        (["--batch-size", "3", "--prompt-seq-len", "5", "--num-samples", "1"], "odd"),
        (["--batch-size", "10000000000"], "lower --batch-size or --prompt-seq-len"),
        (["--batch-size", "10000000000", "--in-flight", "2"], "or --in-flight"),
        (["--prompt-seq-len", "1" + "0" * 400], "--prompt-seq-len"),
        (["--flow", "ppo", "--rows", "100001"], "give 100000 or less"),
        (["--flow", "ppo", "--prompt-len", "10000000000"], "lengths go from 1 to 1048576"),
        (["--flow", "ppo", "--rows", "100000", "--prompt-len", "1000000"], "lower --rows or --prompt-len"),
        (["--flow", "ppo", "--prompt-len", "gauss:3"], "give 389, lognormal:200:0.6:512 or uniform:10:512"),
        (["--flow", "ppo", "--padding", "vllm", "--seq-length", "1000"], "a sample has 1024 tokens"),
        (["--flow", "ppo", "--padding", "left"], "'left'"),
        (["--as-shipped", "--message", "packed"], "packing copies what a view shows"),
        (["--as-shipped", "--flow", "dpo"], "ChatLearn ships no views in dpo: leave it out"),
        (["--as-shipped", "--flow", "slime"], "ChatLearn ships no views in slime: leave it out"),
        # 4096 rows of views of a tensor of 4096 x 2047 float32 are 128 GiB.
        (
            ["--flow", "ppo", "--as-shipped", "--rows", "4096", "--prompt-len", "1024", "--response-len", "1024"],
            "are free",
        ),
        (["--replicas", "policy=0"], "each at least 1"),
        (["--replicas", "critic=2"], "there is no model critic in online-dpo: give policy, reference, reward"),
        (["--ranks", "policy"], "give policy=2,reference=3"),
        (["--replicas", "policy=65"], "policy has 65 processes: give 64 or fewer"),
        (["--replicas", "reward=9", "--ranks", "reward=8"], "reward has 72 processes: give 64 or fewer"),
        (["--generation-batch", "policy=4"], "a flat tensor has no rows to cut: give --message fields"),
        (["--generation-batch", "policy=4", "--message", "packed"], "has no rows to cut: give --message fields"),
        (["--generation-batch", "a=4", "--flow", "a -> driver: x int64 8MB, y int64 8kB"], "every field that a reads"),
        (["--generation-batch", "trainer=4", "--flow", "slime"], "every field that trainer reads and sends in slime"),
        (["--transport", "refs", "--replicas", "policy=2"], "is for the object store's ref-queue alone"),
        (["--transport", "refs", "--keep-queues"], "is for the object store's ref-queue alone"),
        (["--sink", "trainer"], "a flat tensor has no samples"),
        (["--epochs", "2"], "give --sink trainer too"),
        (["--message", "fields", "--train-micro-batch", "4"], "give --sink trainer too"),
        (["--sink", "trainer", "--episode", "4"], "give --in-flight 4"),
        (["--sink", "trainer", "--flow", "slime"], "what slime returns is no dict of fields with one entry a sample"),
        (["--sink", "trainer", "--flow", "a -> driver: x int64 8MB, y int64 8kB"], "give one of ChatLearn's flows"),
        (["--sink", "trainer", "--train-global-batch", "4"], "give a multiple of 8"),
        ([*TRAINED, "--relay-episodes", "3", "--iterations", "2"], "--relay-episodes, 3 or more"),
        (["--transport", "refs", *TRAINED, "--epochs", "2"], "is for the object store's ref-queue alone"),
        (["--relay-sample", "nowhere.py:latest"], "cannot read nowhere.py"),
        ([*TRAINED, "--model-seconds", "critic=1s"], "there is no model critic in online-dpo: give policy, reference"),
        (["--model-seconds", "trainer=1s"], "trainer with --sink trainer"),
        (["--model-seconds", "policy=soon"], "soon"),
        (["--flow", "nowhere.py:flow"], "cannot read nowhere.py"),
        (["--object-store-bytes", "1000"], "--object-store-bytes"),
        (["--object-store-bytes", "80000000"], "raise --object-store-bytes"),
        (["--object-store-bytes", "100000000000000"], "lower --object-store-bytes"),
        (["--flow", "offline-dpo"], "online-dpo"),
        (["--flow", "chain", "--roles", "0"], "--roles"),
        (["--flow", "chain", "--roles", "65"], "give 64 or less"),
        (["--flow", "chain", "--payload-bytes", "0"], "--payload-bytes"),
        (["--flow", "chain", "--payload-bytes", "100000000000000"], "lower --payload-bytes"),
        (["--flow", "chain", "--batch-size", "4"], "--batch-size is for online-dpo: leave it out, or give chain"),
        (["--flow", "round-trip", "--roles", "2"], "--roles is for chain, scatter-gather"),
        (["--flow", "ppo", "--payload-bytes", "8"], "leave it out, or give ppo --rows, --prompt-len, --response-len"),
        (["--rows", "2"], "--rows is for ppo"),
        (["--flow", "chain", "--message", "packed"], "one tensor already: leave it out"),
        (["--transport", "pigeon"], "pigeon is none of payload-queue, driver-queue"),
        (["--transport", "ref"], "did you mean refs?"),
        (["--transport", "shm"], "run ray_cg_simulate_chat_learn_data_flow.py"),
        (["--transport", "gloo"], "ray_rdt_simulate_chat_learn_data_flow.py or torch_simulate_chat_learn_data_flow.py"),
        (["--transprot", "refs"], "did you mean --transport?"),
        (["--duration", "10s", "--iterations", "5"], "--duration says when to stop, so does --iterations"),
        (["--duration", "soon"], "'soon' is not a number of seconds"),
        (["--flow", "a -> b"], "write it as"),
        (["--flow", "a -> b: 12XB"], "the unit XB is unknown"),
        (["--flow", "a -> b: 1MB", "--roles", "2"], "--roles is for chain, scatter-gather: leave it out"),
        (["--flow", "a -> b: 1MB", "--message", "packed"], "one tensor already"),
        (["--flow", "chain", "--payload-bytes", "1.5B"], "not a whole number of bytes"),
        (["--address", "cluster"], "give ip:port"),
        (["--address", "127.0.0.1:1"], "nobody answers there"),
        (["--frobnicate"], "--frobnicate"),
        (["--batch", "4"], "did you mean --batch-size?"),
        (["positional"], "positional"),
        (["two\nlines"], "two"),
        (["--device", "tpu"], "'tpu'"),
        (["--device", "cuda"], "use --device cpu"),
        (["--inject", "nobody:1:die"], "nobody is none of the flow's tasks"),
        (["--inject", "policy:1:vanish"], "WHO:TRIP:WHAT"),
        (["--inject", "policy:1:delay"], "delay=5ms"),
        (["--inject", "policy:1:die=5ms"], "WHO:TRIP:WHAT"),
        (["--reuse-buffers"], "--reuse-buffers is for the compiled graph's shm"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_cannot_run_is_refused_in_one_line(flags, reason):
    assert reason in refusal("store", *flags)


FARTHER = ("--address", "127.0.0.1:6379")


@pytest.mark.parametrize(
    ("runtime", "flags", "reason"),
    [
        ("store", ("--transport", "refs", "--copy-out"), "--copy-out is for mapped transports: refs hands out copies"),
        ("graph", ("--transport", "shm", "--copy-out"), "shm hands out copies"),
        ("torch", ("--transport", "memcpy", "--copy-out"), "memcpy hands out copies"),
        ("store", ("--transport", "bytes", "--zero-copy"), "maps tensors, not bytes"),
        ("graph", ("--transport", "shm", "--zero-copy"), "in the compiled graph give --transport zero-copy"),
        ("torch", ("--zero-copy",), "are Ray's: leave them out"),
        ("torch", ("--placement", "spread"), "are Ray's: leave them out"),
        ("torch", FARTHER, "are Ray's: leave them out"),
        ("torch", ("--object-store-bytes", "100000000"), "are Ray's: leave them out"),
        ("graph", ("--transport", "zero-copy", "--reuse-buffers"), "--reuse-buffers is for the compiled graph's shm"),
        ("graph", ("--transport", "mapped", *FARTHER), "mapped is one machine's memory: leave --address out"),
        ("rdt", ("--transport", "mapped", *FARTHER), "mapped is one machine's memory: leave --address out"),
        ("store", ("--object-store-bytes", "100000000", *FARTHER), "has its size already: leave it out"),
        ("store", ("--transport", "driver-queue", "--in-flight", "2"), "holds 1 trip under way: give 1"),
        ("torch", ("--transport", "memcpy", "--in-flight", "4"), "--in-flight 4: memcpy holds 1 trip under way"),
        ("graph", ("--transport", "shm", "--in-flight", "6"), "shm holds 5 trips of online-dpo under way: give 5"),
        ("graph", ("--trace", "t", *FARTHER), "--trace needs one clock"),
        ("graph", ("--trace", "t", "--placement", "spread"), "--trace needs one clock"),
        ("graph", ("--trace", "t", "--output", "t"), "--trace is the file of --output"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_a_row_cannot_use_is_refused_with_what_to_do(runtime, flags, reason):
    assert reason in refusal(runtime, *flags, *KILOBYTES)


@pytest.mark.parametrize(("runtime", "transport"), [("torch", "gloo"), ("torch", "memcpy"), ("rdt", "gloo")])
def test_host_memory_is_moved_on_a_machine_with_gpus_too(monkeypatch, runtime, transport):
    monkeypatch.setattr("common.runtime.gpus.count", lambda: 4)
    assert "host memory" in refusal(runtime, "--transport", transport, "--device", "cuda", *KILOBYTES)
    plan, _ = settle(runtime, parse("", runtime, ["--transport", transport, *KILOBYTES]))
    assert (plan.device, plan.gpus) == ("cpu", 0)


@pytest.mark.parametrize(("text", "refused"), [("always [madvise] never", False), ("always madvise [never]", True)])
def test_huge_pages_are_refused_where_the_machine_has_them_switched_off(monkeypatch, tmp_path, text, refused):
    monkeypatch.setattr(refusals, "HUGE_PAGES", tmp_path / "enabled")
    assert "write madvise into" in refusal("store", "--huge-pages", *KILOBYTES)  # it cannot be known
    refusals.HUGE_PAGES.write_text(text)
    if refused:
        assert "write madvise into" in refusal("store", "--huge-pages", *KILOBYTES)
    else:
        assert settle("store", parse("", "store", ["--huge-pages", *KILOBYTES]))[0].options.huge_pages


@every_runtime
def test_what_does_not_fit_into_memory_is_refused_by_every_script(monkeypatch, runtime):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 2**30}))
    assert "lower --batch-size" in refusal(runtime)


def test_trips_in_flight_are_checked_when_they_have_all_come_unless_an_episode_says_otherwise():
    assert parse("", "store", ["--in-flight", "4"]).trips_in_a_row == 4
    assert parse("", "store", ["--in-flight", "4", "--episode", "8"]).trips_in_a_row == 8
    assert parse("", "store", ["--in-flight", "4"]).slots == 6
    assert parse("", "store", []).slots == 3


def test_an_episode_that_is_asked_for_has_new_queues_unless_they_shall_be_kept():
    asked = (
        ["--episode", "1"],
        ["--episode", "4", "--in-flight", "4"],
        ["--in-flight", "4"],
        ["--episode", "2", "--keep-queues"],
        [],
    )
    assert [parse("", "store", flags).new_queues for flags in asked] == [True, True, False, False, False]


def test_the_demos_tensors_are_flat_unless_fields_are_asked_for():
    for flags, bare in (
        ([], True),
        (["--message", "fields"], False),
        (["--as-shipped"], False),
        (["--message", "packed"], False),
    ):
        plan, _ = settle("store", parse("", "store", flags))
        assert plan.asked.bare is bare
        assert (
            plan.record().row.message
            == {0: "bare", 1: "fields", 2: "fields", 3: "packed"}[
                ([], ["--message", "fields"], ["--as-shipped"], ["--message", "packed"]).index(flags)
            ]
        )


def test_flags_that_make_another_row_are_told_from_the_others():
    asked = parse("", "graph", ["--copy-out", "--in-flight", "4", "--iterations", "7", "--output", "x"])
    assert asked.row_flags == {"copy_out": True, "in_flight": 4}
    assert parse("", "graph", ["--in-flight", "2", "--episode", "6"]).row_flags == {"episode": 6, "in_flight": 2}
    assert parse("", "graph", []).row_flags == {}


def test_actors_of_a_cluster_are_spread_unless_they_shall_not_be():
    assert parse("", "store", FARTHER).placement == "spread"
    assert parse("", "store", [*FARTHER, "--placement", "pack"]).placement == "pack"
    assert parse("", "store", []).placement == "pack"


@pytest.mark.parametrize("what", sorted({*WHATS} - {"delay"}))
def test_a_fault_is_read_from_its_text(what):
    fault = Fault("reference", 6, what)
    assert parse("", "store", ["--inject", f"reference:6:{what}"]).inject == fault
    assert Fault.parse(str(fault)) == fault


def test_a_delay_says_how_long_and_is_in_the_record(make_plan):
    text = "reference:6:delay=1.5ms"
    assert Fault.parse(text) == Fault("reference", 6, "delay", 0.0015) and str(Fault.parse(text)) == text
    assert make_plan("torch", "--inject", text).record().arguments["inject"] == text
    assert "inject" not in make_plan("torch").record().arguments
