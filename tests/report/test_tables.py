"""Cells of tables, and what a script prints."""

from made_records import make_record, make_run

from dataflow.analysis.result import Result
from dataflow.report import render
from dataflow.report.tables import MAIN_COLUMNS, Column, make_table


def cells(*arguments, **changes):
    table = make_table([Result((make_record(*arguments, **changes),))], MAIN_COLUMNS)
    return dict(zip(table.headers, table.cells[0], strict=True))


def test_multiples_of_memcpy_are_of_the_median_and_a_view_copies_nothing():
    times = {"memcpy_before_seconds": [0.02]}
    row = cells("refs", make_run([0.06, 0.04, 0.05], **times))
    assert (row["ms per iteration"], row["x memcpy"]) == ("50", "2.5")
    assert row["GB/s"] == f"{448 * 2**20 / 0.05 / 1e9:.3g}"
    row = cells("mapped", make_run([0.05], readers_own_a_copy=False, **times), runtime="graph")
    assert (row["GB/s"], row["x memcpy"]) == ("-", "-")


def test_the_reference_a_skipped_configuration_and_wrong_bytes_are_marked():
    assert cells("memcpy", [0.1], runtime="torch")["configuration"] == "torch memcpy (reference)"
    skipped = make_run([], status="skipped", reason="no GPU", first_seconds=None, processes={})
    row = cells("nccl", skipped, runtime="graph")
    assert (row["status"], row["ms per iteration"], row["x memcpy"], row["peak GiB"]) == ("skipped", "-", "-", "-")
    row = cells("refs", make_run([0.1]), make_run([0.1], wrong_bytes=3, status="failed", reason="wrong"))
    assert row["status"] == "WRONG"


def test_a_narrow_terminal_leaves_out_columns_by_rank_and_names_them():
    columns = [Column("name", str), Column("rare", str, 2), Column("often", str, 1), Column("always", str)]
    table = make_table(["a|b"], columns)
    assert render.to_text(table).splitlines() == ["name  rare  often  always", "a|b    a|b    a|b     a|b"]
    lines = render.to_text(table, 20).splitlines()
    assert lines[0] == "name  often  always" and lines[-1].endswith("rare)")
    assert render.to_text(table, 3).splitlines()[0] == "name  always"
    assert render.to_markdown_table(table).splitlines()[-1] == "| a\\|b | a\\|b | a\\|b | a\\|b |"


def test_times_of_a_row_are_per_iteration_however_many_iterations_are_in_flight():
    """The times of the iterations, 4 ms and once 9 ms, are 24 ms with six in flight, because each waits for five."""
    groups = [0.024] * 119 + [0.054]
    row = cells("gloo", make_run([0.024] * 720, group_seconds=groups), runtime="torch", flags={"in_flight": 6})
    assert (row["ms per iteration"], row["p95 ms"]) == ("4", "4")
    row = cells("gloo", make_run([0.004] * 714 + [0.009] * 6, group_seconds=groups), runtime="torch",
                flags={"check_every": 6})  # fmt: skip
    assert (row["ms per iteration"], row["p95 ms"]) == ("4", "4")


def test_a_script_prints_the_flow_first_and_warnings_and_record_last(tmp_path, capsys):
    failed = make_run([], status="failed", reason="reward died", processes={})
    record = make_record("refs", make_run([1.0, 1.5], steal_cores=1.5), failed)
    render.print_flow(Result((record,)).flow)
    text = capsys.readouterr().out
    assert "448 MiB per iteration" in text and "driver -> policy" in text
    render.print_end(record, tmp_path / "a.json")
    text, errors = capsys.readouterr()
    assert "store refs" in text and str(tmp_path / "a.json") in text
    assert "warning: the hypervisor took 1.5 cores" in text
    assert errors == "error: reward died\n"
