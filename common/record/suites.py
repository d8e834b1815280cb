"""What the suites of benchmark.py measure: rows with flags, as data."""

from collections.abc import Iterator
from dataclasses import dataclass

from common.flow.catalogue import MICROBENCHMARKS
from common.record.rows import ROWS, transports


@dataclass(frozen=True)
class Suite:
    """Rows with flags: those of the catalogue whose `suites` name `rows`, once with each of `settings`; and `extra`."""

    rows: str
    settings: tuple[str, ...] = ("",)
    extra: tuple[str, ...] = ()
    traced: bool = False
    trips: float = 1.0  # so much of what the catalogue says


# Calls of small messages follow each other as in the article, so the bytes are checked after every hundredth.
HOP = "--flow round-trip --iterations 1000 --episode 100"
BYTES = ("store bytes", "graph bytes")
ON_GPU = ("store refs", "graph shm", "graph nccl", "graph mapped", "rdt nccl", "rdt cuda-ipc", "torch nccl-one-gpu")
# An episode of ChatLearn's llama2-7B script: with Megatron 8 messages of 128 samples, with vLLM 2 of 512.
ALONE = "--flow online-dpo --rows 128 --prompt-len 512 --response-len 512 --episode 8 --iterations 24"
EPISODE, FOUR = f"{ALONE} --in-flight 8", f"{ALONE} --in-flight 4"
VLLM = "--flow online-dpo --rows 512 --prompt-len 512 --response-len 512 --padding vllm --episode 2 --iterations 6"
TWO = f"{VLLM} --in-flight 2"
FLAT = "--payload 10092032B --episode 8 --iterations 24"  # a message of ALONE
SHIPPED, PACKED, FIELDS, TRAINER = "--as-shipped", "--message packed", "--message fields", "--sink trainer"
CHATLEARN = [
    f"{row} {EPISODE}" for row in (
        f"store ref-queue {SHIPPED} {TRAINER}", f"store ref-queue {SHIPPED}", f"store ref-queue {FIELDS}",
        f"store ref-queue {PACKED}", f"store ref-queue {PACKED} --keep-queues", f"store refs {SHIPPED}",
        f"store refs {FIELDS}", f"store refs {FIELDS} --zero-copy", f"store refs {PACKED}",
        f"store refs {PACKED} {TRAINER}", f"store numpy {PACKED}", f"rdt gloo {PACKED}", f"rdt gloo {PACKED} {TRAINER}",
        f"rdt mapped {FIELDS}", f"graph zero-copy {PACKED}", f"graph mapped {FIELDS}",
        f"graph mapped {FIELDS} {TRAINER}", f"torch gloo {PACKED}", f"torch gloo {PACKED} {TRAINER}",
        f"torch multiprocessing {PACKED}",
    )
] + [
    # The hint's channels hold no eight; and one at a time, since overlapping costs where readers spin on few cores.
    *(f"graph shm {messages} {FOUR}" for messages in (SHIPPED, FIELDS, PACKED, f"{PACKED} {TRAINER}")),
    *(f"{row} {ALONE}" for row in (
        f"graph shm {PACKED} --reuse-buffers", f"graph mapped {PACKED} --copy-out", f"graph mapped {FIELDS}",
        f"graph mapped {PACKED}", f"torch memcpy {PACKED}",
    )),
    *(f"{row} {TWO}" for row in (
        f"store ref-queue {SHIPPED}", f"store ref-queue {FIELDS}", f"store ref-queue {PACKED} --keep-queues",
        f"store refs {PACKED}", f"graph shm {FIELDS}", f"graph shm {PACKED}", f"graph mapped {FIELDS}",
        f"rdt gloo {PACKED}", f"torch gloo {PACKED}",
    )),
    f"torch memcpy {PACKED} {VLLM}",
    # At the end, since records are numbered.
    f"torch mapped {FIELDS} {EPISODE}", f"torch mapped {FIELDS} {ALONE}", f"store ref-queue {PACKED} {TWO}",
    # As many bytes in flat tensors: what fields cost that are packed into one buffer.
    *(f"{row} {FLAT} --in-flight 8" for row in ("store refs", "rdt gloo", "torch gloo")),
    f"graph shm {FLAT} --in-flight 4", f"graph shm {FLAT} --reuse-buffers", f"torch memcpy {FLAT}",
]  # fmt: skip
# Why it costs so: one message at a time.
ONE = "--flow online-dpo --rows 128 --prompt-len 512 --response-len 512 --iterations 10"
EXPLAINED = (f"store refs {SHIPPED}", f"store refs {FIELDS}", f"store refs {PACKED}", f"graph shm {FIELDS}",
             f"graph shm {PACKED}", f"graph mapped {FIELDS}", f"torch gloo {PACKED}")  # fmt: skip
