"""Faults as values: what shall go wrong, with whom, and when. Tests and the hidden flag --inject share them."""

import argparse
from dataclasses import dataclass

from common.units import parse_seconds

WHATS = ("start", "die", "stop", "segfault", "hang", "raise", "flip", "stale", "garbage", "delay")


@dataclass(frozen=True)
class Fault:
    """who: a task, or the driver. trip: from which message of its on; "start" strikes before any. what: of WHATS.

    seconds: of a delay, which makes the task slower from that message on and nothing else wrong.
    """

    who: str
    trip: int
    what: str
    seconds: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """From WHO:TRIP:WHAT, a delay as WHO:TRIP:delay=5ms."""
        try:
            who, trip, what = text.split(":")
            what, equals, seconds = what.partition("=")
            if what not in WHATS or bool(equals) != (what == "delay"):
                raise ValueError
            return cls(who, int(trip), what, parse_seconds(seconds) if equals else 0.0)
        except ValueError:
            words = f"{text!r} is no WHO:TRIP:WHAT, WHAT of {', '.join(WHATS)}=5ms"
            raise argparse.ArgumentTypeError(words) from None

    def __str__(self) -> str:
        return f"{self.who}:{self.trip}:{self.what}" + (f"={self.seconds * 1e3:g}ms" if self.seconds else "")
