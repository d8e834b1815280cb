"""The one timing loop, and the trips of a run on a transport that is ready."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from common.flow.flow import DRIVER
from common.machine.cpu import CpuTime
from common.plan.options import LEAST_TRIPS
from common.plan.plan import Plan
from common.run.verdict import failure
from common.runtime import gpus
from common.runtime.crew import Crew, Wiring
from common.trace.board import ENDING, TRIPS

Report = Callable[..., None]  # takes fields of record.schema.Run as they become known


def run_episode(
    numbers: Sequence[int],
    in_flight: int,
    make_query: Callable[[int], Any],
    submit: Callable[[Any], Any],
    collect: Callable[[Any], Any],
    receive: Callable[[Any], Any],
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[tuple[int, float, float]]:
    """Send these trips with at most `in_flight` of them open; yield each one's number, start and end as it ends.

    A trip's clock runs from `submit`, which hands the query over, until `receive`, which waits until the driver's
    device holds the results. The query is made before.
    """
    under_way: deque[tuple[int, float, Any]] = deque()
    for number in (*numbers, *[None] * in_flight):
        if under_way and (number is None or len(under_way) == in_flight):
            ended, start, token = under_way.popleft()
            receive(collect(token))
            yield ended, start, clock()
        if number is not None:
            query = make_query(number)
            start = clock()
            under_way.append((number, start, submit(query)))


def episodes(plan: Plan) -> Iterator[range]:
    """The trips between two checks: the first one alone, then the warm-up, then the timed ones."""
    options = plan.options
    yield range(1, 2)
    for begin, end, length in (
        (2, 2 + options.warmup, options.in_flight),
        (2 + options.warmup, 1 + plan.trips, options.trips_in_a_row),
    ):
        for number in range(begin, end, length):
            yield range(number, min(number + length, end))


def measure(plan: Plan, crew: Crew, wiring: Wiring, report: Report) -> None:
    """Run the trips and report what they show; their times go to the board."""
    driver, board = crew.driver, crew.driver.board
    wrong: dict[str, int] = {}
    mapped: dict[str, bool | None] = {}
    first_timed, promised, duration = 2 + plan.options.warmup, plan.promised_views, plan.options.duration
    begin, last, cpu = time.monotonic(), 0, CpuTime()

    def make_query(number: int) -> Any:
        board.began(number)
        return driver.emit(number)

    def receive(results: Sequence[Any]) -> None:
        driver.receive(results)
        gpus.synchronise()

    # Bytes taken in are counted over the timed trips, spilling over all: it slows those after it too.
    stored_bytes, spilled_bytes = crew.store_counters()
    board.phase = TRIPS
    for numbers in episodes(plan):
        if plan.turn and numbers[0] > 1:
            plan.turn.go_round()
        if numbers[0] == first_timed:
            stored_bytes, _ = crew.store_counters()
            begin, cpu = time.monotonic(), CpuTime()
        elif duration and numbers[0] >= first_timed + LEAST_TRIPS and time.monotonic() - begin > duration:
            break
        last = numbers[-1]
        crew.episode = numbers[0]
        way = (make_query, wiring.submit, wiring.collect, receive)
        cpu.start()
        for trip in run_episode(numbers, plan.options.in_flight, *way):
            board.ended(*trip)
        if numbers[0] >= first_timed:
            cpu.stop()
        for bad, seen in crew.ask("verify", numbers[0], numbers[-1]).values():
            for name, count in bad.items():
                wrong[name] = wrong.get(name, 0) + count
            # One trip that took another path is enough to call the row something else.
            mapped |= {edge: how for edge, how in seen.items() if mapped.get(edge, promised) is promised}
        for name, count in wiring.check().items():
            wrong[name] = wrong.get(name, 0) + count
        if wrong:
            report(wrong_bytes=sum(wrong.values()), wrong_bytes_by_field=wrong)
        if numbers[0] == 1:
            # Where a GPU's memory comes from cannot be seen from outside: there the path stands for it.
            report(payload_copied=not (any(how is not False for how in mapped.values())
                                       or (promised and plan.device == "cuda")))  # fmt: skip
    board.phase = ENDING
    stored_after, spilled_after = crew.store_counters()
    report(
        stored_bytes=stored_after - stored_bytes,
        spilled_bytes=spilled_after - spilled_bytes,
        processes=_costs(crew.ask("costs")),
        cpu_seconds=None if plan.options.address else cpu.seconds,  # whose processes are not this one's children
    )
    report(**wiring.facts())
    if plan.options.trace:
        report(**_spans(plan, crew, wiring, last))
    reason = failure(plan, wrong, mapped)
    report(status="failed" if reason else "ok", reason=reason)


def _costs(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By process: participants that share one are named together, and its memory counts once."""
    shared: dict[int, list[str]] = {}
    for name, cost in found.items():
        shared.setdefault(cost["pid"], []).append(name)
    return {
        "+".join(names): {
            "peak_memory_bytes": max(found[name]["peak_memory_bytes"] for name in names),
            "minor_faults": max(found[name]["minor_faults"] for name in names),
            "harness_seconds": sum(found[name]["harness_seconds"] for name in names),
        }
        for names in shared.values()
    }


def _spans(plan: Plan, crew: Crew, wiring: Wiring, last: int) -> dict[str, Any]:
    from common.trace import edges

    board = crew.driver.board
    trips = [board.trip(number) for number in range(2 + plan.options.warmup, 1 + last)]
    if plan.options.in_flight > 1:  # trips overlap: an episode is what can be told apart
        whole = range(0, len(trips), plan.options.trips_in_a_row)
        trips = [(trips[n][0], trips[n : n + plan.options.trips_in_a_row][-1][1]) for n in whole]
    found = crew.ask("spans")
    if len({id(own) for own in found.values()}) < len(found):  # all in one process
        found = {name: found[DRIVER] for name in found}
    actors = {name: place.actor for name, place in plan.places.items()}
    return edges.collect(found | wiring.spans(), trips, plan.asked, actors)
