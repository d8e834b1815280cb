"""Print a profile: the share of data movement, the most expensive messages, and what to change."""

import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dataflow.units import format_bytes

MAX_ROWS, MAX_LINES = 12, 4
SMALL_SHARE = 0.02  # of the time, below which data movement is not the problem
WAYS = {"return": "result", "argument": "by value", "put": "put", "channel": "channel"}
ADVICE = tomllib.loads(Path(__file__).with_name("advice.toml").read_text(encoding="utf-8"))  # by the start of a cause
ROW = "{:>8}  {:36.36}  {:8}  {:>6}  {:>9}  {:.23}"


def print_profile(profile: Mapping[str, Any]) -> None:
    """Print at most 100 characters per line, except for names of files."""
    total, per_step = max(profile["seconds"], 1e-9), Counter[str]()
    print(f"{total:.3g} s from the first message to the last one. Time that each process moves data:")
    for name, seconds in sorted(profile["places"].items(), key=lambda item: (item[0] != "driver", -item[1])):
        print(f"  {name}: {seconds / total:.1%}")
    for message in profile["messages"]:
        per_step.update(message["seconds"], faults=message["faults_per_step"] * profile["fault_seconds"])
    moving = max(1e-9, per_step["serialise"] + per_step["write"] + per_step["deserialise"])
    of = {part: f"{min(1.0, seconds / moving):.0%}" for part, seconds in per_step.items()}
    print(f"Serialisation is {of['serialise']} of it, deserialisation {of['deserialise']}, the rest of ray.put and "
          f".remote() {of['write']}.\nPage faults of the first two are about {of['faults']} of it.")  # fmt: skip
    print(f"Messages, by their time per step; {profile['steps']} steps (each has one {profile['step'] or 'program'}):")
    print(ROW.format("ms/step", "message", "how", "count", "stored", "causes"))
    for message in profile["messages"][:MAX_ROWS]:
        milliseconds, size = f"{message['seconds_per_step'] * 1e3:,.4g}", format_bytes(message["stored_bytes"])
        causes, way = "; ".join(message["causes"]) or "-", WAYS.get(message["how"], "other")
        print(ROW.format(milliseconds, message["route"], way, message["count"], size, causes).rstrip("; "))
    print(f"profile.json: all {len(profile['messages'])} messages. {profile['small_messages']} smaller ones were sent.")
    if max(profile["places"].values(), default=0.0) < SMALL_SHARE * total:
        print(f"Data movement is not your problem: no process spends {SMALL_SHARE:.0%} of its time on these calls.")
        return
    advice = advise(profile)
    print(f"What to change, per step of {profile['step_seconds']:.3g} s:" if advice else "There is no advice for it.")
    for number, (_, text) in enumerate(advice, 1):
        print(f"{number}. {text}")


def advise(profile: Mapping[str, Any]) -> list[tuple[float, str]]:
    """Return, for each cause that has advice, the seconds per step that it saves at most, and what to change where."""
    advice = []
    for start, rule in ADVICE.items():
        messages = [m for m in profile["messages"] if any(cause.startswith(start) for cause in m["causes"])]
        saved, lines = 0.0, []
        for message in messages:
            seconds = sum(message["seconds"][part] for part in rule["saves"])
            if start == "serialised":
                seconds *= 1 - 1 / float(next(c for c in message["causes"] if c.startswith(start)).split()[1])
            elif start == "page faults":
                seconds = min(seconds, message["faults_per_step"] * profile["fault_seconds"])
            elif start == "through the driver":
                for origin in profile["messages"]:
                    if (
                        origin["place"] == message["forwards"]
                        and origin["get_line"]
                        and origin["get_line"] not in lines
                    ):
                        seconds += origin["seconds"]["deserialise"]
                        lines.append(origin["get_line"])
            saved += seconds
            lines.append(message["line"] or message["place"])
        if messages and not (start == "page faults" and profile["retained"]):
            where = ", ".join([*dict.fromkeys(lines)][:MAX_LINES])
            routes = "; ".join(message["route"] for message in messages)
            advice.append((saved, f"{start}: {routes:.70}\n   {rule['change']}\n   Where: {where}\n   Saves at most "
                                  f"{saved * 1e3:,.3g} ms per step. Example: {rule['example']}"))  # fmt: skip
    return sorted(advice, reverse=True)
