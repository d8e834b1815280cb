"""Read the files that a profiled program has written, and find its messages, their causes, and its steps.

A profile is a dict, as in profile.json: `messages` from the most expensive one on, `places` with the seconds that the
driver and the actors of each class move data, `steps`. Only the standard library is needed.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from dataflow.errors import UsageError

SCHEMA = 1
MIN_STEPS = 3
VIEW_FACTOR = 1.2  # bytes stored / bytes held, from which on views are a cause
FAULT_SHARE = 0.2  # of the time of a message, from which on page faults are a cause
Event = dict[str, Any]


def read_events(folder: Path) -> tuple[list[Event], list[Event]]:
    """Return the processes of a profile with their `totals`, and all events; raise UsageError without any.

    A row of `totals` is side, whether small, place, count, bytes, and the times of the first and last message.
    """
    processes, events = [], []
    for path in sorted(folder.glob("*.jsonl")):
        complete = path.read_text(encoding="utf-8").rpartition("\n")[0]
        first, *lines = map(json.loads, complete.splitlines())
        process = {"totals": [], **first, "process": f"{first['node']}-{first['process']}"}
        for line in lines:
            if "totals" in line:
                process |= line
            else:
                events.append(line | {"process": process["process"], "node": process["node"], "readers": []})
        processes.append(process)
    if not any(process["totals"] for process in processes):
        raise UsageError(f"{folder} has no messages: the program sent none with Ray")
    events.sort(key=lambda event: event["start"])
    join_readers(events)
    return processes, events


def join_readers(events: Sequence[Event]) -> None:
    """Add to each event of a sender the events of its `readers`, and mark the messages that a process `forwards`."""
    senders: dict[str, list[Event]] = defaultdict(list)
    received: dict[str, dict[bytes, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if event["side"] == "sent":
            senders[event["id"] or ""].append(event)
    for event in events:
        if event["side"] == "received":
            names = ("O" + event["object"], "R" + event["from"], "A" + event["task"])
            # An async actor does not know the task of its arguments: the size and the order are left.
            name = next((name for name in names if name in senders), f"{event['stored']} bytes")
            received[name][bytes.fromhex(event["object"])[::-1]].append(event)  # numbers are little-endian
    for event in events:
        if event["side"] == "sent" and event["how"] == "argument" and event["id"] not in received:
            senders[f"{event['stored']} bytes"].append(event)
    origins: dict[Any, str] = {}
    for name, objects in received.items():
        for number, key in enumerate(sorted(objects)):
            for position, event in enumerate(objects[key]):
                if name.startswith("O"):  # a channel has one identity for all its messages
                    number = position * len(senders[name]) // len(objects[key])
                if number < len(senders[name]):  # several arguments or results have the order of their objects
                    senders[name][number]["readers"].append(event)
                    origins[event["process"], event["token"]] = senders[name][number]["place"]
    for event in events:
        event["forwards"] = origins.get((event["process"], event["token"]), "") if event["token"] else ""


def count_repeats(sent: Sequence[Event]) -> float:
    """Return how often an argument was serialised for each time that it had to be: once for all readers."""
    readers: dict[Any, Counter] = defaultdict(Counter)
    for number, event in enumerate(sent):
        readers[event["token"] or -number].update({reader["process"] for reader in event["readers"]} or {None})
    return len(sent) / sum(max(counts.values()) for counts in readers.values())


def sum_seconds(events: Sequence[Event], name: str) -> float:
    """Return the time of all events. Those that imported modules, as torch, count as the median of the others."""
    values = [event.get(name, 0.0) for event in events if not event["imports"]]
    return sum(values) + (len(events) - len(values)) * (median(values) if values else 0.0)


def describe_message(sent: Sequence[Event], steps: float, is_zero_copy: bool, fault_seconds: float) -> Event:
    """Return one message of the program: all events with the same sender, line, way and readers. Times are per step."""
    received = [reader for event in sent for reader in event["readers"]]
    first = max(sent, key=lambda event: event["stored"])
    stored, held = mean(event["stored"] for event in sent), mean(event["bytes"] for event in sent)
    seconds = {"serialise": sum_seconds(sent, "seconds"), "write": sum_seconds(sent, "other"),
               "deserialise": sum_seconds(received, "seconds"), "wait": sum_seconds(received, "wait")}  # fmt: skip
    faults = sum(event["faults"] for event in [*sent, *received] if not event["imports"]) / steps
    moving = (sum(seconds.values()) - seconds["wait"]) / steps
    marks = {cause for field in first["fields"] for cause in field[6]}
    causes = []
    if first["forwards"]:
        causes.append("through the driver" if first["place"].startswith("driver") else "forwarded")
    if first["how"] == "argument" and (repeats := count_repeats(sent)) > 1:
        causes.append(f"serialised {repeats:.3g} times")
    if "view" in marks and stored > VIEW_FACTOR * held:
        causes.append(f"views, stored {stored / held:.1f} times")
    causes += [mark for mark in ("numbers", "bytes in the pickle", "not contiguous") if mark in marks]
    if "tensors in the pickle" in marks and not is_zero_copy:
        causes.append("tensors in the pickle")
    if faults * fault_seconds > FAULT_SHARE * moving:
        causes.append("page faults")
    return {
        **{key: first[key] for key in ("place", "line", "how", "forwards", "fields", "start")},
        "readers": sorted({reader["place"] for reader in received}), "count": len(sent),
        "get_line": next((reader["line"] for reader in received if reader["how"] == "get"), ""),
        "stored_bytes": stored, "held_bytes": held, "causes": causes, "faults_per_step": faults,
        "seconds": {name: value / steps for name, value in seconds.items()}, "seconds_per_step": moving,
        "sending_seconds": (seconds["serialise"] + seconds["write"]) / steps,
        "senders": len({event["process"] for event in sent}), "receivers": len({r["process"] for r in received}),
        "crosses_nodes": any(reader["node"] != event["node"] for event in sent for reader in event["readers"]),
    }  # fmt: skip


def find_steps(processes: Sequence[Event], name: str | None) -> tuple[str, int, float]:
    """Return what a step has once, the number of steps, and their seconds; raise UsageError for an unknown name.

    Without a name, it is the method that is called least often, but at least three times and in half of the program.
    """
    actors, counts, times = defaultdict(set), Counter[str](), defaultdict[str, list[float]](list)
    for process in processes:
        for side, _, place, count, _, first, last in process["totals"]:
            if side == "sent" and not place.startswith("driver"):
                actors[place].add(process["process"] if "." in place else "")  # tasks run in any process
                counts[place] += count
                times[place] += [first, last]
    if name and name not in counts:
        raise UsageError(f"--step {name}: no message has this sender: give {', '.join(sorted(counts)) or 'none'}")
    steps = {place: counts[place] // len(actors[place]) for place in counts}
    spans = {place: max(times[place]) - min(times[place]) for place in counts}
    repeated = [place for place in steps if steps[place] >= MIN_STEPS and spans[place] > max(spans.values()) / 2]
    place = name or min(repeated, key=lambda place: (steps[place], spans[place]), default="")
    return place, steps.get(place, 1), spans.get(place, 0.0) / max(1, steps.get(place, 1) - 1)


def make_profile(folder: Path, fault_seconds: float, step: str | None) -> dict[str, Any]:
    """Return the profile of the program whose processes have written into this folder."""
    processes, events = read_events(folder)
    place, steps, step_seconds = find_steps(processes, step)
    totals = [row for process in processes for row in process["totals"]]
    small = [row for row in totals if row[1]]
    written_share = min(1.0, len(events) / max(1, sum(row[3] for row in totals) - sum(row[3] for row in small)))
    groups: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        if event["side"] == "sent":
            readers = tuple(sorted({reader["place"] for reader in event["readers"]}))
            groups[event["place"], event["line"], event["how"], readers].append(event)
    known = {name: processes[0][name] for name in ("ray", "retained", "zero_copy", "missing")}
    messages = [
        describe_message(sent, steps * written_share, known["zero_copy"], fault_seconds) for sent in groups.values()
    ]
    places: dict[str, float] = defaultdict(float)
    for message in messages:
        places[message["place"].partition(".")[0]] += message["sending_seconds"] * steps / message["senders"]
        for reader in message["readers"]:
            places[reader.partition(".")[0]] += message["seconds"]["deserialise"] * steps / message["receivers"]
    return {
        "schema": SCHEMA, "step": place, "steps": steps, "step_seconds": step_seconds, "fault_seconds": fault_seconds,
        **known, "seconds": max(row[6] for row in totals) - min(row[5] for row in totals),
        "places": places, "small_messages": sum(row[3] for row in small),
        "small_bytes": max((row[4] / row[3] for row in small), default=0.0),
        "messages": sorted(messages, key=lambda message: -message["seconds_per_step"]),
    }  # fmt: skip
