"""List the suites of benchmark.py: configurations with their flags, as they can be given to --configs."""

from dataclasses import dataclass

from common.transports.catalogue import CONFIGURATIONS, VARIANTS


@dataclass(frozen=True)
class Part:
    """Configurations of one table."""

    table: str  # the name that their records store; common/report/sections.py defines how it is shown
    configurations: tuple[str, ...]  # names with flags of their own
    flags: str = ""  # added to each of them
    traced: bool = False  # each is measured with --trace

    @property
    def commands(self) -> list[str]:
        return [f"{configuration} {self.flags}".strip() for configuration in self.configurations]


# Suite gpu moves device memory, which huge pages do not change.
GPU_CONFIGURATIONS = tuple(
    name for name, variant in CONFIGURATIONS.items()
    if variant.iterations and "huge_pages" not in variant.flags and not variant.transport.requirements.host_memory_only
)  # fmt: skip
QUICK = ("store driver-queue", "store ref-queue", "rdt gloo", "graph shm", "torch memcpy", "graph mapped",
         "torch mapped")  # fmt: skip
STAGES = (
    "store driver-queue", "store ref-queue", "store refs", "rdt nixl", "rdt gloo", "torch gloo", "graph pickle",
    "graph shm", "graph shm --reuse-buffers", "graph mapped --copy-out", "torch memcpy", "store refs --zero-copy",
    "store numpy", "graph zero-copy", "rdt mapped", "torch multiprocessing", "graph mapped", "torch mapped",
)  # fmt: skip
SMALL_MESSAGES = (
    "store refs", "store bytes", "rdt gloo", "torch gloo", "graph pickle", "graph bytes", "rdt mapped",
    "torch multiprocessing", "graph mapped", "torch mapped",
)  # fmt: skip
BYTES = ("store bytes", "graph bytes")
# As in Ray's article, calls follow each other, so all bytes are verified after every hundredth.
CALLS = "--iterations 1000 --check-every 100"

# An episode of ChatLearn's llama2-7B script: with Megatron 8 messages of 128 samples, with vLLM 2 of 512.
MEGATRON = "--flow online-dpo --batch-size 128 --prompt-len 512 --response-len 512 --iterations 24"
VLLM = "--flow online-dpo --batch-size 512 --prompt-len 512 --response-len 512 --padding vllm --iterations 6"
AS_SENT, PACKED, FIELDS, TRAINER = "--as-sent", "--message packed", "--message fields", "--sink trainer"
FLAT = "--payload 10092032B --iterations 24"  # the bytes of a message of MEGATRON


def _each(transport: str, *flags: str) -> tuple[str, ...]:
    return tuple(f"{transport} {flag}" for flag in flags)


CHATLEARN = (
    Part("chatlearn", (
        *_each("store ref-queue", f"{AS_SENT} {TRAINER}", AS_SENT, FIELDS, PACKED, f"{PACKED} --keep-queues"),
    ), f"{MEGATRON} --episode 8 --in-flight 8"),
    Part("chatlearn", (
        *_each("store refs", AS_SENT, FIELDS, f"{FIELDS} --zero-copy", PACKED, f"{PACKED} {TRAINER}"),
        f"store numpy {PACKED}", *_each("rdt gloo", PACKED, f"{PACKED} {TRAINER}"), f"rdt mapped {FIELDS}",
        f"graph zero-copy {PACKED}", *_each("graph mapped", FIELDS, f"{FIELDS} {TRAINER}"),
        *_each("torch gloo", PACKED, f"{PACKED} {TRAINER}"), f"torch multiprocessing {PACKED}",
        f"torch mapped {FIELDS}",
    ), f"{MEGATRON} --check-every 8 --in-flight 8"),
    # The channels of the type hint cannot hold eight messages.
    Part("chatlearn", _each("graph shm", AS_SENT, FIELDS, PACKED, f"{PACKED} {TRAINER}"),
         f"{MEGATRON} --check-every 8 --in-flight 4"),
    # One at a time, because several in flight cost time if readers busy-wait on few cores.
    Part("chatlearn", (
        f"graph shm {PACKED} --reuse-buffers", f"graph mapped {PACKED} --copy-out", f"graph mapped {FIELDS}",
        f"graph mapped {PACKED}", f"torch memcpy {PACKED}", f"torch mapped {FIELDS}",
    ), f"{MEGATRON} --check-every 8"),
    Part("chatlearn", _each("store ref-queue", AS_SENT, FIELDS, PACKED, f"{PACKED} --keep-queues"),
         f"{VLLM} --episode 2 --in-flight 2"),
    Part("chatlearn", (
        f"store refs {PACKED}", *_each("graph shm", FIELDS, PACKED), f"graph mapped {FIELDS}", f"rdt gloo {PACKED}",
        f"torch gloo {PACKED}",
    ), f"{VLLM} --check-every 2 --in-flight 2"),
    Part("chatlearn", (f"torch memcpy {PACKED}",), f"{VLLM} --check-every 2"),
    # Flat tensors with the bytes of the packed messages: the difference is the cost of packing fields.
    Part("chatlearn-flat", ("store refs", "rdt gloo", "torch gloo"), f"{FLAT} --check-every 8 --in-flight 8"),
    Part("chatlearn-flat", ("graph shm",), f"{FLAT} --check-every 8 --in-flight 4"),
    Part("chatlearn-flat", ("graph shm --reuse-buffers", "torch memcpy"), f"{FLAT} --check-every 8"),
)  # fmt: skip
CHATLEARN_STAGES = (
    *_each("store refs", AS_SENT, FIELDS, PACKED), *_each("graph shm", FIELDS, PACKED), f"graph mapped {FIELDS}",
    f"torch gloo {PACKED}",
)  # fmt: skip

