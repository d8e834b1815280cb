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

VIEW_FACTOR, MIN_FIELD_SHARE, FAULT_SHARE = (
    1.2,
    0.1,
    0.2,
)  # from which on views, a field and page faults are a cause
Event = dict[str, Any]


def read_events(folder: Path) -> tuple[list[Event], list[Event]]:
    """Return the processes of a profile with their counts, and all events; raise UsageError without any process."""
    processes, events, end = [], [], inf
    for path in sorted(path for path in folder.glob("*.jsonl") if path.stat().st_size):
        complete = path.read_text(encoding="utf-8").rpartition("\n")[
            0
        ]  # a process that was killed may leave a part
        first, *lines = map(json.loads, complete.splitlines())
        own = [line | {"process": first["process"], "class": line["place"].partition(".")[0], "readers": []}
               for line in lines if "side" in line]  # fmt: skip
        first |= next(
            (line for line in reversed(lines) if "side" not in line), {}
        )  # the last counts
        if own and first["events"] > len(own):  # the recorder writes the first ones only
            end = min(end, own[-1]["start"])
        processes.append(first)
        events += own
    if not processes:
        raise UsageError(f"{folder} has no profile: the program has not called ray.init")
    events = sorted(
        (event for event in events if event["start"] <= end), key=lambda event: event["start"]
    )
    join_readers(events)
    return processes, events


def join_readers(events: Sequence[Event]) -> None:
    """Add to each event of a sender the events of its `readers`, and mark the messages that a process `forwards`."""
    senders: dict[tuple[str, int], list[Event]] = defaultdict(
        list
    )  # by identity and bytes: a task has several results
    received: dict[tuple[str, int], dict[bytes, list[Event]]] = defaultdict(
        lambda: defaultdict(list)
    )
    sent = [event for event in events if event["side"] == "sent"]
    for event in sent:
        senders[event["id"] or "", event["stored"]].append(event)
    for event in (event for event in events if event["side"] == "received"):
        size, names = (
            event["stored"],
            ["O" + event["object"], "A" + event["task"], "R" + event["from"]],
        )
        if event["object"].endswith(
            "01000000"
        ):  # the first result of a task, or an argument of the driver
            names[1:] = names[:0:-1]
        # An async actor does not know the task of its arguments: the size and the order are left.
        name = next(((name, size) for name in names if (name, size) in senders), ("async", size))
        received[name][bytes.fromhex(event["object"])[::-1]].append(
            event
        )  # numbers are little-endian
    for event in sent:
        if event["how"] == "by value" and (event["id"], event["stored"]) not in received:
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
    tokens = {(event["process"], event["token"]) for event in sent if event["token"]}
    for event in events:
        token = event["process"], event["token"]
        event["forwards"], event["forwarded"] = (
            origins.get(token, "") if event["token"] else "",
            token in tokens,
        )


def count_repeats(sent: Sequence[Event]) -> float:
    """Return how often an argument was serialised for each time that it had to be: once for all readers."""
    readers: dict[Any, Counter] = defaultdict(Counter)
    for number, event in enumerate(sent):
        key = event["process"], event["token"] or -number
        readers[key].update({reader["process"] for reader in event["readers"]} or {None})
    return len(sent) / sum(max(counts.values()) for counts in readers.values())


def sum_seconds(events: Sequence[Event], name: str) -> float:
    """Return the sum over all events. Those that imported modules, as torch, count as the median of the others."""
    values = [event.get(name, 0.0) for event in events if not event["imports"]]
    return sum(values) + (len(events) - len(values)) * (median(values) if values else 0.0)


