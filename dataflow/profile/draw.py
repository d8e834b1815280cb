"""Write a profile for other programs: its trace (ui.perfetto.dev), its drawing (SVG), and its flow (TOML)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dataflow.profile.messages import Event
from dataflow.profile.show import MAX_ROWS
from dataflow.units import format_bytes

DTYPES = ("int64", "int32", "uint8", "bool", "float64", "float32", "float16", "bfloat16", "str", "ints", "floats")
LISTS = ("str", "ints", "floats")
NUMBER = '{name = "", dtype = "int64", shape = [1]}'  # the message of a task that only acknowledges
MAX_COPIES = 16  # of a message per step, in the flow


def write_trace(path: Path, events: Sequence[Event]) -> None:
    """Write one track per process, and an arrow from each message to its readers."""
    lines: list[Event] = []
    for number, event in enumerate(events):
        at = {"pid": event["process"], "tid": 0, "ts": event["start"] * 1e6}
        shown = {
            "args": {key: event[key] for key in ("stored", "faults", "how", "line")},
            "dur": event["seconds"] * 1e6,
        }
        lines.append({**at, **shown, "ph": "X", "name": f"{event['side']} {event['place']}"})
        for reader in event["readers"]:
            arrow = {"cat": "message", "name": "message", "id": f"{number}-{reader['process']}-{reader['start']}"}
            lines.append({**at, **arrow, "ph": "s"})
            lines.append({**at, **arrow, "ph": "f", "bp": "e", "pid": reader["process"], "ts": reader["start"] * 1e6})
    path.write_text(json.dumps({"traceEvents": lines}))


def write_drawing(path: Path, messages: Sequence[Mapping[str, Any]]) -> None:
    """Draw a column per class of actors, and an arrow per message with its bytes and its time per step."""
    import matplotlib.pyplot as plt  # of this project's own environment

    ends = [(message, reader) for message in messages[:MAX_ROWS] for reader in message["readers"]]
    names = list(dict.fromkeys(name.partition(".")[0] for m, reader in ends for name in (m["place"], reader)))
    figure, axes = plt.subplots(figsize=(8, 1 + len(ends) / 2))
    axes.set(xlim=(-0.5, len(names) - 0.5), ylim=(-len(ends) - 0.5, 1))
    axes.axis("off")
    for column, name in enumerate(names):
        axes.axvline(column, color="lightgrey")
        axes.text(column, 0.5, name, ha="center", weight="bold", backgroundcolor="white")
    for row, (message, reader) in enumerate(ends, 1):
        left, right = (names.index(name.partition(".")[0]) for name in (message["place"], reader))
        axes.annotate("", (right, -row), (left, -row), arrowprops={"arrowstyle": "->"})
        text = f"{format_bytes(message['stored_bytes'])}, {message['seconds_per_step'] * 1e3:.3g} ms per step"
        label = f"{message['place']} to {reader}\n{text}" if message["place"] != reader else text
        axes.text((left + right) / 2, -row + 0.05, label, ha="center", va="bottom", fontsize=8)
    figure.savefig(path, bbox_inches="tight")


def write_flow(path: Path, profile: Mapping[str, Any]) -> float:
    """Write the messages of a step as a flow for `run --flow FILE`, and return their time per step in the program.

    What a process only forwards goes from its first sender to its last readers. A task reads what began before its own
    message, so that there is no cycle.
    """
    every = [message for message in profile["messages"] if message["count"] >= profile["steps"] and message["readers"]]
    onward = {message["forwards"]: message["readers"] for message in every if message["forwards"]}
    tasks: dict[str, str] = {}
    reads: dict[str, list[str]] = {}

    def add_task(name: str, actor: str, place: str, fields: str) -> None:
        names = json.dumps(reads.get(place, ["driver"]))
        tasks[name] = f'{{name = "{name}", actor = "{actor}", reads = {names}, sends.fields = [{fields}]}}'

    for number, message in enumerate(sorted(every, key=lambda message: message["start"])):
        if message["forwards"]:
            continue
        place, sender = message["place"], message["place"].partition(".")[0]
        copies = [
            f"{place}-{number}-{copy}" for copy in range(min(MAX_COPIES, round(message["count"] / profile["steps"])))
        ]
        for copy, name in enumerate(copies):
            add_task(name, f"{sender}-{copy % message['senders']}", place, describe_fields(message))
        for reader in onward.get(place, message["readers"]):
            reads[reader] = reads.get(reader, []) + copies
    for reader in set(reads) - {message["place"] for message in every}:
        add_task(reader, reader.partition(".")[0], reader, NUMBER)
    returns = [name for name in tasks if not any(name in names for names in reads.values())]
    path.write_text(f'name = "flow"\ntitle = "profile"\nreturns = {json.dumps(returns)}\nquery.fields = [{NUMBER}]\n'
                    "tasks = [\n    " + ",\n    ".join(tasks.values()) + "\n]\n")  # fmt: skip
    return sum(message["seconds_per_step"] for message in every)


def describe_fields(message: Mapping[str, Any]) -> str:
    """Return name, dtype, and the shape of a tensor or the lengths of a list, of each field as TOML."""
    texts = []
    for name, dtype, shape, count, items, size, causes in message["fields"]:
        if dtype not in DTYPES:
            dtype, items, shape = "uint8", size, [size]
        text = f"lengths = {[items // count] * count}" if count > 1 or dtype in LISTS else f"shape = {list(shape)}"
        if "view" in causes and count > 1:  # of a batch; each is pickled with all of it
            text += f", storage = {[count, int(message['stored_bytes'] * items / (size * count * count))]}"
        texts.append(f"{{name = {json.dumps(name or 'message')}, dtype = {json.dumps(dtype)}, {text}}}")
    if all(field[1] in LISTS for field in message["fields"]):  # the suite writes the sequence number into a tensor
        texts.append(NUMBER.replace('""', '"number"'))
    return ", ".join(texts)
