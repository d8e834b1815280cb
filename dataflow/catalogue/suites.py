"""Read the suites of benchmark.py from suites.toml, and add those that follow from the catalogue of configurations."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from dataflow.catalogue.catalogue import VARIANTS


@dataclass(frozen=True)
class Part:
    table: str  # the name that their records store; dataflow/report/sections.py defines how it is shown
    configurations: list[str]  # names with flags of their own
    flags: str = ""  # added to each of them
    traced: bool = False  # each is measured with --trace

    @property
    def commands(self) -> list[str]:
        return [f"{configuration} {self.flags}".strip() for configuration in self.configurations]


_TEXT = Path(__file__).with_name("suites.toml").read_text(encoding="utf-8")
SUITES = {name: [Part(**part) for part in parts] for name, parts in tomllib.loads(_TEXT).items()}
_MEASURED = [variant for variant in VARIANTS if variant.iterations]
SUITES["benchmark"] = [Part("configurations", [f"{v.name} --iterations {v.iterations}" for v in _MEASURED])]
# Device memory, which settings of host memory do not change.
_HOST_FLAGS = {"huge_pages", "retain_memory", "preallocate_store"}
_ON_GPU = [
    v.name for v in _MEASURED if _HOST_FLAGS.isdisjoint(v.flags) and not v.transport.requirements.host_memory_only
]
SUITES["gpu"].insert(0, Part("configurations", _ON_GPU, "--device cuda --warmup 3 --iterations 20"))
# Everything in results/published, so that one call measures all of it, interleaved.
PUBLISHED = (
    "headline", "benchmark", "stages", "hops", "chatlearn", "chatlearn-stages", "sweeps", "retained-memory",
    "in-flight", "weights", "detached-ppo", "pipeline", "pipeline-timeline", "zero", "peers",
)  # fmt: skip
SUITES["published"] = [part for name in PUBLISHED for part in SUITES[name]]