# What the cost model is fitted to: bytes at five messages a trip, and tensors at the same bytes.
SWEPT = (
    "store refs", "store numpy", "graph shm", "graph shm --reuse-buffers", "graph zero-copy", "graph mapped",
    "graph mapped --copy-out", "rdt gloo", "torch gloo", "torch multiprocessing", "torch mapped",
)  # fmt: skip
# What overlapping is worth: of rows that hold several trips, in long episodes, so that their ends do not count.
UNDER_WAY = ("store refs", "rdt gloo", "graph zero-copy", "graph mapped", "graph mapped --copy-out", "torch gloo",
             "torch multiprocessing", "torch mapped", "torch mapped --copy-out")  # fmt: skip
DEPTHS = "--payload 64MiB --episode 48 --iterations 96 --sweep in-flight=1,2,3,4,6,8"
POINTS = "8KiB,128KiB,512KiB,1MiB,2MiB,4MiB,8MiB,16MiB,32MiB,64MiB,128MiB,512MiB"  # denser where lines bend
SWEEPS = (f"--sweep payload={POINTS}", "--payload 1MiB --sweep fields=1:64:8x")
# Flows and sizes that it does not know, each with two sizes; and the rows that may be the best somewhere.
HELD_OUT = (
    "--flow grpo --prompt-len 128 --response-len 128 --sweep rows=8,256",
    "--flow ppo --prompt-len 256 --response-len 256 --sweep rows=16,64",
    "--flow chain --roles 3 --sweep payload=60kB,24MB",
    "--flow scatter-gather --roles 2 --sweep payload=1MB,160MB",
    "--flow rollout-1,rollout-2->trainer:12MB --sweep payload=3MB,300MB",
)
CHECKED = ("graph shm --reuse-buffers", "graph zero-copy", "graph mapped", "graph mapped --copy-out", "torch gloo",
           "torch multiprocessing")  # fmt: skip
SUITES = {
    "quick": Suite("quick", ("--batch-size 256 --warmup 1",)),
    "benchmark": Suite("benchmark", trips=0.2),
    "stages": Suite("stages", traced=True),
    "hops": Suite(
        "hops",
        tuple(f"--flow {flow} --episode 100" for flow in MICROBENCHMARKS),
        extra=(
            *(f"{row} {HOP} --payload-bytes {size}" for size in ("1B", "1MiB") for row in BYTES),
            *(f"{row} {HOP} --placement spread" for row in BYTES),
        ),
    ),
    "chatlearn": Suite("none", extra=tuple(CHATLEARN)),
    "chatlearn-stages": Suite("none", extra=tuple(f"{row} {ONE}" for row in EXPLAINED), traced=True),
    "sweeps": Suite("none", extra=tuple(f"{row} --warmup 2 {sweep}" for sweep in SWEEPS for row in SWEPT)),
    "in-flight": Suite("none", extra=tuple(f"{row} {DEPTHS}" for row in UNDER_WAY)),
    "held-out": Suite("none", extra=tuple(f"{row} --warmup 2 {flow}" for flow in HELD_OUT for row in CHECKED)),
    "gpu": Suite(
        "benchmark",
        ("--device cuda --iterations 20",),
        extra=tuple(f"{row} --device cuda --flow round-trip --payload-bytes 40MB --iterations 50" for row in ON_GPU),
    ),
}


def rows_of(suite: str) -> Iterator[str]:
    """Each row of a suite with its flags, as --rows takes them."""
    wanted = SUITES[suite]
    for setting in wanted.settings:
        for row in ROWS:
            of_host = "huge_pages" in row.flags or transports(row.runtime)[row.transport].needs.host_only
            if wanted.rows in row.suites and not (of_host and "cuda" in setting):
                count = max(5, round(wanted.trips * row.suites[wanted.rows]))
                yield f"{row.name} --iterations {count} {setting}"
    yield from wanted.extra
