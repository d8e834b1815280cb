"""Write a profile for other programs: its trace (ui.perfetto.dev), its drawing (SVG), and its flow (TOML)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dataflow.profile.messages import Event
from dataflow.profile.show import MAX_ROWS
from dataflow.units import format_bytes

LISTS = ("str", "ints", "floats")
DTYPES = ("int64", "int32", "uint8", "bool", "float64", "float32", "float16", "bfloat16", *LISTS)
NUMBER = '{name = "", dtype = "int64", shape = [1]}'  # the message of a task that only acknowledges
MAX_COPIES = 16  # of a message per step, in the flow


def write_trace(path: Path, events: Sequence[Event]) -> None:
    """Write one track per process, and an arrow from each message to its readers."""
    numbers = {event["process"]: int(event["process"].rpartition("-")[2]) for event in events}  # of the processes
    lines: list[Event] = []
    for event in events:
        at = {"pid": numbers[event["process"]], "tid": 0, "ts": event["start"] * 1e6, "name": event["place"]}
        shown = {"cat": event["side"], "args": {key: event[key] for key in ("stored", "faults", "how", "line")}}
        lines.append(at | {"ph": "M", "name": "process_name", "args": {"name": event["place"].partition(".")[0]}})
        lines.append(at | shown | {"ph": "X", "dur": event["seconds"] * 1e6})
        for reader in event["readers"]:
            arrow = at | {"ph": "s", "cat": "message", "id": len(lines)}
            end = {"ph": "f", "bp": "e", "pid": numbers[reader["process"]], "ts": reader["start"] * 1e6}
            lines += [arrow, arrow | end]
    path.write_text(json.dumps({"traceEvents": lines}))


def write_drawing(path: Path, messages: Sequence[Mapping[str, Any]]) -> None:
    """Draw a column per class of actors, and an arrow per message with its bytes and its time per step."""
    from matplotlib.figure import Figure  # of this project's own environment

    ends = [(message, reader) for message in messages[:MAX_ROWS] for reader in message["readers"]]
    columns = list(dict.fromkeys(name.partition(".")[0] for m, reader in ends for name in (m["place"], reader)))
    figure = Figure(figsize=(8, 1 + len(ends) / 2))
    axes = figure.subplots()
    axes.set(xlim=(-0.5, max(1, len(columns)) - 0.5), ylim=(-len(ends) - 0.5, 1))
    axes.axis("off")
    for column, name in enumerate(columns):
        axes.axvline(column, color="lightgrey")
        axes.text(column, 0.5, name, ha="center", weight="bold", backgroundcolor="white")
    for row, (message, reader) in enumerate(ends, 1):
        left, right = (columns.index(name.partition(".")[0]) for name in (message["place"], reader))
        axes.annotate("", (right, -row), (left, -row), arrowprops={"arrowstyle": "->"})
        time = f"{format_bytes(message['stored_bytes'])}, {message['seconds_per_step'] * 1e3:.3g} ms per step"
        label = f"{message['place']} to {reader}\n{time}"
        axes.text((left + right) / 2, -row + 0.05, label, ha="center", va="bottom", fontsize=8)
    figure.savefig(path, bbox_inches="tight")


def write_flow(path: Path, profile: Mapping[str, Any]) -> float:
    """Write the messages of a step as a flow, without forwarding, and return their seconds per step in the program."""
    every = [message for message in profile["messages"] if message["count"] >= profile["steps"] and message["readers"]]
    onward: dict[str, list[str]] = {}
    for message in every:
        if message["forwards"]:
            onward.setdefault(message["forwards"], []).extend(message["readers"])
    tasks: dict[str, str] = {}
    reads: dict[str, list[str]] = {}

    def add_task(name: str, place: str, actor: int, fields: str) -> None:
        sources, actor_name = json.dumps(reads.get(place, ["driver"])), f"{place.partition('.')[0]}-{actor}"
        tasks[name] = f'{{name = "{name}", actor = "{actor_name}", reads = {sources}, sends.fields = [{fields}]}}'

    # A task reads only what began before its own message, so that there is no cycle.
    for number, message in enumerate(sorted(every, key=lambda message: message["start"])):
        place, copies = message["place"], []
        for copy in range(0 if message["forwards"] else min(MAX_COPIES, round(message["count"] / profile["steps"]))):
            copies.append(f"{place}-{number}-{copy}")
            add_task(copies[-1], place, copy % message["senders"], describe_fields(message))
        for reader in onward.get(place, message["readers"]):
            reads[reader] = reads.get(reader, []) + copies
    for reader in reads.keys() - {message["place"] for message in every}:
        add_task(reader, reader, 0, NUMBER)
    returns = [name for name in tasks if not any(name in names for names in reads.values())]
    path.write_text(f'name = "flow"\ntitle = "profile"\nreturns = {json.dumps(returns)}\nquery.fields = [{NUMBER}]\n'
                    "tasks = [\n    " + ",\n    ".join(tasks.values()) + "\n]\n")  # fmt: skip
    return sum(message["seconds_per_step"] for message in every)


def describe_fields(message: Mapping[str, Any]) -> str:
    """Return name, dtype, and the shape of a tensor or the lengths of a list, of each field as TOML."""
    texts = []
    whole = ["message", "uint8", [round(message["stored_bytes"])], 1, 0, 0, []]  # of a type that is not described
    for name, dtype, shape, count, items, size, causes in message["fields"] or [whole]:
        if dtype not in DTYPES:
            dtype, items, shape = "uint8", size, [size]
        text = f"lengths = {[items // count] * count}" if count > 1 or dtype in LISTS else f"shape = {list(shape)}"
        if "view" in causes and count > 1:  # of a batch; each is pickled with all of it
            text += f", storage = {[count, int(message['stored_bytes'] * items / (size * count * count))]}"
        texts.append(f"{{name = {json.dumps(name or 'message')}, dtype = {json.dumps(dtype)}, {text}}}")
    if message["fields"] and all(field[1] in LISTS for field in message["fields"]):  # for the sequence number
        texts.append(NUMBER.replace('""', '"number"'))
    return ", ".join(texts)
