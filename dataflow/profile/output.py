"""Print a profile, and write it for other programs: its trace (ui.perfetto.dev), its drawing (SVG), its flow (TOML)."""

import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dataflow.profile.messages import Event
from dataflow.units import format_bytes

MAX_ROWS, MAX_LINES, MAX_COPIES = (
    12,
    4,
    16,
)  # of messages, of code per advice, and of a message per step in the flow
SMALL_SHARE = 0.02  # of the time, below which data movement is not the problem
ADVICE = tomllib.loads(
    Path(__file__).with_name("advice.toml").read_text(encoding="utf-8")
)  # by the start of a cause
ROW = "{:>8}  {:35.35}  {:8}  {:>6}  {:>9}  {}"
LISTS = ("str", "ints", "floats")
DTYPES = ("int64", "int32", "uint8", "bool", "float64", "float32", "float16", "bfloat16", *LISTS)
NUMBER = '{name = "", dtype = "int64", shape = [1]}'  # the message of a task that only acknowledges
SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" font-size="12" text-anchor="middle">{}</svg>'


def print_profile(profile: Mapping[str, Any]) -> None:
    """Print at most 100 characters per line, except for names of files."""
    total, per_step = max(profile["seconds"], 1e-9), Counter[str]()
    print(
        f"{total:.3g} s from the first message to the last one. Share of it in calls that move data:"
    )
    for name, seconds in sorted(
        profile["places"].items(), key=lambda item: (item[0] != "driver", -item[1])
    ):
        print(f"  {name}: {seconds / total:.1%}")
    for message in profile["messages"]:
        per_step.update(
            message["seconds"], faults=message["faults_per_step"] * profile["fault_seconds"]
        )
    moving = max(1e-9, per_step["serialise"] + per_step["write"] + per_step["deserialise"])
    of = {part: f"{min(1.0, seconds / moving):.0%}" for part, seconds in per_step.items()}
    print(f"Serialisation is {of['serialise']} of it, deserialisation {of['deserialise']}, the rest of ray.put and "
          f".remote() {of['write']}.\nPage faults of the first two are about {of['faults']} of it.")  # fmt: skip
    counted = (
        f"steps, counted by the messages of {profile['step']}"
        if profile["step"]
        else "step: the whole program"
    )
    print(f"Messages, by their time per step; {profile['steps']} {counted}:")
    print(ROW.format("ms/step", "message", "how", "count", "stored", "causes"))
    for message in profile["messages"][:MAX_ROWS]:
        milliseconds, size = (
            f"{message['seconds_per_step'] * 1e3:,.4g}",
            format_bytes(message["stored_bytes"]),
        )
        causes = f"\n{'':76}".join(message["causes"]) or "-"
        print(
            ROW.format(
                milliseconds, message["route"], message["how"], message["count"], size, causes
            )
        )
    print(
        f"profile.json: all {len(profile['messages'])} messages. {profile['small_messages']} smaller ones were sent."
    )
    if max(profile["places"].values(), default=0.0) < SMALL_SHARE * total:
        print(
            f"These calls are not your problem: no process spends {SMALL_SHARE:.0%} of its time in them."
        )
        return
    advice = advise(profile)
    print(
        f"What to change, per step of {profile['step_seconds']:.3g} s:"
        if advice
        else "There is no advice for it."
    )
    for number, (_, text) in enumerate(advice, 1):
        print(f"{number}. {text}")


def advise(profile: Mapping[str, Any]) -> list[tuple[float, str]]:
    """Return, for each cause that has advice, the seconds of work per step that it removes, and the text."""
    advice = []
    for start, rule in ADVICE.items():
        messages = [
            m for m in profile["messages"] if any(cause.startswith(start) for cause in m["causes"])
        ]
        saved = sum(
            of for m in messages for cause, of in m["causes"].items() if cause.startswith(start)
        )
        if messages and not (start == "page faults" and profile["retained"]):
            lines = [
                (start == "through the driver" and m["get_line"]) or m["line"] or m["place"]
                for m in messages
            ]
            where = ", ".join([*dict.fromkeys(lines)][:MAX_LINES])
            of_messages = f"{len(messages)} of the messages, for example {messages[0]['route']}"
            advice.append((saved, f"{start}: {of_messages}\n   {rule['change']}\n   Where: {where}\n   Work that it "
                                  f"removes: {saved * 1e3:,.3g} ms per step. Example: {rule['example']}"))  # fmt: skip
    return sorted(advice, reverse=True)


def write_trace(path: Path, events: Sequence[Event]) -> None:
    """Write one track per process, and an arrow from each message to its readers."""
    numbers = {
        event["process"]: int(event["process"].rpartition("-")[2]) for event in events
    }  # of the processes
    lines: list[Event] = []
    for event in events:
        at = {
            "pid": numbers[event["process"]],
            "tid": 0,
            "ts": event["start"] * 1e6,
            "name": event["place"],
        }
        lines.append(at | {"ph": "M", "name": "process_name", "args": {"name": event["class"]}})
        shown = {key: event[key] for key in ("stored", "faults", "how", "line")}
        lines.append(
            at | {"ph": "X", "dur": event["seconds"] * 1e6, "cat": event["side"], "args": shown}
        )
        for reader in event["readers"]:
            arrow = at | {"ph": "s", "cat": "message", "id": len(lines)}
            end = {
                "ph": "f",
                "bp": "e",
                "pid": numbers[reader["process"]],
                "ts": reader["start"] * 1e6,
            }
            lines += [arrow, arrow | end]
    path.write_text(json.dumps({"traceEvents": lines}))


