"""--sweep: what its text means, what it is asked at each point, and what is refused before anything starts."""

import pytest

from common.errors import UsageError
from common.plan.command_line import parse
from common.plan.options import LEAST_TRIPS, MOST_TRIPS
from common.run.settle import settle

pytestmark = pytest.mark.usefixtures("no_gpu")


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("payload=1KiB:64KiB:4x", "payload", [2**10, 2**12, 2**14, 2**16]),
        ("payload=100:1000:10x", "payload", [100, 1000]),
        ("payload=1KiB:5KiB:2x", "payload", [2**10, 2**11, 2**12]),  # the last one is no point of it
        ("rows=8,2,8,4", "rows", [2, 4, 8]),
        ("in-flight=1:4:+1", "in_flight", [1, 2, 3, 4]),
        ("fields=1:10:1.5x", "fields", [1, 2, 3, 5, 8]),
        ("roles=2:8:+3", "roles", [2, 5, 8]),
    ],
)
def test_a_sweep_is_read_from_its_text(text, name, values):
    flow = {"rows": "ppo", "roles": "chain"}.get(name, "online-dpo")
    asked = parse("", "graph", ["--transport", "mapped", "--flow", flow, "--sweep", text])
    assert [options.at for options in asked.points] == [{name: value} for value in values]
    assert [getattr(options, name) for options in asked.points] == values
    assert getattr(asked, name) == values[0]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["payload"], "NAME=FIRST:LAST:FACTORx"),
        (["payload=1KiB:64KiB"], "give FIRST:LAST:FACTORx"),
        (["payload=1KiB:64KiB:1x"], "a step is a factor over 1"),
        (["payload=1KiB:64KiB:four"], "a step is a factor over 1"),
        (["payload=1KiB:64KiB:nanx"], "a step is a factor over 1"),
        (["payload=1KiB:1TiB:1.1x"], "more than 64 points: give a larger factor"),
        (["payload=8:100000:+8"], "more than 64 points: give a larger step"),
        (["payload=1KiB"], "is one point"),
        (["payload=64KiB:1KiB:4x"], "is one point"),
        (["payload=1KiB,8XB"], "the unit XB is unknown"),
        (["in-flight=1:64:+8", "--in-flight", "3"], "--sweep says --in-flight already"),
        (["in-flight=1,65"], "give 64 or less"),
        (["payloda=1,2"], "did you mean payload?"),
        (["batch-size=1,2"], "give payload, rows, fields, in-flight, roles, each as NAME=FIRST"),
        (["payload=1KiB,2KiB", "--trace", "x"], "--trace is of one run"),
        (["payload=1KiB,2KiB", "--payload", "1MiB"], "--sweep says --payload already"),
        (["payload=8,2KiB"], "give 40 or more"),
        (["rows=8,16"], "--rows is for ppo"),
        (["payload=1KiB,2KiB", "--flow", "ppo"], "give their own sizes"),
        (["in-flight=2:4:+1", "--transport", "driver-queue"], "holds 1 trip under way"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_swept_is_refused_in_one_line(flags, reason):
    with pytest.raises(UsageError) as error:
        settle("store", parse("", "store", ["--sweep", *flags]))
    assert reason in str(error.value) and "\n" not in str(error.value)


def test_a_point_takes_about_a_second_unless_trips_are_counted():
    def trips(*flags):
        asked = parse("", "torch", ["--sweep", "payload=1KiB,2KiB", *flags])
        return {(point.duration, point.iterations) for point in asked.points}

    assert trips() == {(1.0, MOST_TRIPS)}
    assert trips("--duration", "5s") == {(5.0, MOST_TRIPS)}
    assert trips("--iterations", "7") == {(None, 7)}
    assert LEAST_TRIPS == 3  # of a point whose trips take longer than all of its time: a median can be told


def test_the_record_is_of_the_row_without_what_is_swept(make_plan):
    of_bytes = make_plan("graph", "--transport", "mapped", "--sweep", "payload=1KiB,2KiB").record()
    assert (of_bytes.sweep, "payload" in of_bytes.row.sizes) == ("payload=1KiB,2KiB", False)
    in_flight = make_plan("graph", "--transport", "mapped", "--copy-out", "--sweep", "in-flight=2,4").record()
    assert (in_flight.row.flags, in_flight.sweep) == ({"copy_out": True}, "in-flight=2,4")
    cut = make_plan("graph", "--transport", "mapped", "--fields", "4", "--message", "packed").record()
    assert (cut.row.message, cut.row.sizes["fields"], cut.row.sizes["batch_size"]) == ("packed", 4, 1024)
