"""Explain what one message costs with Ray, field by field, and measure the change that makes a field cheaper.

python3 -m dataflow explain batch.pt               in a program: dataflow.explain(batch)
python3 -m dataflow explain batch.pkl --trust      a pickle can run any code when it is loaded
"""

import pickle
import time
from argparse import FileType
from collections.abc import Sequence
from contextlib import suppress
from resource import RUSAGE_SELF, getrusage
from statistics import median
from typing import Any

from common.flags import OneLineParser
from dataflow.errors import UsageError
from dataflow.profile.inside.dataflow_recorder import MAX_PARTS, describe, describe_leaf, walk
from dataflow.units import format_bytes

ROW = "{:24} {:>10} {:>10} {:>6} {:>7} {:>8} {:>8}  {}"
CHANGES = {"not contiguous": "contiguous()", "view": "clone()", "tensors in the pickle": "numpy()",
           "numbers": "numpy.array", "bytes in the pickle": "numpy.frombuffer"}  # fmt: skip


def measure(value: Any) -> tuple[int, int, float, float]:
    """Return stored bytes, those of them inside the pickle, page faults and seconds of sending and reading a value."""
    from ray import cloudpickle  # what Ray serialises with

    faults, seconds = [], []
    for _ in range(5):
        buffers: list[pickle.PickleBuffer] = []
        before, start = getrusage(RUSAGE_SELF).ru_minflt, time.perf_counter()
        data = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        stored = [bytes(part) for part in (data, *(buffer.raw() for buffer in buffers))]
        pickle.loads(stored[0], buffers=stored[1:])
        seconds.append(time.perf_counter() - start)
        faults.append(getrusage(RUSAGE_SELF).ru_minflt - before)
    return sum(map(len, stored)), len(data), median(faults), median(seconds)


def change(part: Any) -> Any:
    """Return a tensor, array, list of numbers or bytes as a contiguous array with memory of its own."""
    import numpy

    if isinstance(part, (bytes, bytearray)):
        return numpy.frombuffer(part, "uint8")
    with suppress(TypeError, RuntimeError):  # numpy has no bfloat16, for example
        return part.numpy().copy() if hasattr(part, "numpy") else numpy.array(part)
    return part.clone()


def explain(message: Any) -> None:
    """Print a row per field of a message: its bytes, copies, page faults, time, change, and the time after it."""
    fields = (
        message
        if isinstance(message, dict)
        else getattr(message, "__dict__", None) or {"(message)": message}
    )
    print(
        ROW.format("field", "held", "stored", "copies", "faults", "ms", "ms after", "cause: change")
    )
    for name, value in fields.items():
        described, (stored, pickled, faults, seconds) = describe(value), measure(value)
        held, seen = (
            described["bytes"],
            {cause for field in described["fields"] for cause in field[6]},
        )
        changes = [f"{cause}: {text}" for cause, text in CHANGES.items() if cause in seen]
        changed = [
            change(part) for _, part in walk(value, MAX_PARTS) if changes and describe_leaf(part)
        ]
        after = f"{measure(changed)[3] * 1e3:.3g}" if changes else "-"
        numbers = (
            f"{(stored + pickled) / max(1, held):.3g}",
            f"{faults:.0f}",
            f"{seconds * 1e3:.3g}",
        )
        row = str(name)[:24], format_bytes(held), format_bytes(stored), *numbers, after
        print(ROW.format(*row, ", ".join(changes) or "-"))


def main(argv: Sequence[str]) -> int:
    """Explain the message in a file of torch.save or pickle; raise UsageError if it cannot be read."""
    parser = OneLineParser("python3 -m dataflow explain [--trust] FILE")
    parser.add_argument(
        "file",
        type=FileType("rb"),
        help="a message, as torch.save (.pt) or pickle (.pkl) writes it",
    )
    parser.add_argument("--trust", action="store_true", help="load a file that can run code")
    file, is_trusted = vars(parser.parse_args(argv)).values()
    try:
        import torch

        is_pickle = is_trusted and not file.name.endswith(".pt")
        message = pickle.load(file) if is_pickle else torch.load(file, weights_only=not is_trusted)
    except (EOFError, RuntimeError, pickle.UnpicklingError) as error:
        raise UsageError(f"{file.name} cannot be loaded ({type(error).__name__}): give a file of torch.save or, with "
                         "--trust, a pickle of your own") from None  # fmt: skip
    explain(message)
    return 0