def write_drawing(path: Path, messages: Sequence[Mapping[str, Any]]) -> None:
    """Draw a column per class of actors, and an arrow per message with its bytes and its time per step."""
    ends = [(message, reader) for message in messages[:MAX_ROWS] for reader in message["readers"]]
    columns = list(
        dict.fromkeys(name.partition(".")[0] for m, reader in ends for name in (m["place"], reader))
    )
    parts = [
        f'<text x="{200 + 400 * column}" y="20">{escape(name)}</text>'
        for column, name in enumerate(columns)
    ]
    for row, (message, reader) in enumerate(ends, 1):
        left, right = (
            200 + 400 * columns.index(name.partition(".")[0]) for name in (message["place"], reader)
        )
        cost = f"{format_bytes(message['stored_bytes'])}, {message['seconds_per_step'] * 1e3:.3g} ms per step"
        head = "l-6 -4m6 4l-6 4" if left <= right else "l6 -4m-6 4l6 4"
        parts.append(
            f'<path d="M{left} {30 + 45 * row}H{right}{head}" stroke="black" fill="none"/>'
        )
        label = escape(f"{message['place']} to {reader}: {cost}")
        parts.append(f'<text x="{(left + right) / 2}" y="{24 + 45 * row}">{label}</text>')
    path.write_text(SVG.format(400 * len(columns), 45 * len(ends) + 60, "\n".join(parts)))


def make_name(place: str) -> str:
    """Return the name of a task of Ray, for example of a lambda, as the name of a task of a flow."""
    return re.sub("[^A-Za-z0-9_.-]", "-", place).lstrip("_.-")


def write_flow(path: Path, profile: Mapping[str, Any]) -> float:
    """Write the messages of a step as a flow, without forwarding, and return their seconds per step in the program."""
    every = [m | {"place": make_name(m["place"]), "forwards": make_name(m["forwards"]),
                  "readers": [make_name(reader) for reader in m["readers"]]}
             for m in profile["messages"] if m["count"] >= profile["steps"] and m["readers"]]  # fmt: skip
    tasks: dict[str, str] = {}
    reads: dict[str, list[str]] = defaultdict(list)

    def add_task(name: str, place: str, actor: int, fields: str) -> None:
        sources, actor_name = (
            json.dumps(reads.get(place, ["driver"])),
            f"{place.partition('.')[0]}-{actor}",
        )
        tasks[name] = (
            f'{{name = "{name}", actor = "{actor_name}", reads = {sources}, sends.fields = [{fields}]}}'
        )

    # A task reads only what began before its own message, so that there is no cycle.
    for number, message in enumerate(sorted(every, key=lambda message: message["start"])):
        count, place = min(MAX_COPIES, round(message["count"] / profile["steps"])), message["place"]
        copies = (
            [] if message["forwards"] else [f"{place}-{number}-{copy}" for copy in range(count)]
        )
        for copy, name in enumerate(copies):
            add_task(name, place, copy % message["senders"], describe_fields(message))
        onward = [
            reader for other in every if other["forwards"] == place for reader in other["readers"]
        ]
        for reader in onward or message["readers"]:
            reads[reader] += copies
    for reader in reads.keys() - {message["place"] for message in every}:
        add_task(reader, reader, 0, NUMBER)
    returns = [name for name in tasks if not any(name in names for names in reads.values())]
    path.write_text(f'name = "flow"\ntitle = "profile"\nreturns = {json.dumps(returns)}\nquery.fields = [{NUMBER}]\n'
                    "tasks = [\n    " + ",\n    ".join(tasks.values()) + "\n]\n")  # fmt: skip
    return sum(message["seconds_per_step"] for message in every)


def describe_fields(message: Mapping[str, Any]) -> str:
    """Return name, dtype, and the shape of a tensor or the lengths of a list, of each field as TOML."""
    texts, whole = (
        [],
        ["message", "uint8", [round(message["stored_bytes"])], 1, 0, 0, []],
    )  # if it is not described
    for name, dtype, shape, count, items, size, causes in message["fields"] or [whole]:
        if dtype not in DTYPES:
            dtype, items, shape = "uint8", size, [size]
        text = (
            f"lengths = {[items // count] * count}"
            if count > 1 or dtype in LISTS
            else f"shape = {list(shape)}"
        )
        if "view" in causes and count > 1:  # of a batch; each is pickled with all of it
            text += f", storage = {[count, int(message['stored_bytes'] * items / (size * count * count))]}"
        texts.append(
            f"{{name = {json.dumps(name or 'message')}, dtype = {json.dumps(dtype)}, {text}}}"
        )
    if message["fields"] and all(
        field[1] in LISTS for field in message["fields"]
    ):  # for the sequence number
        texts.append(NUMBER.replace('""', '"number"'))
    return ", ".join(texts)
