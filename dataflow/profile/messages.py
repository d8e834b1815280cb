"""Read the files that a profiled program has written, and find its messages, their causes, and its steps."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import mean, median
from typing import Any

from dataflow.errors import UsageError
from dataflow.units import format_bytes

SCHEMA = 1
MIN_STEPS = 3
VIEW_FACTOR = 1.2  # bytes stored / bytes held, from which on views are a cause
MIN_FIELD_SHARE = 0.1  # of the bytes of a message, below which a field is no cause
FAULT_SHARE = 0.2  # of the time of a message, from which on page faults are a cause
Event = dict[str, Any]


def read_events(folder: Path) -> tuple[list[Event], list[Event]]:
    """Return the processes of a profile with their counts, and all events; raise UsageError without any process."""
    processes, events, end = [], [], inf
    for path in sorted(path for path in folder.glob("*.jsonl") if path.stat().st_size):
        complete = path.read_text(encoding="utf-8").rpartition("\n")[0]  # a process that was killed may leave a part
        first, *lines = map(json.loads, complete.splitlines())
        own = [line | {"process": first["process"], "readers": []} for line in lines if "side" in line]
        first |= next((line for line in reversed(lines) if "side" not in line), {})  # the last counts
        if first["events"] > len(own):  # the recorder writes the first ones only
            end = min(end, own[-1]["start"])
        processes.append(first)
        events += own
    if not processes:
        raise UsageError(f"{folder} has no profile: the program has not called ray.init")
    events = sorted((event for event in events if event["start"] <= end), key=lambda event: event["start"])
    join_readers(events)
    return processes, events


def join_readers(events: Sequence[Event]) -> None:
    """Add to each event of a sender the events of its `readers`, and mark the messages that a process `forwards`."""
    # By identity and bytes, because a task can have several results and arguments.
    senders: dict[tuple[str, int], list[Event]] = defaultdict(list)
    received: dict[tuple[str, int], dict[bytes, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if event["side"] == "sent":
            senders[event["id"] or "", event["stored"]].append(event)
    for event in events:
        if event["side"] == "received":
            size, names = event["stored"], ("O" + event["object"], "A" + event["task"], "R" + event["from"])
            # An async actor does not know the task of its arguments: the size and the order are left.
            name = next(((name, size) for name in names if (name, size) in senders), ("async", size))
            received[name][bytes.fromhex(event["object"])[::-1]].append(event)  # numbers are little-endian
    for event in events:
        if event["side"] == "sent" and event["how"] == "argument" and (event["id"], event["stored"]) not in received:
            senders["async", event["stored"]].append(event)
    origins: dict[Any, str] = {}
    for name, objects in received.items():
        for number, key in enumerate(sorted(objects)):
            for position, event in enumerate(objects[key]):
                if name[0].startswith("O"):  # a channel has one identity for all its messages
                    number = position * len(senders[name]) // len(objects[key])
                if number < len(senders[name]):  # equal ones have the order of their objects
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


def describe_message(sent: Sequence[Event], steps: int, is_zero_copy: bool, fault_seconds: float) -> Event:
    """Return one message of the program: all events with the same sender, line, way and readers. Times are per step."""
    received = [reader for event in sent for reader in event["readers"]]
    first = max(sent, key=lambda event: event["stored"])
    stored, held = mean(event["stored"] for event in sent), mean(event["bytes"] for event in sent)
    seconds = {name: sum_seconds(of, key) / steps for name, of, key in (
        ("serialise", sent, "seconds"), ("write", sent, "other"), ("deserialise", received, "seconds"),
        ("wait", received, "wait"))}  # fmt: skip
    faults = sum(event["faults"] for event in [*sent, *received] if not event["imports"]) / steps
    moving = seconds["serialise"] + seconds["write"] + seconds["deserialise"]
    marks = {cause for field in first["fields"] for cause in field[6] if field[5] > MIN_FIELD_SHARE * held}
    repeats = count_repeats(sent) if first["how"] == "argument" else 1.0
    causes = {
        "through the driver" if first["place"].startswith("driver") else "forwarded": first["forwards"],
        f"serialised {repeats:.3g} times": repeats > 1,
        f"views, stored {stored / max(1, held):.1f} times": "view" in marks and stored > VIEW_FACTOR * held,
        **{mark: mark in marks for mark in ("numbers", "bytes in the pickle", "not contiguous")},
        "tensors in the pickle": "tensors in the pickle" in marks and not is_zero_copy,
        "page faults": faults * fault_seconds > FAULT_SHARE * moving,
        "another node": any(reader["node"] != event["node"] for event in sent for reader in event["readers"]),
    }
    readers = sorted({reader["place"] for reader in received})
    return {
        **{key: first[key] for key in ("place", "line", "how", "forwards", "fields")}, "start": sent[0]["start"],
        "count": len(sent),
        "readers": readers, "route": f"{first['place']} -> {', '.join(readers) or 'nobody'}",
        "get_line": next((reader["line"] for reader in received if reader["how"] == "get"), ""),
        "stored_bytes": stored, "held_bytes": held, "causes": [cause for cause, is_seen in causes.items() if is_seen],
        "seconds": seconds, "seconds_per_step": moving, "faults_per_step": faults,
        "senders": len({event["process"] for event in sent}),
    }  # fmt: skip


def find_steps(events: Sequence[Event], name: str | None) -> tuple[str, int, float]:
    """Return the method that a step has once, the number of steps, and their seconds; raise UsageError without it.

    Without a name, it is the one that is called least often, but at least three times and in half of the program.
    """
    calls, starts = defaultdict(set), defaultdict(list)
    for event in events:
        if (event["how"] == "return" or "task" in event) and not event["place"].startswith("driver"):
            process = event["process"] if "." in event["place"] else ""  # tasks run in any process
            calls[event["place"]].add((process, event.get("task") or event["id"][1:]))
            starts[event["place"]].append(event["start"])
    if name and name not in calls:
        raise UsageError(f"--step {name}: it has no large message: give {', '.join(sorted(calls)) or 'none'}")
    steps = {place: len(of) // len({process for process, _ in of}) for place, of in calls.items()}  # of one actor
    spans = {place: max(starts[place]) - min(starts[place]) for place in calls}
    repeated = [place for place in steps if steps[place] >= MIN_STEPS and spans[place] > max(spans.values()) / 2]
    place = name or min(repeated, key=lambda place: (steps[place], spans[place]), default="")
    if not place:
        return "", 1, events[-1]["start"] + events[-1]["seconds"] - events[0]["start"]
    return place, steps[place], spans[place] / max(1, steps[place] - 1)


def make_profile(folder: Path, fault_seconds: float, step: str | None) -> dict[str, Any]:
    """Return the profile of the program whose processes have written into this folder; raise UsageError without one."""
    processes, events = read_events(folder)
    if not events:
        largest = max(process["largest_small_bytes"] for process in processes)
        raise UsageError(f"the largest message had {format_bytes(largest)}: give --min-bytes {largest // 4}B")
    place, steps, step_seconds = find_steps(events, step)
    groups: dict[Any, list[Event]] = defaultdict(list)
    for event in events:
        if event["side"] == "sent":
            readers = tuple(sorted({reader["place"] for reader in event["readers"]}))
            groups[event["place"], event["line"], event["how"], readers].append(event)
    messages = [describe_message(sent, steps, processes[0]["zero_copy"], fault_seconds) for sent in groups.values()]
    busy: dict[tuple[str, str], float] = defaultdict(float)  # seconds, by process and its class
    for event in events:
        if not event["imports"]:
            busy[event["place"].partition(".")[0], event["process"]] += event["seconds"] + event.get("other", 0.0)
    places = {name: max(of for (other, _), of in busy.items() if other == name) for name, _ in busy}
    return {
        "schema": SCHEMA, "step": place, "steps": steps, "step_seconds": step_seconds, "fault_seconds": fault_seconds,
        **{name: processes[0][name] for name in ("ray", "retained", "zero_copy", "missing")}, "places": places,
        "seconds": events[-1]["start"] + events[-1]["seconds"] - events[0]["start"],
        "small_messages": sum(process["small"] for process in processes),
        "messages": sorted(messages, key=lambda message: -message["seconds_per_step"]),
    }  # fmt: skip
