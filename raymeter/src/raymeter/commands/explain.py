# SPDX-License-Identifier: Apache-2.0
"""Explain a cause, or one message: its fields, its pickle, and other ways to send it, measured."""

import pickle
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

from raymeter.commands.output import show_text
from raymeter.errors import UserError
from raymeter.report.before_and_after import find_cause, list_causes, render_cause
from raymeter.report.message import render

FILES = (".npy", ".pt", ".pth", ".pkl")  # of messages
MAX_WIDTH = 100


def main(arguments: Namespace) -> int:
    """Explain the message in a file, or a cause; list the causes if neither is given. Return 0.

    Raise UserError if the words are no file and no cause, or if the file cannot be read.
    """
    words = " ".join(arguments.subject)
    path = Path(words)
    if not words:
        show_text(list_causes())
    elif path.is_file() or path.suffix in FILES:
        show_text(render(load(path, arguments.trust)))
    else:
        width = min(shutil.get_terminal_size((80, 24)).columns, MAX_WIDTH)
        show_text(render_cause(find_cause(words), width))
    return 0


def explain(value: Any) -> None:
    """Print what one message costs with Ray: type, fields, bytes, share in the pickle, and measured alternatives.

    No value of the message is printed.
    """
    print(render(value))


def load(path: Path, is_trusted: bool) -> Any:
    """Return the message of a file of numpy (.npy), torch.save (.pt) or, if it is trusted, a pickle (.pkl).

    Raise UserError for another file, and for one that can run code and is not trusted.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        if path.suffix == ".npy":
            return load_array(path, is_trusted)
        if path.suffix in (".pt", ".pth"):
            return load_tensors(path, is_trusted)
        return load_pickle(path, is_trusted)
    except UserError:
        raise
    except ImportError as error:
        module = error.name or "its module"
        raise UserError(
            f"{path}: install {module} to read it, or add its folder to PYTHONPATH"
        ) from None
    except Exception as error:
        # Loading a pickle runs code of its classes, which can raise anything.
        raise UserError(f"{path} cannot be loaded ({describe(error)}): {advise(error)}") from None


def describe(error: Exception) -> str:
    """Return the first line of an error; its type if it has no text."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def advise(error: Exception) -> str:
    """Return what to do about a file that cannot be loaded.

    A pickle has the module and the name of each class, and not its code. The program that somebody starts is the module
    `__main__`, and here this is raymeter, which does not have the class.
    """
    if isinstance(error, AttributeError):
        return "move its class into a module that can be imported here, and save it again"
    return "give a file of numpy.save, torch.save or, with --trust, a pickle"


def load_array(path: Path, is_trusted: bool) -> Any:
    import numpy

    return numpy.load(path, allow_pickle=is_trusted)


def load_tensors(path: Path, is_trusted: bool) -> Any:
    import torch

    return torch.load(path, weights_only=not is_trusted)


def load_pickle(path: Path, is_trusted: bool) -> Any:
    if not is_trusted:
        raise UserError(
            f"{path} is read as a pickle, which can run any code then. If it is your own pickle, give --trust"
        )
    with path.open("rb") as file:
        return pickle.load(file)
