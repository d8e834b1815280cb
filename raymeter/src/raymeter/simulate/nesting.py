"""Leave out calls of Ray that are made inside of another one."""

from raymeter.profile.events import Call

CLOCK_SECONDS = 0.0005  # by which the ends of both calls may differ


def outermost(calls: list[Call]) -> list[Call]:
    """Return the calls that are not inside of another one, such as ray.get in a method of ray.util.queue."""
    kept: list[Call] = []
    for call in sorted(calls, key=lambda call: (call.start, -call.seconds)):
        if not kept or call.end > kept[-1].end + CLOCK_SECONDS:
            kept.append(call)
    return kept