SWEPT = (
    "store refs", "store numpy", "graph shm", "graph shm --reuse-buffers", "graph zero-copy", "graph mapped",
    "graph mapped --copy-out", "rdt gloo", "torch gloo", "torch multiprocessing", "torch mapped",
)  # fmt: skip
PAYLOADS = "8KiB,128KiB,512KiB,1MiB,2MiB,4MiB,8MiB,16MiB,32MiB,64MiB,128MiB,512MiB"
PIPELINED = ("store refs", "rdt gloo", "graph zero-copy", "graph mapped", "graph mapped --copy-out", "torch gloo",
             "torch multiprocessing", "torch mapped", "torch mapped --copy-out")  # fmt: skip
# Flows and sizes that the sweeps do not contain, to check the interpolation between their points.
HELD_OUT = (
    "--flow grpo --prompt-len 128 --response-len 128 --sweep batch-size=8,256",
    "--flow ppo --prompt-len 256 --response-len 256 --sweep batch-size=16,64",
    "--flow chain --actors 3 --sweep payload=60kB,24MB",
    "--flow scatter-gather --actors 2 --sweep payload=1MB,160MB",
    "--flow 'rollout-1, rollout-2 -> trainer: 12MB' --sweep payload=3MB,300MB",
)
CHECKED = ("graph shm --reuse-buffers", "graph zero-copy", "graph mapped", "graph mapped --copy-out", "torch gloo",
           "torch multiprocessing")  # fmt: skip
ON_GPU = ("store refs", "graph shm", "graph nccl", "graph mapped", "rdt nccl", "rdt cuda-ipc", "torch nccl-one-gpu")

SUITES: dict[str, tuple[Part, ...]] = {
    "quick": (Part("configurations", QUICK, "--batch-size 256 --warmup 1 --iterations 5"),),
    "benchmark": (
        Part("configurations", tuple(f"{variant.name} --iterations {variant.iterations}"
                                     for variant in VARIANTS if variant.iterations)),
    ),
    "stages": (
        Part("stages", STAGES, "--iterations 10", traced=True),
        Part("stages", ("graph mapped", "torch mapped"), "--iterations 100 --check-every 100", traced=True),
    ),
    "hops": (
        *(Part("microbenchmarks", SMALL_MESSAGES, f"--flow {flow} {CALLS}")
          for flow in ("round-trip", "chain", "scatter-gather")),
        *(Part("microbenchmarks", BYTES, f"--flow round-trip {CALLS} {more}")
          for more in ("--payload-bytes 1B", "--payload-bytes 1MiB", "--placement spread")),
    ),
    "chatlearn": CHATLEARN,
    "chatlearn-stages": (
        Part("chatlearn-stages", CHATLEARN_STAGES,
             "--flow online-dpo --batch-size 128 --prompt-len 512 --response-len 512 --iterations 10", traced=True),
    ),
    "sweeps": (
        Part("sweep-payload", SWEPT, f"--warmup 2 --sweep payload={PAYLOADS}"),
        Part("sweep-fields", SWEPT, "--warmup 2 --payload 1MiB --sweep fields=1:64:8x"),
    ),
    "in-flight": (
        Part("in-flight", PIPELINED, "--payload 64MiB --check-every 48 --iterations 96 --sweep in-flight=1,2,3,4,6,8"),
    ),
    "held-out": tuple(Part("held-out", CHECKED, f"--warmup 2 {flow}") for flow in HELD_OUT),
    "gpu": (
        Part("configurations", GPU_CONFIGURATIONS, "--device cuda --iterations 20"),
        Part("microbenchmarks", ON_GPU, "--device cuda --flow round-trip --payload-bytes 40MB --iterations 50"),
    ),
}  # fmt: skip
