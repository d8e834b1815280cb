# SPDX-License-Identifier: Apache-2.0
"""Check the fields of the record: product code sets each of them, and records of earlier commits can be read."""

import ast
import inspect

import msgspec
import pytest
from conftest import ROOT

from dataflow.records import files, schema
from dataflow.records.schema import NodeCosts, Run

ADDERS = ("append", "extend", "update", "setdefault")
PRODUCT_FILES = [
    path
    for folder in ("common", "dataflow")
    for path in (ROOT / folder).rglob("*.py")
]  # fmt: skip
FIELDS = sorted(
    (kind.__name__, field)
    for kind in vars(schema).values()
    if inspect.isclass(kind) and issubclass(kind, msgspec.Struct) and kind.__module__ == schema.__name__
    for field in kind.__struct_fields__
)  # fmt: skip


def called_name(node):
    """Return the name of what a call calls, without its module."""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def fields_of_call(node):
    """Yield (class, field) for each argument of a call that makes a struct of the schema."""
    kind = getattr(schema, called_name(node), None)
    if inspect.isclass(kind) and issubclass(kind, msgspec.Struct):
        for field, _ in zip(kind.__struct_fields__, node.args, strict=False):
            yield kind.__name__, field
        for keyword in node.keywords:
            yield kind.__name__, keyword.arg


def attribute_of_assignment(node):
    """Return the attribute of an object that a statement sets or adds to; None if it is another statement."""
    target = node
    if isinstance(node, ast.Call) and called_name(node) in ADDERS:
        target = node.func.value
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        target = node.value
    elif not isinstance(getattr(node, "ctx", None), ast.Store):
        return None
    return target if isinstance(target, ast.Attribute) else None


def find_set_fields():
    """Return the (class, field) of calls, and the names of attributes that product code sets.

    Attributes of `self` are those of other classes, except in the module of the record itself.
    """
    by_call, attributes = set(), set()
    for path in PRODUCT_FILES:
        is_record = path == ROOT / "common" / "record.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                by_call.update(fields_of_call(node))
            target = attribute_of_assignment(node)
            if target is None:
                continue
            is_self = isinstance(target.value, ast.Name) and target.value.id == "self"
            if is_record or not is_self:
                attributes.add(target.attr)
    return by_call, attributes


SET_BY_CALL, SET_ATTRIBUTES = find_set_fields()
CONSTANT = {("Record", "schema_version")}


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_product_code_sets_each_field_of_the_record(kind, field):
    assert (kind, field) in SET_BY_CALL | CONSTANT or field in SET_ATTRIBUTES


def test_a_field_that_nothing_sets_is_found():
    for field in ("memcpy_seconds", "clock_offset_seconds", "no_such_field"):
        assert ("NodeCosts", field) not in SET_BY_CALL and field not in SET_ATTRIBUTES


def test_the_costs_of_nodes_in_older_records_can_be_read(tmp_path):
    text = (
        b'{"received_bytes": 840097646, "busy_cores": 1.2, "memcpy_seconds": [0.05], '
        b'"clock_offset_seconds": 3.7e-05, "clock_error_seconds": 0.0002}'
    )
    costs = msgspec.json.decode(text, type=NodeCosts)
    assert costs == NodeCosts(0.0002, 840097646, 1.2)
    run = msgspec.json.decode(b'{"node_costs": {"1": ' + text + b"}}", type=Run)
    assert run.node_costs == {"1": costs}


def test_the_published_records_of_clusters_can_be_read():
    records = files.load_all([ROOT / "results" / "published" / "cluster"])
    assert any(run.node_costs for record in records for run in record.runs)
