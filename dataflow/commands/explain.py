"""Explain what one message costs with Ray, field by field, and measure the change that makes a field cheaper.

python3 -m dataflow explain batch.pt               in a program: dataflow.explain(batch)
python3 -m dataflow explain batch.pkl --trust      a pickle can run any code when it is loaded
"""

import argparse
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from common.flags import OneLineParser
from dataflow.errors import UsageError
from dataflow.flows.user_modules import user_modules
from dataflow.profile.explain import explain

TORCH_SUFFIXES = (".pt", ".pth")
ZIP_MAGIC = b"PK\x03\x04"  # torch.save writes a ZIP file


def main(argv: Sequence[str]) -> int:
    """Explain the message in a file of torch.save or pickle; raise UsageError if it cannot be read."""
    parser = OneLineParser(
        "python3 -m dataflow explain",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file", type=Path, help="a message, as torch.save (.pt, .pth) or pickle (.pkl) writes it"
    )
    parser.add_argument("--trust", action="store_true", help="load a file that can run code")
    arguments = parser.parse_args(argv)
    with user_modules(Path.cwd()):  # a pickle names the modules of its classes
        explain(load_message(arguments.file, arguments.trust))
    return 0


def load_message(file: Path, is_trusted: bool) -> Any:
    """Return the message in a file; raise UsageError if it cannot be read."""
    advice = "give a file of torch.save or, with --trust, a pickle of your own"
    try:
        load = choose_loader(file, is_trusted)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}: {advice}") from None
    if load is None:
        raise UsageError(f"{file}: a pickle can run any code when it is loaded: {advice}")
    try:
        return load(file)
    except (AttributeError, ImportError) as error:
        raise UsageError(
            f"{file}: {error}: run this in the folder from which your program imports the class, or call "
            "dataflow.explain(message) in the program"
        ) from None
    except Exception as error:  # a pickle can raise any error
        name = type(error).__name__
        raise UsageError(f"{file} cannot be loaded ({name}): {advice}") from None


def choose_loader(file: Path, is_trusted: bool) -> Callable[[Path], Any] | None:
    """Return the function that loads a file, or None if the file can run code and is not trusted."""
    with file.open("rb") as opened:
        start = opened.read(len(ZIP_MAGIC))
    if file.suffix in TORCH_SUFFIXES or start == ZIP_MAGIC:
        import torch  # not above: a pickle may need no torch

        return partial(torch.load, weights_only=not is_trusted)
    return load_pickle if is_trusted else None


def load_pickle(file: Path) -> Any:
    """Return the value of a pickle."""
    return pickle.loads(file.read_bytes())
