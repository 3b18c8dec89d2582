"""Files that a command writes: whole or not at all, and for their owner's eyes."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

from schemaless_core.process.private import private
from tripstore.errors import TripstoreError


class NotWritten(TripstoreError):
    """What a command was to write has no place."""


def write_whole(file: Path, content: bytes) -> None:
    """Write it beside its place first: a reader who opens the file finds a whole one."""
    beside = file.with_name(f".{file.name}.{uuid4().hex[:8]}")
    try:
        with open(beside, "wb", opener=private) as written:
            written.write(content)
        os.replace(beside, file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise NotWritten(f"{file} cannot be written: {error.strerror}.", hint="Name another file.") from error
