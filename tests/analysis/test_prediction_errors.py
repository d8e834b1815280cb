"""Test the check of predictions: errors, right choices, and the score of a constant answer."""

from made_records import make_record, make_sweep, write_record

from evidence.predictions import check_tables


def test_errors_and_choices_are_those_of_workloads_that_were_left_out(tmp_path):
    sizes = (2**20, 2**22, 2**24)
    for name, runtime, seconds in (("refs", "store", (0.1, 0.2, 0.4)), ("shm", "graph", (0.2, 0.1, 0.1))):
        points = {size: [value] * 3 for size, value in zip(sizes, seconds, strict=True)}
        for index, record in enumerate(make_sweep(name, "payload", points, runtime=runtime)):
            write_record(tmp_path / f"{name}-{index}.json", record)
    write_record(tmp_path / "traced.json", make_record("refs", [9.0], traced=True, payload=2**22))
    errors, choices = check_tables([tmp_path])
    # Of 4 MiB: refs is right; shm is predicted between 0.2 s and 0.1 s, which is 0.141 s.
    assert errors.cells == [
        ["graph shm", "1", "41%", "0", "+41%", "+41%"],
        ["store refs", "1", "0%", "1", "-0%", "-0%"],
    ]
    own, view = choices.cells
    assert own == ["own a copy", "1", "1", "1", "`graph shm`", "1"] and view[:3] == ["may get a view", "1", "1"]