def describe_message(sent: Sequence[Event], steps: int, fault_seconds: float) -> Event:
    """Return one message: all events with the same sender, line, way and readers. Times and savings are per step."""
    received = [reader for event in sent for reader in event["readers"]]
    first = max(sent, key=lambda event: event["stored"])
    stored, held = mean(event["stored"] for event in sent), mean(event["bytes"] for event in sent)
    parts = (sent, "seconds"), (sent, "other"), (received, "seconds"), (received, "wait")
    serialise, write, read, wait = (sum_seconds(events, key) / steps for events, key in parts)
    every, faults = serialise + write + read, sum_seconds([*sent, *received], "faults") / steps
    shares = Counter[str]()  # of the stored bytes, of the fields with a cause
    for *_, size, field_causes in first["fields"]:
        share = min(1.0, (size + ("view" in field_causes) * max(0, stored - held)) / stored)
        shares.update(dict.fromkeys(field_causes, share if share > MIN_FIELD_SHARE else 0.0))
    work = {"numbers": every, "bytes in the pickle": serialise + read, "not contiguous": serialise,
            "tensors in the pickle": (serialise + read) * (first["how"] != "RDT")}  # fmt: skip
    repeats = count_repeats(sent) if first["how"] == "by value" else 1.0
    is_driver, is_view = first["class"] == "driver", shares["view"] and stored > VIEW_FACTOR * held
    forwards = [event["forwards"] for event in sent if event["forwards"]]
    sent_on = [event for event in received if event["forwarded"] and event["class"] == "driver"]
    causes = (
        (
            "through the driver",
            is_driver and forwards,
            (serialise + write) * len(forwards) / len(sent),
        ),
        ("through the driver", sent_on, sum_seconds(sent_on, "seconds") / steps),
        ("forwarded", not is_driver and forwards, 0.0),
        (f"serialised {repeats:.3g} times", repeats > 1, (serialise + write) * (1 - 1 / repeats)),
        (f"views, stored {stored / max(1, held):.1f} times", is_view, every * (1 - held / stored)),
        *(
            (cause, shares[cause] * seconds, min(1.0, shares[cause]) * seconds)
            for cause, seconds in work.items()
        ),
        (
            "page faults",
            faults * fault_seconds > FAULT_SHARE * every,
            min(every, faults * fault_seconds),
        ),
        (
            "another node",
            any(reader["node"] != event["node"] for event in sent for reader in event["readers"]),
            0.0,
        ),
    )
    readers = sorted({reader["place"] for reader in received})
    return {
        **{key: first[key] for key in ("place", "line", "how", "fields")},
        "start": sent[0]["start"], "forwards": forwards[0] if forwards else "",
        "count": len(sent), "readers": readers, "route": f"{first['place']} -> {', '.join(readers) or 'nobody'}",
        "get_line": next((reader["line"] for reader in received if reader["how"] == "get"), ""),
        "stored_bytes": stored, "held_bytes": held, "causes": {cause: saved for cause, seen, saved in causes if seen},
        "seconds": {"serialise": serialise, "write": write, "deserialise": read, "wait": wait},
        "seconds_per_step": every, "faults_per_step": faults, "senders": len({event["process"] for event in sent}),
    }  # fmt: skip


def find_steps(events: Sequence[Event], name: str | None) -> tuple[str, int, float]:
    """Return the method that ends a step (default: the rarest in half of the program), the steps, and their seconds."""
    calls, starts = defaultdict(set), defaultdict(list)
    for event in events:
        if (event["how"] in ("result", "RDT") or "task" in event) and event["class"] != "driver":
            process = event["process"] if "." in event["place"] else ""  # tasks run in any process
            calls[event["place"], event["side"]].add(
                (process, event.get("task") or event["id"][1:])
            )
            starts[event["place"], event["side"]].append(event["start"])
    steps = {
        key: len(of) // len({process for process, _ in of}) for key, of in calls.items()
    }  # of one actor
    spans = {key: max(starts[key]) - min(starts[key]) for key in calls}
    repeated = [key for key in calls if steps[key] >= 3 and spans[key] > max(spans.values()) / 2]
    keys = [key for key in calls if key[0] == name] if name else repeated
    if name and not keys:
        raise UsageError(
            f"--step {name}: it has no large message: give {', '.join(sorted({key[0] for key in calls}))}"
        )
    if not keys:
        return "", 1, events[-1]["start"] + events[-1]["seconds"] - events[0]["start"]
    key = min(keys, key=lambda key: (steps[key], spans[key]))
    return key[0], steps[key], spans[key] / max(1, steps[key] - 1)


def make_profile(folder: Path, fault_seconds: float, step: str | None) -> dict[str, Any]:
    """Return the profile of the program whose processes have written into this folder; raise UsageError without one."""
    processes, events = read_events(folder)
    if not events:
        largest = max(process["largest_small_bytes"] for process in processes)
        raise UsageError(
            f"the largest message had {format_bytes(largest)}: give --min-bytes {largest // 4}B"
        )
    place, steps, step_seconds = find_steps(events, step)
    groups: dict[Any, list[Event]] = defaultdict(list)
    for event in (event for event in events if event["side"] == "sent"):
        readers = tuple(sorted({reader["place"] for reader in event["readers"]}))
        names = tuple(name for name, *_ in event["fields"])  # a call can have several arguments
        groups[event["place"], event["line"], event["how"], readers, names].append(event)
    messages = [describe_message(sent, steps, fault_seconds) for sent in groups.values()]
    busy: dict[tuple[str, str], float] = defaultdict(float)  # seconds, by process and its class
    for event in events:
        if not event["imports"]:
            busy[event["class"], event["process"]] += event["seconds"] + event.get("other", 0.0)
    places = {name: max(of for (other, _), of in busy.items() if other == name) for name, _ in busy}
    return {
        "schema": 1, "step": place, "steps": steps, "step_seconds": step_seconds, "fault_seconds": fault_seconds,
        **{name: processes[0][name] for name in ("ray", "retained", "missing")}, "places": places,
        "seconds": events[-1]["start"] + events[-1]["seconds"] - events[0]["start"],
        "small_messages": sum(process["small"] for process in processes),
        "messages": sorted(messages, key=lambda message: -message["seconds_per_step"]),
    }  # fmt: skip
