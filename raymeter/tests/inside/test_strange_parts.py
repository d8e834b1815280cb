# SPDX-License-Identifier: Apache-2.0
"""Messages are described without their own code, also while another thread changes them."""

import sys
import threading
from collections import deque

import numpy as np
import pytest
from raymeter.inside import describe, identity

NUMBERS = np.zeros(1_000)


class CodeRan(Exception):
    """Code of a message has run."""


def refuse(*_):
    raise CodeRan


class Rows(list):
    __iter__ = __getitem__ = __len__ = refuse


class Row(tuple):
    __slots__ = ()
    __iter__ = __getitem__ = __len__ = refuse


class Line(deque):
    __iter__ = __getitem__ = __len__ = refuse


class Table(dict):
    items = values = __iter__ = __len__ = refuse


class Text(str):
    __slots__ = ()
    __len__ = replace = refuse


class Proxy:
    """As one of a library whose connection is closed."""

    __getattribute__ = refuse


class Plain:
    def __init__(self):
        self.array = NUMBERS


class OwnAttributes(Plain):
    __dict__ = property(refuse)


STRANGE = {
    "list": (Rows([NUMBERS]), "[]"),
    "tuple": (Row([NUMBERS]), "[]"),
    "deque": (Line([NUMBERS]), "[]"),
    "dict": (Table(array=NUMBERS), "array"),
    "key": ({Text("array"): NUMBERS}, "*"),
    "proxy": ([Proxy(), NUMBERS], "[]"),
    "class": ([OwnAttributes(), NUMBERS], "[]"),
    "object": (Plain(), "array"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_the_arrays_of_a_message_are_found_and_its_code_does_not_run(name):
    value, path = STRANGE[name]
    found = {field["path"]: field["bytes"] for field in describe.describe(value)}
    assert found == {path: NUMBERS.nbytes}
    assert identity.find_leaves(value) == [[NUMBERS.ctypes.data, NUMBERS.nbytes]]


def test_the_numbers_of_a_list_are_described_without_its_code():
    [field] = describe.describe(Rows(range(2_000)))
    assert (field["type"], field["shape"], field["bytes"]) == ("Rows", [2_000], 16_000)


@pytest.fixture
def changed_meanwhile(monkeypatch):
    """Return a function that lets another thread change a container as often as it can, until the test ends."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    has_ended = threading.Event()
    threads = []

    def start(change):
        def run():
            while not has_ended.is_set():
                change()

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield start
    has_ended.set()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)


def test_a_queue_that_another_thread_fills_meanwhile_is_described(changed_meanwhile):
    queue = deque([NUMBERS] * 500)
    changed_meanwhile(lambda: queue.rotate())
    for _ in range(50):
        [field] = describe.describe(queue)
        assert (field["path"], field["bytes"]) == ("[]", NUMBERS.nbytes)


def test_a_dict_that_another_thread_fills_meanwhile_is_described(changed_meanwhile):
    known = dict.fromkeys(range(500), NUMBERS)

    def change():
        for key in range(500, 600):
            known[key] = NUMBERS
        for key in range(500, 600):
            del known[key]

    changed_meanwhile(change)
    for _ in range(50):
        [field] = describe.describe(known)
        assert field["path"] == "*"
