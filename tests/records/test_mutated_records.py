"""Records that somebody has changed are presented or rejected with one line, and never end in a traceback."""

import json
import random

import pytest
from made_records import make_record, make_run

from dataflow.analysis.comparison import match_results
from dataflow.analysis.result import group_results
from dataflow.commands.compare import print_pairs
from dataflow.errors import SuiteError
from dataflow.records import files
from dataflow.report.sections import sections

VALUES = (None, 0, -1, 1e308, float("nan"), "", "x" * 50, [], {}, [None], True, 2**70, "2026-13-45", -0.0)


def all_places(value, path=()):
    """Yield the path to each value in a record."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from all_places(inner, (*path, key))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_changed_record_is_one_error_or_a_report(tmp_path):
    generator, path = random.Random(1), tmp_path / "record.json"
    made = [make_record("refs", make_run([0.2, 0.3]), [0.1, 0.2]), make_record("refs", [0.2], table="chatlearn-flat")]
    for index in range(300):
        files.save(path, made[index % 2])
        record = json.loads(path.read_text())
        *folders, last = generator.choice([place for place in all_places(record) if place[-1] != "gpus"])
        parent = record
        for key in folders:
            parent = parent[key]
        parent[last] = generator.choice(VALUES)
        if generator.random() < 0.2:
            del parent[last]
        path.write_text(json.dumps(record))
        try:
            results = group_results([files.load(path)])
            sections(results)
            print_pairs(match_results(results, results)[0])
        except SuiteError as error:
            assert "\n" not in str(error)
