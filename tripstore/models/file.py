"""The file of a module: whether it is current, and writing it so that no reader finds half of one."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

from tripstore.errors import TripstoreError
from tripstore.models.source import MARK


class ModelsNotWritten(TripstoreError):
    """The file cannot be written, or is not one of ours."""


def is_current(file: Path, module: str) -> bool:
    """Whether the file is what would be written."""
    return _text(file) == module


def write_module(file: Path, module: str) -> bool:
    """Write the file, unless it is current. Return whether it was written; what is not ours is left alone."""
    there = _text(file)
    if there == module:
        return False
    if there and MARK not in there:
        raise ModelsNotWritten(
            f"{file} was not written by `tripstore models`.", hint="Name another file, or remove this one."
        )
    beside = file.with_name(f".{file.name}.{uuid4().hex[:8]}")
    try:
        beside.write_text(module, encoding="utf-8")
        os.replace(beside, file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ModelsNotWritten(f"{file} cannot be written: {error.strerror}.", hint="Name another file.") from error
    return True


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        return "no text of ours"
    except OSError as error:
        raise ModelsNotWritten(f"{file} cannot be read: {error.strerror}.", hint="Name another file.") from error
