# SPDX-License-Identifier: Apache-2.0
"""Limit how long a conversion of a message may take, and how deep inside of each other the parts are that it looks at.

Converting takes Python's time for each part, and pickling C's. A message that refers to the same parts again and again
has a short pickle, and as many parts as there are ways to them.
"""

import math
import time

MAX_DEPTH = 200  # of parts inside of each other
CHECKS = 64  # of the time of this conversion, after which the budget of all of them is asked, too


class TooSlow(Exception):
    """A conversion takes much longer than pickling the message does."""


class OutOfBudget(Exception):
    """There is no more time to measure this message."""


def always():
    return True


class Limits:
    """The limits of one conversion. After an error they are of no further use."""

    def __init__(self, seconds=math.inf, has_time=always):
        self.seconds = seconds
        self.has_time = has_time
        self.checks = 0
        self.depth = 0
        self.around = set()  # ids of the parts that the one which is looked at is a part of
        self.restart()

    def restart(self):
        """Give all of the time again, after the import of a library."""
        self.end = time.perf_counter() + self.seconds

    def check(self):
        """Raise TooSlow or OutOfBudget if the time is over."""
        if time.perf_counter() > self.end:
            raise TooSlow
        self.checks += 1
        if self.checks % CHECKS == 0 and not self.has_time():
            raise OutOfBudget

    def enter(self, parts):
        """Begin to look into parts, and return what `leave` needs. Raise RecursionError if they contain themselves."""
        self.check()
        ids = set(map(id, parts))
        if self.depth >= MAX_DEPTH or not self.around.isdisjoint(ids):
            raise RecursionError("a part of a message contains itself, or lies too deep")
        self.around |= ids
        self.depth += 1
        return ids

    def leave(self, ids):
        """End to look into parts."""
        self.around -= ids
        self.depth -= 1
