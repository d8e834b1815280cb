"""A function in a user's own file, `my_flow.py:my_flow`; whatever goes wrong in it is told with its line."""

import importlib.util
import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def load_function(text: str) -> Callable[..., Any]:
    """The function of `path/to/file.py:name`.

    Raises:
        ValueError: there is none; the message names file and line.
    """
    file, _, name = text.rpartition(":")
    try:
        source = Path(file).read_text()
    except OSError as error:
        raise ValueError(
            f"cannot read {file or text} ({error.strerror}): give a file and a function, as my_flow.py:my_flow"
        ) from None
    try:
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(Path(file).stem, None))  # type: ignore[arg-type]
        exec(compile(source, file, "exec"), module.__dict__)
    except Exception as error:
        raise ValueError(explained(file, error)) from None
    function = getattr(module, name, None)
    if not inspect.isfunction(function):
        raise ValueError(f"{file}: there is no function {name}")
    return function


def explained(file: str, error: Exception, usual: int | None = None) -> str:
    """File and line, as far down in the user's file as it goes, and what was raised; `usual`: where it has no line."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    number = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else usual
    text = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    what = text if type(error) is ValueError else f"{type(error).__name__}: {text}"
    return f"{file}:{number}: {what}" if number else f"{file}: {what}"
