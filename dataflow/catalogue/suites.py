"""Read the suites of suites.toml and of the studies, and add those that follow from the catalogue of configurations."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from dataflow.catalogue.catalogue import STUDIES_FOLDER, TRANSPORTS, VARIANTS


@dataclass(frozen=True)
class Part:
    table: str  # the name that their records store; dataflow/report/sections.py defines how it is shown
    configurations: list[str]  # names with flags of their own
    flags: str = ""  # added to each of them
    traced: bool = False  # each is measured with --trace

    @property
    def commands(self) -> list[str]:
        """Return the configurations with all flags, without those of a study that is not installed."""
        known = [name for name in self.configurations if " ".join(name.split()[:2]) in TRANSPORTS]
        return [f"{configuration} {self.flags}".strip() for configuration in known]


def read_suites(path: Path) -> dict[str, list[Part]]:
    suites = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: [Part(**part) for part in parts] for name, parts in suites.items()}


SUITES = read_suites(Path(__file__).with_name("suites.toml"))
_MEASURED = [variant for variant in VARIANTS if variant.iterations]
SUITES["benchmark"] = [Part("configurations", [f"{v.name} --iterations {v.iterations}" for v in _MEASURED])]
# Device memory, which settings of host memory do not change.
_HOST_FLAGS = {"huge_pages", "retain_memory", "preallocate_store"}
_ON_GPU = [
    v.name for v in _MEASURED if _HOST_FLAGS.isdisjoint(v.flags) and not v.transport.requirements.host_memory_only
]
SUITES["gpu"].insert(0, Part("configurations", _ON_GPU, "--device cuda --warmup 3 --iterations 20"))
OF_STUDIES = {
    name: suite for path in sorted(STUDIES_FOLDER.glob("*/suite.toml")) for name, suite in read_suites(path).items()
}
SUITES |= OF_STUDIES
# Everything in results/published, so that one call measures all of it, interleaved.
_PUBLISHED = ("headline", "benchmark", "stages", "hops", "sweeps", *OF_STUDIES)
SUITES["published"] = [part for name in _PUBLISHED for part in SUITES[name]]
