"""Print a profile: the share of data movement, the most expensive messages, and what to change."""

import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dataflow.units import format_bytes

MAX_ROWS, MAX_ADVICE = 12, 5
SMALL_SHARE = 0.02  # of the time, below which data movement is not the problem
WAYS = {"return": "result", "argument": "by value", "put": "put", "channel": "channel"}
ADVICE = tomllib.loads(Path(__file__).with_name("advice.toml").read_text(encoding="utf-8"))  # by the start of a cause
ROW = "{:>8}  {:36}  {:8}  {:>6}  {:>9}  {}"


def print_profile(profile: Mapping[str, Any]) -> None:
    """Print at most 100 characters per line, except for names of files."""
    total, per_step = max(profile["seconds"], 1e-9), Counter[str]()
    print(f"{total:.3g} s from the first message to the last one. Time that each process moves data:")
    for name, seconds in sorted(profile["places"].items(), key=lambda item: (item[0] != "driver", -item[1])):
        print(f"  {name}: {seconds / total:.1%}")
    for message in profile["messages"]:
        per_step.update(message["seconds"], faults=message["faults_per_step"] * profile["fault_seconds"])
    moving = max(1e-9, sum(per_step[part] for part in ("serialise", "write", "deserialise")))
    share = {part: f"{min(1.0, seconds / moving):.0%}" for part, seconds in per_step.items()}
    print(f"Serialisation is {share['serialise']} of it, writing into the store {share['write']}, deserialisation "
          f"{share['deserialise']}.\nPage faults are at most {share['faults']} of it. In ray.get, processes waited for "
          f"{per_step['wait'] * profile['steps'] / total:.1%} of the time.")  # fmt: skip
    print(f"Messages, by their time per step; {profile['steps']} steps (each has one {profile['step'] or 'program'}):")
    print(ROW.format("ms/step", "message", "how", "count", "stored", "causes"))
    for message in profile["messages"][:MAX_ROWS]:
        causes = shorten("; ".join(message["causes"]) or "-", 23)
        print(ROW.format(f"{message['seconds_per_step'] * 1e3:,.4g}", shorten(route(message), 36), WAYS[message["how"]],
                         message["count"], format_bytes(message["stored_bytes"]), causes))  # fmt: skip
    print(
        f"({max(0, len(profile['messages']) - MAX_ROWS)} more in profile.json; {profile['small_messages']} small ones)"
    )
    if max(profile["places"].values()) < SMALL_SHARE * total:
        print(f"Data movement is not your problem: no process spends {SMALL_SHARE:.0%} of the time on it.")
        return
    advice = [text for message in profile["messages"] if (text := advise(message, profile))]
    print(f"What to change, per step of {profile['step_seconds']:.3g} s:" if advice else "No cause is known.")
    for number, text in enumerate(advice[:MAX_ADVICE], 1):
        print(f"{number}. {text}")


def route(message: Mapping[str, Any]) -> str:
    return f"{message['place']} -> {', '.join(message['readers']) or 'nobody'}"


def shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def advise(message: Mapping[str, Any], profile: Mapping[str, Any]) -> str:
    """Return what to change for the first cause of a message, in which line, and the time that it saves, or ""."""
    for cause in message["causes"]:
        rule = next((rule for start, rule in ADVICE.items() if cause.startswith(start)), None)
        if rule is None or (profile["retained"] and cause == "page faults"):
            continue
        origin = next((m for m in profile["messages"] if m["place"] == message["forwards"] and m["get_line"]), None)
        saved = sum(message["seconds"][part] for part in rule["saves"])
        if origin:
            saved += origin["seconds"]["deserialise"]
        elif cause.startswith("serialised"):
            saved *= 1 - 1 / float(cause.split()[1])
        elif cause == "page faults":
            saved = min(saved, message["faults_per_step"] * profile["fault_seconds"])
        lines = [line for line in (origin["get_line"] if origin else "", message["line"]) if line]
        where = " and ".join(lines) or message["place"]
        return (f"{route(message)}: {cause}.\n   {rule['change']}\n   Where: {where}\n"
                f"   Saves at most {saved * 1e3:,.3g} ms per step. Example: {rule['example']}")  # fmt: skip
    return ""
