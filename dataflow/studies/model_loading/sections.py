"""Say how the loading of a model is shown. Its records are no runs of a flow, so they have no table."""

from pathlib import Path

from dataflow.report.tables import Section
from dataflow.studies.model_loading.__main__ import loading_section, read_record

SECTIONS: dict[str, object] = {}


def evidence_sections(folder: Path) -> list[Section]:
    """Return the section of the published record in results/evidence."""
    return [loading_section(read_record(folder / "loading.json"))]
