# SPDX-License-Identifier: Apache-2.0
"""Check that the page of Ray's metric has the table that its records give."""

import json

from conftest import ROOT

from examples.put_records import make_table


def test_the_page_has_what_the_records_give():
    lines = (ROOT / "results" / "evidence" / "put-gigabytes.jsonl").read_text().splitlines()
    page = (ROOT / "docs" / "page-faults.md").read_text()
    assert make_table([json.loads(line) for line in lines]) in page
