"""Faults as values: what shall go wrong, with whom, and when. Tests and the hidden flag --inject share them."""

import argparse
from dataclasses import dataclass

WHATS = ("start", "die", "stop", "segfault", "hang", "raise", "flip", "stale", "garbage")


@dataclass(frozen=True)
class Fault:
    """who: a task, or the driver. trip: from which message of its on; "start" strikes before any. what: of WHATS."""

    who: str
    trip: int
    what: str

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """From WHO:TRIP:WHAT."""
        try:
            who, trip, what = text.split(":")
            if what not in WHATS:
                raise ValueError
            return cls(who, int(trip), what)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no WHO:TRIP:WHAT, WHAT of {', '.join(WHATS)}") from None
